//! Decides whether a policy takes a template over from another one.

use crate::fleet::policy::Policy;

/// Returns whether `candidate`, which selects the template by name and may preempt, takes it over
/// from `owner`.
///
/// A namespaced policy always beats a cluster-wide one, and never the other way round. Among equals
/// the explicit priority must be strictly greater (Karmada: `pkg/detector/preemption.go`).
pub fn takes_over(candidate: &Policy, owner: &Policy) -> bool {
    match (candidate, owner) {
        (Policy::Namespaced(_), Policy::Cluster(_)) => true,
        (Policy::Cluster(_), Policy::Namespaced(_)) => false,
        (Policy::Namespaced(_), Policy::Namespaced(_))
        | (Policy::Cluster(_), Policy::Cluster(_)) => {
            candidate.key() != owner.key() && candidate.spec().priority() > owner.spec().priority()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::api::policy::{
        ClusterPropagationPolicy, PropagationPolicy, PropagationSpec,
    };

    use super::*;

    fn spec(priority: i32) -> PropagationSpec {
        PropagationSpec {
            priority: Some(priority),
            ..PropagationSpec::default()
        }
    }

    fn pp(name: &str, priority: i32) -> Policy {
        Policy::Namespaced(Arc::new(PropagationPolicy::new(name, spec(priority))))
    }

    fn cpp(name: &str, priority: i32) -> Policy {
        Policy::Cluster(Arc::new(ClusterPropagationPolicy::new(
            name,
            spec(priority),
        )))
    }

    #[test]
    fn who_takes_over_from_whom() {
        for (candidate, owner, expected) in [
            (pp("a", 2), pp("b", 1), true),
            (pp("a", 1), pp("b", 1), false),
            (pp("a", 0), cpp("b", 9), true),
            (cpp("a", 2), cpp("b", 1), true),
            (cpp("a", 1), cpp("b", 2), false),
            (cpp("a", 9), pp("b", 0), false),
        ] {
            assert_eq!(
                takes_over(&candidate, &owner),
                expected,
                "{} over {}",
                candidate.key(),
                owner.key()
            );
        }
    }
}
