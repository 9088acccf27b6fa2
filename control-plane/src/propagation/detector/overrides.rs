//! Override policies that a policy wants to exist before it propagates anything
//! (`spec.dependentOverrides`).

use std::sync::Arc;

use muster_shared::watch::Change;

use super::controller::Detector;
use crate::fleet::policy::Policy;

/// Reconciles the policies that wait for an override policy when it appears.
pub(super) fn follow(detector: &Arc<Detector>) {
    let waiting = Arc::clone(detector);
    detector.fleet.override_policies.on_change(move |change| {
        if let Change::Applied { old: None, new } = change {
            let namespace = new.metadata.namespace.as_deref();
            let name = new.metadata.name.as_deref().unwrap_or_default();
            for policy in waiting.fleet.policies.of(namespace).iter_of(namespace) {
                waiting.revisit_dependent(&Policy(policy), name);
            }
        }
    });
}

impl Detector {
    fn revisit_dependent(&self, policy: &Policy, name: &str) {
        if policy
            .spec()
            .dependent_overrides
            .iter()
            .any(|it| it == name)
        {
            self.policies.add(policy.key());
        }
    }
}
