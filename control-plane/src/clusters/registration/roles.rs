//! Makes the roles of agents again that went with a namespace which somebody deleted: without them
//! no agent renews its lease, and all clusters of a fleet fall silent. The namespace of a cluster's
//! Works goes when its Cluster is deleted: an agent that registers it again needs them, too.
//!
//! Roles are made again only where a member was given them by `kubectl muster` or the chart, and
//! only in a namespace that is younger than that: whoever takes a single role away has a reason.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client;
use muster_shared::controller::Controller;
use muster_shared::k8s::{DynamicObject, ObjectMeta};
use muster_shared::names::{
    CLUSTER_NAMESPACE, cluster_of_execution_namespace, execution_namespace, is_reserved_namespace,
};
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use super::access;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::create_missing;

/// Time after which a namespace is read again that is not there yet.
const MISSING: Duration = Duration::from_secs(5);
/// Time after which roles are created again that the control plane was forbidden to create.
const FORBIDDEN: Duration = Duration::from_mins(10);

/// A cluster, and the namespace in which the roles of its agent may be missing.
type Key = (String, String);

/// Starts the controller. It reconciles a cluster that appears, and those of which a namespace was
/// deleted.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    Controller::new(fleet, "roles of agents")
        .watches(&fleet.clusters, |_, change| match change {
            Change::Applied { old: None, new } => {
                let name = new.name_any();
                let own = execution_namespace(&name);
                vec![(name.clone(), CLUSTER_NAMESPACE.to_owned()), (name, own)]
            }
            _ => Vec::new(),
        })
        .watches(&fleet.namespaces, |fleet, change| match change {
            Change::Deleted { old } => keys(fleet, &old.name_any()),
            Change::Applied { .. } => Vec::new(),
        })
        .run(tasks, 1, (), |fleet, (), (cluster, namespace)| async move {
            check(&fleet, &cluster, &namespace).await
        });
}

/// Returns the clusters whose agents may have lost roles with a namespace, each with its name.
fn keys(fleet: &Fleet, namespace: &str) -> Vec<Key> {
    let clusters = match cluster_of_execution_namespace(namespace) {
        Some(cluster) => vec![cluster.to_owned()],
        None if is_reserved_namespace(namespace) => fleet.cluster_names(),
        None => Vec::new(),
    };
    let keys = clusters.into_iter();
    keys.map(|cluster| (cluster, namespace.to_owned()))
        .collect()
}

