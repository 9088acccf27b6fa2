//! Lookups that a lower part makes and a higher one answers, once it has registered itself: how
//! override policies change a workload in a cluster, and whether a workload needs an object.

use std::sync::OnceLock;

use muster_shared::api::binding::ResourceBindingSpec;

use super::template::{Template, TemplateKey};

/// Replicas of a workload in a cluster, as override policies change them.
#[derive(Clone, Copy, Debug)]
pub struct Overridden {
    /// Replicas that its template asks for.
    pub asked: Option<i64>,
    /// Replicas that they ask for.
    pub replicas: Option<i64>,
    /// Whether the members decide on the number of replicas, as the label of the object there says.
    pub members_scale: bool,
}

/// Reason for which override policies keep a workload from running in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One of them cannot be applied, so that no Work can be made.
    #[error("{0}")]
    Fails(String),
    /// They leave a copy no replicas.
    #[error("an override policy gives it no replicas there")]
    Empties,
}

/// Returns the replicas of a workload in a cluster, as override policies change them, if there are
/// any for it. The error says why no Work could be made.
type Override =
    dyn Fn(&ResourceBindingSpec, &str) -> Result<Option<Overridden>, String> + Send + Sync;

/// Lookup for those who choose clusters and read what runs there, which is answered from the
/// override policies.
#[derive(Default)]
pub struct OverrideLookup(OnceLock<Box<Override>>);

impl OverrideLookup {
    /// Registers who answers from now on; only the first counts.
    pub fn answer(
        &self,
        overrides: impl Fn(&ResourceBindingSpec, &str) -> Result<Option<Overridden>, String>
        + Send
        + Sync
        + 'static,
    ) {
        _ = self.0.set(Box::new(overrides));
    }

    /// Returns why a workload could not run in a cluster as far as override policies say; `None`
    /// where it could. Of policies that fail nothing is said where another program makes the Works.
    pub fn refuse(&self, spec: &ResourceBindingSpec, cluster: &str) -> Option<Refusal> {
        match self.0.get()?(spec, cluster) {
            Err(why) => Some(Refusal::Fails(why)),
            Ok(Some(it)) if it.asked > Some(0) && it.replicas == Some(0) => Some(Refusal::Empties),
            Ok(_) => None,
        }
    }

    /// Returns how many replicas a copy has to run at least, of its share.
    pub fn least(&self, spec: &ResourceBindingSpec, cluster: &str, share: i32) -> i32 {
        // A copy that runs nothing takes no other's place.
        share.min(self.given(spec, cluster, share).max(1))
    }

    /// Returns how many replicas override policies leave a copy of its share: one, where the
    /// members decide on the number.
    pub fn given(&self, spec: &ResourceBindingSpec, cluster: &str, share: i32) -> i32 {
        let Some(Ok(Some(it))) = self.0.get().map(|overrides| overrides(spec, cluster)) else {
            return share;
        };
        let replicas = it.replicas.filter(|_| it.replicas != it.asked);
        let replicas = replicas.and_then(|it| i32::try_from(it).ok());
        let given = if it.members_scale {
            1
        } else {
            replicas.unwrap_or(share)
        };
        share.min(given.max(0))
    }
}

/// Dependencies of workloads, as their controller knows them, for those who remove objects.
pub trait Dependencies: Send + Sync {
    /// Returns whether a workload needs a template.
    fn has(&self, key: &TemplateKey, template: &Template) -> bool;

    /// Returns whether it is not known yet of a workload in a namespace what it needs.
    fn is_open(&self, namespace: &str) -> bool;
}
