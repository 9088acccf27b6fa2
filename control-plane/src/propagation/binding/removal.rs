//! Decides what becomes of an object in a member when its Work goes.
//!
//! A move is not a deletion (safety contract 15). A container would take with it what others have
//! in it, and storage the data; both stay where they are until their template is deleted. Every
//! other copy that moved is removed, whatever `preserveResourcesOnDeletion` says: that field is
//! about deletion, and a copy that stayed behind a move would run twice with nobody in charge.

use muster_shared::api::policy::{ClusterAffinity, Placement};

use crate::fleet::works::Role;
use crate::scheduler::core::affinity::affinities;

/// Reason why a Work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The workload was placed in other clusters.
    Moved,
    /// Somebody edited the policy so that it does not select the cluster any more, or the last
    /// workload that needed the object there is gone.
    Deselected,
    /// The binding is deleted although its template is there: a policy or the last object that
    /// needed it is gone.
    Unbound,
    /// The template is deleted.
    TemplateDeleted,
}

impl Reason {
    /// Returns the reason why a binding that stays has no copy in a cluster any more. `allowed`
    /// says of each placement that brought it there, its own or those of the workloads that it
    /// follows, whether that [`allows`] the cluster. A person took the cluster out of one that does
    /// not; without any, the last workload that needed the object there is gone.
    pub fn of(allowed: impl IntoIterator<Item = bool>) -> Self {
        let mut allowed = allowed.into_iter().peekable();
        let has_any = allowed.peek().is_some();
        // What one of them released there needs it, whatever the others allow.
        if has_any && allowed.all(|it| it) {
            Self::Moved
        } else {
            Self::Deselected
        }
    }
}

/// Returns whether a placement allows a cluster, in whichever of its affinity groups. `selects`
/// says whether an affinity selects the cluster.
pub fn allows(placement: &Placement, selects: impl Fn(&ClusterAffinity) -> bool) -> bool {
    let mut affinities = affinities(placement).peekable();
    affinities.peek().is_none() || affinities.any(selects)
}

/// Returns whether an object stays in the member when its Work goes. `preserves` is
/// `preserveResourcesOnDeletion` of the policy.
pub fn stays(role: Role, reason: Reason, preserves: bool) -> bool {
    match (role, reason) {
        (Role::Container | Role::Storage, Reason::Moved | Reason::Deselected | Reason::Unbound) => {
            true
        }
        (Role::Plain, Reason::Moved) => false,
        _ => preserves,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::core::affinity::allows_name;

    #[test]
    fn a_move_deletes_neither_containers_nor_storage_and_leaves_no_other_copy_behind() {
        use Reason::{Deselected, Moved, TemplateDeleted, Unbound};
        use Role::{Container, Plain, Storage};
        for (role, reason, without, preserved) in [
            (Container, Moved, true, true),
            (Container, Deselected, true, true),
            (Container, Unbound, true, true),
            (Container, TemplateDeleted, false, true),
            (Storage, Moved, true, true),
            (Storage, Deselected, true, true),
            (Storage, Unbound, true, true),
            (Storage, TemplateDeleted, false, true),
            (Plain, Moved, false, false),
            (Plain, Deselected, false, true),
            (Plain, Unbound, false, true),
            (Plain, TemplateDeleted, false, true),
        ] {
            let got = [false, true].map(|preserves| stays(role, reason, preserves));
            assert_eq!(got, [without, preserved], "{role:?} {reason:?}");
        }
    }

    #[test]
    fn a_cluster_that_no_group_of_the_placement_names_was_deselected() {
        use Reason::{Deselected, Moved};
        let one = |affinity: Value| json!({"clusterAffinity": affinity});
        let only = |name: &str| one(json!({"clusterNames": [name]}));
        let groups = |names: [&str; 2]| {
            let group = |name: &str| json!({"affinityName": name, "clusterNames": [name]});
            json!({"clusterAffinities": names.map(group)})
        };
        let labelled = one(json!({"labelSelector": {"matchLabels": {"tier": "a"}}}));
        let by_name = |it: &ClusterAffinity| allows_name(it, "m1");
        assert_eq!(Reason::of([]), Deselected);
        for (placement, expected) in [
            (json!({}), Moved),
            (only("m1"), Moved),
            (only("m2"), Deselected),
            (labelled, Moved),
            (one(json!({"exclude": ["m1"]})), Deselected),
            (groups(["m2", "m1"]), Moved),
            (groups(["m2", "m3"]), Deselected),
        ] {
            let read: Placement = serde_json::from_value(placement.clone()).unwrap();
            let allowed = allows(&read, by_name);
            assert_eq!(Reason::of([allowed]), expected, "{placement}");
        }
    }
}
