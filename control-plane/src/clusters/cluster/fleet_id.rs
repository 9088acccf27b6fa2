//! Publishes the id of the fleet and its addresses upon the namespace `karmada-cluster`, where
//! agents read them (see [`muster_shared::fleet_id`]).

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::controller::Controller;
use muster_shared::fleet_id::SYSTEM_NAMESPACE;
use muster_shared::fleet_servers::{self, FleetServer};
use muster_shared::k8s::Namespace;
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::annotation::{FLEET_ID, FLEET_SERVERS};
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::{Written, merge};

/// Starts the publication: when one of the two namespaces changes, and only then.
pub fn start(fleet: &std::sync::Arc<Fleet>, tasks: &mut Tasks) {
    let following = Controller::new(fleet, "fleet id").watches(&fleet.namespaces, |_, change| {
        let name = change.object().name_any();
        let ours = [CLUSTER_NAMESPACE, SYSTEM_NAMESPACE];
        ours.contains(&name.as_str()).then_some(())
    });
    following.run(tasks, 1, (), |fleet, (), ()| async move {
        let get = |name| fleet.namespaces.get(None, name);
        let (Some(cluster), Some(system)) = (get(CLUSTER_NAMESPACE), get(SYSTEM_NAMESPACE)) else {
            return Ok(Next::Done);
        };
        let servers = &fleet.settings.fleet_servers.0;
        let Some(patch) = publication(&cluster, &system, servers) else {
            return Ok(Next::Done);
        };
        let api: Api<Namespace> = Api::all(fleet.client.clone());
        let answer = merge(&api, CLUSTER_NAMESPACE, &patch).await;
        let object = format!("namespace {CLUSTER_NAMESPACE:?}");
        let step = "publish the id of the fleet upon";
        let written = Written::of(answer).map_err(ApiError::of(step, &object));
        written.map(|written| {
            if matches!(written, Written::Done(_)) {
                tracing::info!(
                    id = system.uid(),
                    "published the id of the fleet, or its addresses"
                );
            }
            // The creation of a namespace that is gone has this read again.
            written.next()
        })
    });
}

/// Returns the merge patch that publishes the id, and the addresses if the settings have some. An
/// id that is there stays: it may have come with a backup from another store, and the objects in
/// the members bear it.
fn publication(cluster: &Namespace, system: &Namespace, servers: &[FleetServer]) -> Option<Value> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let published = |key| cluster.annotations().get(key);
    let mut missing = BTreeMap::new();
    if published(FLEET_ID).is_none_or(|id| id.trim().is_empty())
        && let Some(id) = system.uid().filter(|uid| !uid.is_empty())
    {
        missing.insert(FLEET_ID, id);
    }
    let list = fleet_servers::write(servers);
    if !servers.is_empty() && published(FLEET_SERVERS) != Some(&list) {
        missing.insert(FLEET_SERVERS, list);
    }
    (!missing.is_empty()).then(|| {
        json!({"metadata": {
            "resourceVersion": cluster.metadata.resource_version,
            "annotations": missing,
        }})
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::fleet::testing::Bench;

    #[test]
    fn an_id_is_published_where_there_is_none() {
        let namespace = |metadata: Value| -> Namespace {
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let system = namespace(json!({"uid": "s"}));
        let patch = json!({"metadata": {"resourceVersion": "3", "annotations": {"fleet.muster.io/id": "s"}}});
        for (cluster, system, expected) in [
            (json!({}), &system, Some(&patch)),
            (
                json!({"annotations": {FLEET_ID: ""}}),
                &system,
                Some(&patch),
            ),
            (json!({"annotations": {FLEET_ID: "former"}}), &system, None),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                &system,
                None,
            ),
            (json!({}), &namespace(json!({})), None),
        ] {
            let mut found = namespace(cluster);
            found.metadata.resource_version = Some("3".into());
            assert_eq!(
                publication(&found, system, &[]).as_ref(),
                expected,
                "{found:?}"
            );
        }
    }

    #[test]
    fn addresses_are_published_where_the_settings_have_others_and_left_where_they_have_none() {
        let server = |address: &str| FleetServer {
            server: address.to_owned(),
            ..FleetServer::default()
        };
        let list = fleet_servers::write(&[server("https://a")]);
        for (there, servers, expected) in [
            (None, vec![server("https://a")], Some(&list)),
            (Some(&list), vec![server("https://a")], None),
            (Some(&list), vec![], None),
            (
                Some(&"garbled".to_owned()),
                vec![server("https://a")],
                Some(&list),
            ),
        ] {
            let mut found = Namespace::default();
            let known = [(FLEET_ID, "f".to_owned())].into_iter();
            let known = known.chain(there.map(|list| (FLEET_SERVERS, list.clone())));
            let known = known.map(|(key, value)| (key.to_owned(), value));
            found.metadata.annotations = Some(known.collect());
            let patch = publication(&found, &Namespace::default(), &servers);
            let written = patch.map(|it| it["metadata"]["annotations"].clone());
            let expected = expected.map(|list| json!({FLEET_SERVERS: list}));
            assert_eq!(written, expected, "{there:?} {servers:?}");
        }
    }

    /// Returns how often a fleet writes its id within a while, when the write is refused so.
    async fn attempts(refused: Option<u16>) -> usize {
        let namespace = |name: &str, uid: &str| json!({"metadata": {"name": name, "uid": uid}});
        let mut bench = Bench::new([
            ("namespaces", namespace(CLUSTER_NAMESPACE, "c")),
            ("namespaces", namespace(SYSTEM_NAMESPACE, "s")),
        ]);
        if let Some(code) = refused {
            let path = "/karmada-cluster";
            bench
                .api
                .refuse(Method::PATCH, path, code, CLUSTER_NAMESPACE);
        }
        bench.run(start, 10).await;
        bench.api.writes().len()
    }

    #[tokio::test(start_paused = true)]
    async fn the_publication_is_tried_again_unless_the_namespace_is_gone() {
        assert_eq!(attempts(None).await, 1);
        assert_eq!(attempts(Some(404)).await, 1);
        for code in [409, 403] {
            let count = attempts(Some(code)).await;
            assert!(
                (2..100).contains(&count),
                "{code}, ever more slowly: {count}"
            );
        }
    }
}
