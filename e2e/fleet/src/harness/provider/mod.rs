//! Where Kubernetes APIs come from. A scenario never knows which provider it has, except through
//! [`Ability`].
//!
//! | `MUSTER_E2E_PROVIDER` | what the clusters are |
//! |---|---|
//! | `embedded` (or nothing) | servers in this process; nothing to install |
//! | `envtest` | etcd, kube-apiserver, kube-controller-manager (of `KUBEBUILDER_ASSETS`) |
//! | `kind` | made by `e2e/kind/up`: a bare fleet API in one, real nodes in the members |
//! | `given` | those of `MUSTER_E2E_KUBECONFIGS`: `fleet=PATH,member1=PATH,member2=PATH,...` |
//!
//! Clusters of the last two are shared by everything that runs at the time: fleets wait for each
//! other on them, and each begins and ends by removing what scenarios leave behind.

mod embedded;
mod envtest;
mod given;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use futures::future::BoxFuture;
use kube::config::Kubeconfig;

pub use embedded::Embedded;
pub use envtest::Released;
pub use given::Given;
pub use muster_test_apiserver::Forget;

/// The environment variable that chooses the provider.
pub const CHOICE: &str = "MUSTER_E2E_PROVIDER";

/// Something that not every provider's clusters can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Pods really start there, and workloads have their controllers. Otherwise the harness plays
    /// both.
    RunPods,
    /// Owner references are followed, and namespaces are emptied when they go.
    CollectGarbage,
    /// The API can be stopped and started again; watches from before are then too old.
    Restart,
    /// It can also be restarted with the history of its watches.
    KeepHistory,
}

impl Ability {
    /// Returns what the clusters would have to do, for reports.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::RunPods => "run pods",
            Self::CollectGarbage => "collect garbage",
            Self::Restart => "restart their API",
            Self::KeepHistory => "keep the history of watches over a restart",
        }
    }
}

/// Makes Kubernetes APIs.
pub trait Provider: Send + Sync {
    /// Returns the name for reports.
    fn name(&self) -> &'static str;
    /// Returns what the provider's clusters can do.
    fn abilities(&self) -> BTreeSet<Ability>;
    /// Returns how many members a fleet may have.
    fn most_members(&self) -> usize {
        usize::MAX
    }
    /// Returns how many times as long as on the embedded API things may take.
    fn patience(&self) -> u32 {
        1
    }
    /// Returns whether the provider's clusters were there before and stay: what a fleet leaves in
    /// them would be in the way of the next.
    fn is_shared(&self) -> bool {
        false
    }
    /// Starts (or finds) the API of that name; files go below `directory`. It ends when dropped.
    fn start<'a>(
        &'a self,
        name: &'a str,
        directory: &'a Path,
    ) -> BoxFuture<'a, anyhow::Result<Box<dyn Cluster>>>;
}

/// One running Kubernetes API.
pub trait Cluster: Send + Sync {
    /// Returns access for somebody who may do everything.
    fn administrator(&self) -> anyhow::Result<Kubeconfig>;
    /// Ends every connection and starts the API again after `down`, on the same address and with
    /// the same objects. For providers with [`Ability::Restart`]; without [`Ability::KeepHistory`]
    /// the history is lost whatever `forget` says.
    fn restart(&self, _forget: Forget, _down: Duration) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async { bail!("this API is not ours to restart") })
    }
}

/// Returns the provider that the environment asks for.
pub fn chosen() -> anyhow::Result<Box<dyn Provider>> {
    let asked = std::env::var(CHOICE).unwrap_or_default();
    Ok(match asked.as_str() {
        "" | "embedded" => Box::new(Embedded),
        "envtest" => Box::new(Released::from_environment()?),
        "kind" => Box::new(Given::kind()?),
        "given" => Box::new(Given::from_environment()?),
        other => bail!("{CHOICE}={other:?}: there are embedded, envtest, kind and given"),
    })
}

/// Returns why a provider cannot serve a scenario; `None` if it can.
pub fn lacking(provider: &dyn Provider, members: usize, needs: &[Ability]) -> Option<String> {
    let (name, abilities) = (provider.name(), provider.abilities());
    if let Some(need) = needs.iter().find(|need| !abilities.contains(need)) {
        return Some(format!("clusters of {name} cannot {}", need.describe()));
    }
    let most = provider.most_members();
    (members > most).then(|| format!("{name} has {most} members, and {members} are needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_refused_by_the_ability_or_the_member_that_is_missing() {
        let two = Given::of(
            [("fleet", "f"), ("member1", "1"), ("member2", "2")],
            "given",
            [],
        );
        for (members, needs, expected) in [
            (2, &[][..], None),
            (3, &[][..], Some("given has 2 members, and 3 are needed")),
            (
                2,
                &[Ability::Restart][..],
                Some("clusters of given cannot restart their API"),
            ),
        ] {
            assert_eq!(lacking(&two, members, needs).as_deref(), expected);
        }
        assert_eq!(lacking(&Embedded, 50, &[Ability::KeepHistory]), None);
    }
}
