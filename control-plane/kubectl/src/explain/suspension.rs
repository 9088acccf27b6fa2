//! Reports a suspension, and who ordered it.

use kube::Client;
use muster_control_plane::fleet::attribution::{Attribution, order};
use muster_control_plane::fleet::claim::Claim;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::Suspension;
use muster_shared::check::listed;
use muster_shared::k8s::ObjectMeta;

/// Clusters that are named at most.
const MOST_NAMED: usize = 5;

/// Returns where the copies of a workload are left as they are, and by whose order as far as its
/// policy can be read; `None` if they are not.
pub(super) async fn describe(client: &Client, binding: &AnyBinding) -> Option<String> {
    let place = place(binding.spec.suspension.as_ref()?)?;
    let policy = policy(client, binding).await;
    Some(place + &policy.as_ref().map_or_else(String::new, author))
}

fn place(suspension: &Suspension) -> Option<String> {
    let what = "its copies are neither created nor changed";
    if suspension.dispatching == Some(true) {
        return Some(format!("{what} in any cluster"));
    }
    let named = &suspension.dispatching_on_clusters.as_ref()?.cluster_names;
    (!named.is_empty()).then(|| format!("{what} in {}", listed(named, MOST_NAMED)))
}

/// Reads the policy that places a workload.
async fn policy(client: &Client, binding: &AnyBinding) -> Option<ObjectMeta> {
    let policy = Claim::on(&binding.metadata)?.policy;
    let read = policy.api(client).get_metadata(policy.name()).await;
    Some(read.ok()?.metadata)
}

fn author(policy: &ObjectMeta) -> String {
    let order = Attribution::standing(policy, order::SUSPEND, order::UNSUSPEND, None);
    let path = ["spec", "suspension"];
    let order = order.or_else(|| Attribution::by_program(policy, order::SUSPEND, &path));
    order.map_or_else(String::new, |order| format!(": suspended {order}"))
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::ORDERED_BY;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_suspension_is_told_with_its_clusters() {
        let told = |value: Value| place(&serde_json::from_value(value).unwrap());
        for (suspension, expected) in [
            (json!({}), None),
            (json!({"scheduling": true}), None),
            (json!({"dispatchingOnClusters": {"clusterNames": []}}), None),
            (json!({"dispatching": true}), Some("in any cluster")),
            (
                json!({"dispatchingOnClusters": {"clusterNames": ["m1", "m2"]}}),
                Some("in m1, m2"),
            ),
        ] {
            let told = told(suspension.clone());
            let end = expected.map(|it| told.as_ref().is_some_and(|told| told.ends_with(it)));
            assert_eq!(end, expected.map(|_| true), "{suspension} {told:?}");
            assert_eq!(told.is_some(), expected.is_some(), "{suspension}");
        }
    }

    #[test]
    fn the_author_of_a_suspension_is_a_user_or_else_a_program_or_else_not_told() {
        let orders = json!([{"order": "suspend", "by": "alice", "reason": "an audit"}]);
        let managed = json!([{
            "manager": "argocd", "operation": "Update", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:spec": {"f:suspension": {}}},
        }]);
        for (metadata, expected) in [
            (
                json!({"annotations": {ORDERED_BY: orders.to_string()}, "managedFields": managed}),
                ": suspended by alice: an audit",
            ),
            (
                json!({"managedFields": managed}),
                ": suspended by somebody with argocd at 2026-01-01T00:00:00Z",
            ),
            (json!({}), ""),
        ] {
            assert_eq!(author(&serde_json::from_value(metadata).unwrap()), expected);
        }
    }

    #[test]
    fn what_an_annotation_says_controls_no_terminal() {
        // Whoever may write a policy in a namespace writes this, and an administrator reads it.
        let orders = json!([{
            "order": "suspend", "by": "alice", "reason": "\u{1b}[2J\u{1b}[Hall is well\nWELL: 5 of 5 clusters ready",
        }]);
        let metadata = json!({"annotations": {ORDERED_BY: orders.to_string()}});
        let told = author(&serde_json::from_value(metadata).unwrap());
        assert!(!told.contains(char::is_control), "{told:?}");
    }
}
