//! Namespaces of the fleet API in every member.
//!
//! Workloads need them there before they arrive, so they go to all clusters without policy or binding: one Work per cluster, owned by
//! the Namespace, so that garbage collection takes it with it (Karmada: `pkg/controllers/namespace`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PostParams};
use kube::{Resource, ResourceExt};
use muster_shared::api::work::Work;
use muster_shared::interpreter::prune;
use muster_shared::names::{self, annotation, label};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;

use super::compare;
use super::kept::patch_params;
use super::render::Rendered;
use crate::detector::scope::Scope;
use crate::fleet::Fleet;

/// How long to wait for the execution namespace of a cluster that is just joining.
const JOINING: Duration = Duration::from_secs(1);

/// Why a namespace is not everywhere.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("compose the work of namespace {namespace:?}: {source}")]
    Compose {
        namespace: String,
        source: serde_json::Error,
    },
    #[error("write work {work}: {source}")]
    Api {
        work: String,
        source: Box<kube::Error>,
    },
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    let scope = match Scope::new("", &settings.skipped_propagating_namespaces.0) {
        Ok(scope) => Arc::new(scope),
        Err(error) => {
            // A supervised task that ends, ends the process with its name.
            tasks.spawn("namespaces", async move {
                tracing::error!(%error, "cannot start the namespace controller");
            });
            return;
        }
    };
    let queue: Queue<String> = Queue::new("namespaces");
    let changed = queue.clone();
    fleet.namespaces.on_change(move |change| {
        if let Change::Applied { new, .. } = change {
            changed.add(new.name_any());
        }
    });
    // A new cluster needs all of them. `fleet` is not captured: it would keep itself alive.
    let (arrived, namespaces) = (queue.clone(), fleet.namespaces.clone());
    fleet.clusters.on_change(move |change| {
        if matches!(change, Change::Applied { old: None, .. }) {
            namespaces
                .list()
                .iter()
                .for_each(|namespace| arrived.add(namespace.name_any()));
        }
    });
    let lost = queue.clone();
    fleet.works.on_change(move |change| {
        if let Change::Deleted { old } = change
            && let Some(owner) = old
                .owner_references()
                .iter()
                .find(|owner| owner.kind == "Namespace")
        {
            lost.add(owner.name.clone());
        }
    });
    fleet.work(
        tasks,
        "namespace",
        queue,
        settings.concurrent_namespace_syncs,
        move |fleet, name: String| {
            let scope = Arc::clone(&scope);
            async move {
                match fleet.namespaces.get(None, &name) {
                    Some(namespace) if goes_everywhere(&namespace, &scope) => {
                        spread(&fleet, &namespace).await
                    }
                    _ => Ok(Next::Done),
                }
            }
        },
    );
}

/// Whether a namespace is propagated by itself. `default` is in every cluster anyway.
fn goes_everywhere(namespace: &Namespace, scope: &Scope) -> bool {
    let name = namespace.name_any();
    let kept_back = namespace
        .labels()
        .get(label::SKIP_AUTO_PROPAGATION)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    namespace.meta().deletion_timestamp.is_none()
        && name != "default"
        && !kept_back
        && scope.admits_namespace(&name)
}

async fn spread(fleet: &Fleet, namespace: &Namespace) -> Result<Next, Error> {
    let clusters = fleet.clusters.list();
    let here = clusters
        .iter()
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let writes = here.map(|cluster| ensure(fleet, namespace, cluster.name_any()));
    let everywhere = join_all(writes)
        .await
        .into_iter()
        .collect::<Result<Vec<bool>, _>>()?;
    Ok(if everywhere.contains(&false) {
        Next::After(JOINING)
    } else {
        Next::Done
    })
}

