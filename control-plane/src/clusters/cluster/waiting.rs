//! What a cluster that leaves the fleet waits for, and when that is reported.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::check;
use muster_shared::names::namespaced_key;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::lifecycle::DeletionStep;
use crate::fleet::works::CachedWork;

/// A cluster that leaves and waits for bindings longer than this says so: a scheduler takes them
/// off it within seconds.
const LONG: Duration = Duration::from_secs(30);
/// A cluster that leaves and waits longer than this for its agent or the fleet API to remove
/// something says so: pods may end slowly.
const LONGER: Duration = Duration::from_mins(2);
/// Time after which a wait that goes on is reported again.
const AGAIN: Duration = Duration::from_mins(30);
/// Objects that are named where a cluster waits for them.
const LISTED: usize = 3;

/// Returns the workload of a binding, with the reason why its scheduler does not take it off a
/// cluster.
fn holder(spec: &ResourceBindingSpec) -> String {
    let resource = &spec.resource;
    let namespace = resource.namespace.as_deref().unwrap_or_default();
    let name = namespaced_key(namespace, &resource.name);
    let why = if spec.scheduling_suspended() {
        " (its scheduling is suspended)"
    } else {
        ""
    };
    format!("{} {name}{why}", resource.kind)
}

/// Returns the message about the bindings that name the cluster, for which its removal waits;
/// `None` if there are none.
pub(super) fn waits_for_bindings(holders: &[Arc<AnyBinding>]) -> Option<String> {
    let mut names: Vec<_> = holders.iter().map(|it| holder(&it.spec)).collect();
    names.sort_unstable();
    Some(format!(
        "The cluster waits to be removed until no binding names it: {}. Their scheduler has to take them off it.",
        listed(&names)?
    ))
}

/// Returns the names of Works as a message has them; `None` if there are none.
fn named<'a>(works: impl Iterator<Item = &'a Arc<CachedWork>>) -> Option<String> {
    let mut names: Vec<_> = works.map(|work| work.name_any()).collect();
    names.sort_unstable();
    listed(&names)
}

/// Returns the message about the Works that are being deleted, for which the removal of the cluster
/// waits; `None` if there are none.
pub(super) fn waits_for_works<'a>(
    works: impl Iterator<Item = &'a Arc<CachedWork>>,
) -> Option<String> {
    let names = named(works)?;
    Some(format!(
        "The cluster waits to be removed until its agent has removed what these Works placed: {names}. If it cannot, take the \
         finalizers off the objects in the member, or end the agent: a cluster that is not ready is not waited for."
    ))
}

/// Returns the message about the Works of a silent cluster whose copies may still run, for which
/// its removal waits; `None` if there are none.
pub(super) fn waits_for_fences<'a>(
    works: impl Iterator<Item = &'a Arc<CachedWork>>,
) -> Option<String> {
    let names = named(works)?;
    Some(format!(
        "The cluster waits to be removed until the copies that these Works placed have stopped themselves: {names}. Two copies must not \
         run (failover.cluster.fencing)."
    ))
}

pub(super) fn waits_for_list(namespace: &str) -> String {
    format!(
        "The cluster waits to be removed until its execution namespace {namespace} has no Works: some may be there that the \
         control plane was not shown. kubectl get works -n {namespace} says which."
    )
}

pub(super) fn waits_for_namespace(namespace: &str) -> String {
    format!(
        "The cluster waits to be removed until its execution namespace {namespace} is gone: kubectl describe namespace \
         {namespace} says what is left in it."
    )
}

/// Returns the first of several names, and how many more there are; `None` if there are none.
fn listed(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| check::listed(names, LISTED))
}

/// Step that each leaving cluster waits in, since when, and when that was reported. A restart loses
/// it: the wait is then reported again.
#[derive(Debug, Default)]
pub(super) struct DeletionWaits(Mutex<HashMap<String, Wait>>);

#[derive(Clone, Copy, Debug)]
struct Wait {
    step: DeletionStep,
    since: Instant,
    reported: Option<Instant>,
}

impl DeletionWaits {
    /// Returns whether a step has taken so long that it is to be reported now, if there is
    /// something to report.
    pub(super) fn is_due(&self, cluster: &str, step: DeletionStep, now: Instant) -> bool {
        let mut waits = self.0.lock();
        let wait = waits.entry(cluster.to_owned()).or_insert(Wait {
            step,
            since: now,
            reported: None,
        });
        if wait.step != step {
            (wait.step, wait.since) = (step, now);
        }
        let patience = match step {
            DeletionStep::AwaitBindings => LONG,
            _ => LONGER,
        };
        let is_long = now.duration_since(wait.since) >= patience;
        let is_new = wait
            .reported
            .is_none_or(|reported| reported < wait.since || now.duration_since(reported) >= AGAIN);
        is_long && is_new
    }

    /// Records that the event about a cluster's wait was published.
    pub(super) fn has_reported(&self, cluster: &str, now: Instant) {
        let mut waits = self.0.lock();
        if let Some(wait) = waits.get_mut(cluster) {
            wait.reported = Some(now);
        }
    }

    /// Forgets a cluster. Call it when the cluster has gone.
    pub(super) fn forget(&self, cluster: &str) {
        let mut waits = self.0.lock();
        waits.remove(cluster);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_waits_for_bindings_says_which() {
        let spec = |name: &str, suspended: bool| {
            let binding = serde_json::from_value(json!({"spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
                "suspension": {"scheduling": suspended},
            }}));
            Arc::<AnyBinding>::new(binding.unwrap())
        };
        let specs = [
            spec("a", true),
            spec("b", false),
            spec("c", false),
            spec("d", false),
        ];
        let note = waits_for_bindings(&specs).unwrap();
        let named = "Deployment shop/a (its scheduling is suspended), Deployment shop/b, Deployment shop/c and 1 more.";
        assert!(note.contains(named), "{note}");
        let note = waits_for_bindings(&specs[..3]).unwrap();
        assert!(note.contains("Deployment shop/c. Their"), "{note}");
        assert_eq!(waits_for_bindings(&[]), None);
    }

    #[test]
    fn each_long_wait_is_reported_once_in_half_an_hour_whatever_is_left_meanwhile() {
        use DeletionStep::{AwaitBindings, AwaitNamespace, DeleteWorks, Release};
        let (reported, begun) = (DeletionWaits::default(), Instant::now());
        let mut tells = Vec::new();
        for seconds in (0..3_600).step_by(2) {
            let step = match seconds {
                0..100 => DeleteWorks,
                100..300 => AwaitNamespace,
                300..3_500 => AwaitBindings,
                _ => Release,
            };
            let now = begun + Duration::from_secs(seconds);
            if reported.is_due("m1", step, now) && step != Release {
                assert!(reported.is_due("m1", step, now), "until it is reported");
                reported.has_reported("m1", now);
                tells.push(seconds);
            }
            assert!(step == Release || !reported.is_due("m1", step, now), "once");
        }
        assert_eq!(tells, [100 + 120, 300 + 30, 300 + 30 + 1_800]);
        reported.forget("m1");
        assert!(reported.0.lock().is_empty());
    }
}
