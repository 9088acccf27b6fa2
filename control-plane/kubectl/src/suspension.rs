//! Reports a suspension, and who ordered it.

use std::collections::BTreeSet;

use futures::future::join_all;
use kube::Client;
use muster_control_plane::fleet::attribution::{Attribution, order, suspended_in};
use muster_control_plane::fleet::claim::Claim;
use muster_control_plane::fleet::policy::PolicyKey;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::Suspension;
use muster_shared::k8s::ObjectMeta;

use super::table::count;

/// Policies at most of which the orders are read.
const MOST_READ: usize = 3;

/// Returns where the copies of a workload are left as they are, and by whose order as far as its
/// policy can be read; `None` if they are not.
pub(super) async fn describe(client: &Client, binding: &AnyBinding) -> Option<String> {
    let place = place(binding.spec.suspension.as_ref()?)?;
    let policy = match Claim::on(&binding.metadata) {
        Some(claim) => read(client, &claim.policy).await,
        None => None,
    };
    Some(place + &policy.as_ref().map_or_else(String::new, author))
}

/// Returns the policies that place workloads.
pub(super) fn policies_of<'a>(
    bindings: impl IntoIterator<Item = &'a AnyBinding>,
) -> BTreeSet<PolicyKey> {
    let bindings = bindings.into_iter();
    let claims = bindings.filter_map(|it| Claim::on(&it.metadata));
    claims.map(|it| it.policy).collect()
}

/// Returns policies that suspend copies, each with who ordered that and why, as far as the first
/// few can be read.
pub(super) async fn authors(client: &Client, policies: BTreeSet<PolicyKey>) -> Vec<String> {
    let all = policies.len();
    let few = policies.into_iter().take(MOST_READ);
    let reported = few.map(|key| async move {
        let policy = read(client, &key).await?;
        Some(format!("{key}{}", author(&policy)))
    });
    let reported = join_all(reported).await.into_iter().flatten();
    let mut reported: Vec<String> = reported.collect();
    let others = all - reported.len();
    // A number alone says nothing.
    let more = (others > 0 && !reported.is_empty())
        .then(|| format!("and {}", count(others, "more policy")));
    reported.extend(more);
    reported
}

fn place(suspension: &Suspension) -> Option<String> {
    let clusters = suspension.dispatching_on_clusters.as_ref();
    suspended_in(suspension.dispatching, clusters)
}

/// Reads a policy.
async fn read(client: &Client, policy: &PolicyKey) -> Option<ObjectMeta> {
    let read = policy.api(client).get_metadata(policy.name()).await;
    Some(read.ok()?.metadata)
}

fn author(policy: &ObjectMeta) -> String {
    let order = Attribution::in_force(policy, order::SUSPEND, order::UNSUSPEND, None);
    let by_program = || {
        let path = ["spec", "suspension"];
        let by = Attribution::by_program(policy, order::SUSPEND, &path)?;
        // The time of its last write is not that of the order.
        Some(Attribution { at: None, ..by })
    };
    let order = order.or_else(by_program);
    order.map_or_else(String::new, |order| format!(": suspended {order}"))
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::{
        ORDERED_BY, PROPAGATION_POLICY_NAME, PROPAGATION_POLICY_NAMESPACE,
    };
    use muster_shared::names::label::PROPAGATION_POLICY_ID;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;

    #[tokio::test]
    async fn the_orders_of_the_first_few_policies_are_reported() {
        let orders = json!([{"order": "suspend", "by": "alice"}]).to_string();
        let client = fixtures::api(move |request| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            if name.starts_with("secret") {
                return (
                    403,
                    json!({"kind": "Status", "reason": "Forbidden", "code": 403}),
                );
            }
            (
                200,
                json!({"metadata": {"name": name, "annotations": {ORDERED_BY: orders}}}),
            )
        });
        let binding = |name: &str| {
            let metadata = json!({
                "annotations": {PROPAGATION_POLICY_NAMESPACE: "shop", PROPAGATION_POLICY_NAME: name},
                "labels": {PROPAGATION_POLICY_ID: name},
            });
            fixtures::binding("shop", name, &json!({ "metadata": metadata }))
        };
        let reported = async |names: &[&str]| {
            let bindings: Vec<_> = names.iter().map(|it| binding(it)).collect();
            authors(&client, policies_of(bindings.iter().map(AsRef::as_ref))).await
        };
        let by_alice = |name: &str| format!("PropagationPolicy shop/{name}: suspended by alice");
        assert_eq!(reported(&["b", "a", "b"]).await, ["a", "b"].map(by_alice));
        let many = reported(&["a", "b", "c", "d", "e"]).await;
        assert_eq!(many[2..], [by_alice("c"), "and 2 more policies".to_owned()]);
        // What may not be read is counted, and alone says nothing.
        let some = reported(&["a", "secret"]).await;
        assert_eq!(some, [by_alice("a"), "and 1 more policy".to_owned()]);
        let none = reported(&["secret1", "secret2", "secret3", "secret4"]).await;
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_suspension_is_reported_with_its_clusters() {
        let reported = |value: Value| place(&serde_json::from_value(value).unwrap());
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
            let reported = reported(suspension.clone());
            let end = expected.map(|it| {
                reported
                    .as_ref()
                    .is_some_and(|reported| reported.ends_with(it))
            });
            assert_eq!(end, expected.map(|_| true), "{suspension} {reported:?}");
            assert_eq!(reported.is_some(), expected.is_some(), "{suspension}");
        }
    }

    #[test]
    fn the_author_of_a_suspension_is_a_user_or_else_a_program_or_else_not_reported() {
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
                ": suspended by somebody with argocd",
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
        let reported = author(&serde_json::from_value(metadata).unwrap());
        assert!(!reported.contains(char::is_control), "{reported:?}");
    }
}