/// Whether the cluster has the Work now; a cluster that is just joining has no execution namespace yet.
async fn ensure(fleet: &Fleet, namespace: &Namespace, cluster: String) -> Result<bool, Error> {
    let compose = |source| Error::Compose {
        namespace: namespace.name_any(),
        source,
    };
    let rendered = render(namespace, &cluster).map_err(compose)?;
    let api: Api<Work> = Api::namespaced(fleet.client.clone(), &rendered.namespace);
    let outcome = match fleet.works.get(Some(&rendered.namespace), &rendered.name) {
        None => {
            let mut work = compare::create(&rendered);
            work["metadata"]["ownerReferences"] = json!([namespace.controller_owner_ref(&())]);
            let work = serde_json::from_value(work).map_err(compose)?;
            api.create(&PostParams::default(), &work).await.map(drop)
        }
        Some(work) if work.metadata.deletion_timestamp.is_some() => Ok(()),
        Some(work) => match compare::patch(&work, &rendered) {
            Some(patch) => api
                .patch(&rendered.name, &patch_params(), &Patch::Merge(&patch))
                .await
                .map(drop),
            None => Ok(()),
        },
    };
    match outcome {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(source) => Err(Error::Api {
            work: format!("{}/{}", rendered.namespace, rendered.name),
            source: Box::new(source),
        }),
    }
}

/// The Work of a namespace for one cluster. It says nothing about conflicts: a namespace that the member has already is not taken over.
fn render(namespace: &Namespace, cluster: &str) -> Result<Rendered, serde_json::Error> {
    let mut manifest = serde_json::to_value(namespace)?;
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Namespace");
    prune(&mut manifest);
    let work = (
        names::execution_namespace(cluster),
        names::work("Namespace", &namespace.name_any(), ""),
    );
    let mut labels = namespace.labels().clone();
    labels.insert(label::MANAGED.to_owned(), "true".to_owned());
    let mut annotations = namespace.annotations().clone();
    annotations.insert(annotation::WORK_NAMESPACE.to_owned(), work.0.clone());
    annotations.insert(annotation::WORK_NAME.to_owned(), work.1.clone());
    annotations.extend(
        namespace
            .uid()
            .map(|uid| (annotation::TEMPLATE_UID.to_owned(), uid)),
    );
    manifest["metadata"]["labels"] = json!(labels);
    manifest["metadata"]["annotations"] = json!(annotations);
    Ok(Rendered {
        namespace: work.0,
        name: work.1,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        manifest,
        suspend_dispatching: false,
        preserve_resources_on_deletion: false,
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::names::finalizer;

    use super::*;

    fn namespace(metadata: &serde_json::Value) -> Namespace {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn which_namespaces_go_everywhere() {
        let scope = Scope::new("", &["kube-.*".to_owned()]).unwrap();
        for (metadata, goes) in [
            (json!({ "name": "shop" }), true),
            (json!({ "name": "default" }), false),
            (json!({ "name": "kube-system" }), false),
            (json!({ "name": "karmada-es-member1" }), false),
            (json!({ "name": "karmada-cluster" }), false),
            (
                json!({ "name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z" }),
                false,
            ),
            (
                json!({ "name": "shop", "labels": { "namespace.karmada.io/skip-auto-propagation": "True" } }),
                false,
            ),
            (
                json!({ "name": "shop", "labels": { "namespace.karmada.io/skip-auto-propagation": "no" } }),
                true,
            ),
        ] {
            assert_eq!(
                goes_everywhere(&namespace(&metadata), &scope),
                goes,
                "{metadata}"
            );
        }
    }

    #[test]
    fn the_work_of_a_namespace_names_itself_in_the_manifest() {
        let work = render(
            &namespace(&json!({ "name": "shop", "uid": "u", "labels": { "team": "a" } })),
            "member1",
        )
        .unwrap();
        assert_eq!(work.namespace, "karmada-es-member1");
        let manifest = &work.spec(None)["workload"]["manifests"][0];
        assert_eq!(
            manifest["metadata"]["labels"],
            json!({ "team": "a", "karmada.io/managed": "true" })
        );
        assert_eq!(
            manifest["metadata"]["annotations"]["work.karmada.io/name"],
            json!(work.name)
        );
        assert_eq!(manifest["metadata"].get("uid"), None);
    }

    #[test]
    fn every_work_has_the_agents_finalizer() {
        let work = render(&namespace(&json!({ "name": "shop" })), "member1").unwrap();
        assert_eq!(
            compare::create(&work)["metadata"]["finalizers"],
            json!([finalizer::WORK])
        );
    }
}