async fn check(fleet: &Fleet, name: &str, namespace: &str) -> anyhow::Result<Next> {
    let Some(cluster) = fleet.clusters.get(None, name) else {
        return Ok(Next::Done);
    };
    let is_sound =
        namespace == CLUSTER_NAMESPACE && fleet.leases.get(Some(namespace), name).is_some();
    let is_leaving = cluster.metadata.deletion_timestamp.is_some();
    if is_sound || is_leaving || cluster.spec.sync_mode == ClusterSyncMode::Push {
        return Ok(Next::Done);
    }
    let found = fleet.namespaces.get(None, namespace);
    let Some(found) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
        return Ok(Next::After(MISSING));
    };
    let created = &found.metadata.creation_timestamp;
    // As a rule a member is given its namespace and its roles before it joins: nothing is asked of
    // the API then.
    if namespace == execution_namespace(name) && *created < cluster.metadata.creation_timestamp {
        return Ok(Next::Done);
    }
    let all = access::of_member(name)?;
    let given = match given(fleet, &all).await {
        // A control plane that may not read the binding makes no roles.
        Err(error) if error.is_lasting() => None,
        given => given?,
    };
    if given.is_none_or(|given| *created <= given.creation_timestamp) {
        return Ok(Next::Done);
    }
    let roles = all.iter().filter(|it| {
        it.namespace().as_deref() == Some(namespace) && access::kind(it).starts_with("Role")
    });
    let mut made = 0;
    for role in roles {
        let api = access::api(&fleet.client, role);
        let answer = create_missing(&api, role).await;
        match answer.map_err(ApiError::of("create", &access::title(role))) {
            Ok(is_made) => made += usize::from(is_made),
            Err(error) if error.is_lasting() => {
                report_missing(fleet, &cluster, namespace, &error);
                return Ok(Next::After(FORBIDDEN));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if made > 0 {
        let note = format!(
            "namespace {namespace:?} was deleted and made again: the roles of the cluster's agent in it were, too"
        );
        tracing::warn!(cluster = name, "{note}");
        fleet.events.warn(&*cluster, "AgentRolesMadeAgain", note);
    }
    Ok(Next::Done)
}

fn report_missing(fleet: &Fleet, cluster: &Cluster, namespace: &str, error: &ApiError) {
    let name = cluster.name_any();
    let note = format!(
        "the roles of the cluster's agent in namespace {namespace:?} are gone with the namespace: {error}. `kubectl muster token create --cluster-name {name}` makes them again"
    );
    tracing::warn!(cluster = name, "{note}");
    fleet.events.warn(cluster, "AgentRolesMissing", note);
}

/// Returns the metadata of the binding that gives the agent of a member its rights beyond
/// namespaces; `None` if there is none, or it was taken away.
async fn given(fleet: &Fleet, all: &[DynamicObject]) -> Result<Option<ObjectMeta>, ApiError> {
    // The first is the agent's own; the others concern certificates and tokens.
    let binding = all
        .iter()
        .find(|it| access::kind(it) == "ClusterRoleBinding");
    let Some(binding) = binding else {
        return Ok(None);
    };
    let api = access::api(&fleet.client, binding);
    let found = client::get_opt(&api, &binding.name_any()).await;
    let found = found.map_err(ApiError::of("read", &access::title(binding)))?;
    Ok(found.map(|it| it.metadata))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{Bench, cluster, pass};

    const ROLE: &str = "muster:agent:m1";

    fn namespace(created: &str) -> Value {
        json!({"metadata": {"name": CLUSTER_NAMESPACE, "creationTimestamp": created}})
    }

    fn dated(metadata: &Value, created: &str) -> Value {
        let mut object = json!({ "metadata": metadata });
        object["metadata"]["creationTimestamp"] = json!(created);
        object
    }

    fn member(sync_mode: &str) -> Value {
        let mut member = cluster("m1");
        member["spec"]["syncMode"] = json!(sync_mode);
        member
    }

    /// Returns a fleet of a member that was given its rights on the second of the month.
    async fn registered(sync_mode: &str) -> Bench {
        let lease = json!({"metadata": {"namespace": CLUSTER_NAMESPACE, "name": "m1"}});
        let mut bench = Bench::new([
            ("clusters", member(sync_mode)),
            ("leases", lease),
            ("namespaces", namespace("2026-01-01T00:00:00Z")),
            (
                "clusterrolebindings",
                dated(&json!({ "name": ROLE }), "2026-01-02T00:00:00Z"),
            ),
        ]);
        bench.run(start, 10).await;
        bench
    }

    /// Deletes the lease of the member, and shows its Cluster anew, as a start does.
    async fn reconcile_again(bench: &Bench, sync_mode: &str) {
        bench.api.delete("leases", CLUSTER_NAMESPACE, "m1");
        bench.api.delete("clusters", "", "m1");
        pass(1).await;
        bench.api.put("clusters", member(sync_mode));
        pass(60).await;
    }

    fn roles(bench: &Bench) -> [bool; 2] {
        let found = |plural| bench.api.object(plural, CLUSTER_NAMESPACE, ROLE).is_some();
        ["roles", "rolebindings"].map(found)
    }

    #[tokio::test(start_paused = true)]
    async fn roles_that_went_with_their_namespace_are_made_again_once_it_is_there_again() {
        let bench = registered("Pull").await;
        bench.api.delete("leases", CLUSTER_NAMESPACE, "m1");
        bench.api.delete("namespaces", "", CLUSTER_NAMESPACE);
        pass(60).await;
        assert_eq!(roles(&bench), [false, false]);
        let again = namespace("2026-01-03T00:00:00Z");
        bench.api.put("namespaces", again);
        pass(60).await;
        assert_eq!(roles(&bench), [true, true]);
        let reported = [("m1".to_owned(), "AgentRolesMadeAgain".to_owned())];
        assert_eq!(bench.api.reported().await, reported);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_starts_later_makes_them_again_as_well() {
        let bench = registered("Pull").await;
        let again = namespace("2026-01-03T00:00:00Z");
        bench.api.put("namespaces", again);
        pass(1).await;
        reconcile_again(&bench, "Pull").await;
        assert_eq!(roles(&bench), [true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_was_deleted_and_joined_again_gets_the_roles_for_its_works() {
        for (joined, expected) in [
            ("2026-01-03T00:00:00Z", true),
            ("2026-01-05T00:00:00Z", false),
        ] {
            let bench = registered("Pull").await;
            bench.api.delete("clusters", "", "m1");
            let works = execution_namespace("m1");
            let metadata = json!({ "name": works });
            let made = dated(&metadata, "2026-01-04T00:00:00Z");
            bench.api.put("namespaces", made);
            pass(1).await;
            let mut again = member("Pull");
            again["metadata"]["creationTimestamp"] = json!(joined);
            bench.api.put("clusters", again);
            pass(60).await;
            let role = bench.api.object("rolebindings", &works, "muster:agent");
            assert_eq!(role.is_some(), expected, "joined at {joined}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn roles_that_somebody_took_away_and_those_of_no_agent_are_not_made() {
        let bench = registered("Pull").await;
        reconcile_again(&bench, "Pull").await;
        assert_eq!(roles(&bench), [false, false], "the namespace is the former");
        let again = namespace("2026-01-03T00:00:00Z");
        bench.api.put("namespaces", again);
        reconcile_again(&bench, "Push").await;
        assert_eq!(roles(&bench), [false, false], "it has no agent");
        bench.api.delete("clusterrolebindings", "", ROLE);
        reconcile_again(&bench, "Pull").await;
        assert_eq!(roles(&bench), [false, false], "all its rights were taken");
    }

    #[tokio::test(start_paused = true)]
    async fn that_roles_may_not_be_created_is_reported_with_what_to_do() {
        let bench = registered("Pull").await;
        let again = namespace("2026-01-03T00:00:00Z");
        bench.api.put("namespaces", again);
        bench.api.refuse(Method::POST, "/roles", 403, ROLE);
        reconcile_again(&bench, "Pull").await;
        let events = bench.api.events().await;
        let [(about, reason, note)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((&**about, &**reason), ("m1", "AgentRolesMissing"));
        assert!(note.contains("token create --cluster-name m1"), "{note}");
    }
}
