//! Propagates the namespaces of the fleet API to every member.
//!
//! Workloads need their namespace, so namespaces go to all clusters without a policy or binding:
//! one Work per cluster, owned by the Namespace and garbage-collected with it (Karmada:
//! `pkg/controllers/namespace`).
//!
//! A namespace stays in a member in which `preserveResourcesOnDeletion` keeps something that lies
//! in it: whoever deletes the namespace in the fleet would delete that, too. So does the definition
//! of a custom resource. What has been kept may be there although its binding is gone, so that
//! the Work says so for as long as it exists, whether the namespace goes there by itself or by a
//! policy.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use muster_interpreter::prune;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::api::work::Work;
use muster_shared::client::{Head, is_conflict, is_gone};
use muster_shared::controller::Controller;
use muster_shared::names::{self, annotation, label};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;

use super::compare;
use super::definitions::definitions_of;
use super::render::Rendered;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::binding_index::Trait;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::memory::Backoff;
use crate::fleet::scope::Scope;
use crate::fleet::template::TemplateKey;
use crate::fleet::works::{CachedWork, binding_of, owner_id};
use crate::fleet::write::merge;

/// Key of the queue: a namespace in all clusters, or in one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    namespace: String,
    cluster: Option<String>,
}

impl Place {
    fn everywhere(namespace: String) -> Self {
        Self {
            namespace,
            cluster: None,
        }
    }

    /// Returns the places of a cluster in which namespaces are needed. Of a thousand clusters there
    /// are as many execution namespaces, which go nowhere: a key of each for each cluster would be
    /// a million.
    fn in_cluster(cluster: &str, namespaces: &[Arc<Namespace>], scope: &Scope) -> Vec<Self> {
        let needed = namespaces.iter().filter(|it| goes_everywhere(it, scope));
        let places = needed.map(|namespace| Self {
            namespace: namespace.name_any(),
            cluster: Some(cluster.to_owned()),
        });
        places.collect()
    }
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    let queue: Queue<Place> = Queue::new("namespaces");
    let workers = settings.concurrent_namespace_syncs;
    let shared = Arc::new(Shared {
        waits: Backoff::default(),
        queue: queue.clone(),
    });
    Controller::with(fleet, "namespace", &queue)
        .watches(&fleet.namespaces, |_, change| match change {
            Change::Applied { new, .. } => Some(Place::everywhere(new.name_any())),
            Change::Deleted { .. } => None,
        })
        .watches(&fleet.bindings, |_, change| preserved_anew(change))
        // A new cluster needs all of them.
        .watches(&fleet.clusters, |fleet, change| match change {
            Change::Applied { old: None, new } => {
                Place::in_cluster(&new.name_any(), &fleet.namespaces.list(), &fleet.scope)
            }
            _ => Vec::new(),
        })
        // A Work that went, or whose spec somebody changed; a change of our own may have been
        // decided on a state that the cache has left since.
        .watches(&fleet.works, |_, change| {
            let says_nothing_new = match change {
                Change::Applied { old, new } => old
                    .as_ref()
                    .is_none_or(|old| old.metadata.generation == new.metadata.generation),
                Change::Deleted { .. } => false,
            };
            if says_nothing_new {
                return None;
            }
            let old = change.object();
            let lies_in = old.metadata.namespace.as_deref();
            Some(Place {
                namespace: brought_by(old)?,
                cluster: lies_in
                    .and_then(names::cluster_of_execution_namespace)
                    .map(str::to_owned),
            })
        })
        .run(tasks, workers, shared, |fleet, shared, place| async move {
            reconcile(&fleet, &shared, place).await
        });
}

/// Returns the namespace that a Work brings to a member: one that goes to all clusters owns it.
/// What a policy placed before that names its binding alone.
fn brought_by(work: &CachedWork) -> Option<String> {
    let mut owners = work.metadata.owner_references.iter().flatten();
    if let Some(owner) = owners.find(|owner| owner.kind == "Namespace") {
        return Some(owner.name.clone());
    }
    let binding = binding_of(work).filter(|it| it.namespace.is_none())?;
    binding.name.strip_suffix("-namespace").map(str::to_owned)
}

/// Annotation of a Work (ours): something that needs its object stayed in the member when the fleet
/// let go of it, so that the object stays, too: a namespace of what lies in it, or what a workload
/// refers to. A policy that propagates the object says nothing about what others need.
const HOLDS: &str = "failover.muster.io/holds-preserved";

/// Returns whether something is preserved that needs the object of a Work.
pub(super) fn holds(work: &CachedWork) -> bool {
    work.metadata.annotation(HOLDS).is_some()
}

/// Returns whether something is preserved that needs the namespace or the definition of a Work, as
/// the API has it: what is deleted with either goes just before it, and a cache may not show what
/// that left behind.
pub(super) async fn held(fleet: &Fleet, lies_in: &str, name: &str) -> Result<bool, ApiError> {
    let api: Api<Head<Work>> = Api::namespaced(fleet.client.clone(), lies_in);
    let found = Head::get_opt(&api, name).await;
    let found = found.map_err(ApiError::of("read work", &name))?;
    Ok(found.is_some_and(|work| work.annotations().contains_key(HOLDS)))
}

/// Has the namespace of a binding stay in the members of these execution namespaces, and the
/// definition of its resource, if that is known and a custom one. Call it before the binding, or
/// one of its Works, is let go of: what is preserved would go with either.
pub(super) async fn keep(
    fleet: &Fleet,
    key: &BindingKey,
    resource: Option<&ObjectReference>,
    members: &[&str],
) -> Result<(), ApiError> {
    if members.is_empty() {
        return Ok(());
    }
    let namespace = key.namespace.iter();
    let namespace = namespace.map(|it| names::work("Namespace", it, ""));
    let definitions = resource.map(|it| definitions_of(fleet, it));
    let definitions = definitions.into_iter().flatten();
    let definitions = definitions.map(|it| names::work("CustomResourceDefinition", &it, ""));
    for work in namespace.chain(definitions).collect::<Vec<_>>() {
        keep_objects(fleet, &work, members.iter().copied()).await?;
    }
    Ok(())
}

/// Has the objects of the Works of a name stay in the members of these execution namespaces, when
/// the Works go there.
pub(in crate::propagation) async fn keep_objects(
    fleet: &Fleet,
    name: &str,
    members: impl Iterator<Item = &str>,
) -> Result<(), ApiError> {
    for lies_in in members {
        let known = fleet.works.get(Some(lies_in), name);
        if known.as_ref().is_some_and(|it| holds(it)) {
            continue;
        }
        // A Work that the cache does not show may be there all the same.
        let version = known.and_then(|it| it.metadata.resource_version.clone());
        let patch = json!({
            "metadata": { "resourceVersion": version, "annotations": { HOLDS: "true" } },
            "spec": { "preserveResourcesOnDeletion": true },
        });
        let api: Api<Work> = Api::namespaced(fleet.client.clone(), lies_in);
        match merge(&api, name, &patch).await {
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(ApiError::of("keep the objects of work", &name)(error)),
        }
    }
    Ok(())
}

/// Returns the namespaces in which a change of a binding preserves something that it did not
/// preserve before.
fn preserved_anew(change: &Change<AnyBinding>) -> Vec<Place> {
    let Change::Applied { old, new } = change else {
        return Vec::new();
    };
    let Some(namespace) = &new.metadata.namespace else {
        return Vec::new();
    };
    let was: Vec<_> = old.as_deref().into_iter().flat_map(preserved_in).collect();
    let added = preserved_in(new).filter(|cluster| !was.contains(cluster));
    let place = |cluster: &str| Place {
        namespace: namespace.clone(),
        cluster: Some(cluster.to_owned()),
    };
    added.map(place).collect()
}

/// Returns the clusters in which the objects of a binding stay when it is deleted: its targets, and
/// those that it is leaving.
pub(super) fn preserved_in(binding: &AnyBinding) -> impl Iterator<Item = &str> {
    let spec = &binding.spec;
    let preserves = spec.is_preserved_on_deletion();
    let targets = spec.clusters.iter().map(|it| &*it.name);
    let left = spec.graceful_eviction_tasks.iter();
    let left = left.map(|it| &*it.from_cluster);
    targets.chain(left).filter(move |_| preserves)
}

/// Returns the clusters in which something that lies in a namespace stays when it is deleted.
fn preserved_of(fleet: &Fleet, namespace: &str) -> HashSet<String> {
    let mut clusters = HashSet::new();
    let preserved = fleet.bindings.having(Trait::IsPreserved, Some(namespace));
    for binding in preserved {
        clusters.extend(preserved_in(&binding).map(str::to_owned));
    }
    clusters
}

/// State that the workers share.
struct Shared {
    waits: Backoff<Place>,
    queue: Queue<Place>,
}

async fn reconcile(fleet: &Fleet, shared: &Shared, place: Place) -> Result<Next, ApiError> {
    let namespace = fleet.namespaces.get(None, &place.namespace);
    let namespace = namespace.filter(|namespace| goes_everywhere(namespace, &fleet.scope));
    let Some(namespace) = namespace else {
        shared.waits.forget(&place);
        return Ok(Next::Done);
    };
    let preserved = preserved_of(fleet, &place.namespace);
    if let Some(cluster) = &place.cluster {
        if ensure(fleet, &namespace, cluster, &preserved).await? {
            shared.waits.forget(&place);
            return Ok(Next::Done);
        }
        return Ok(Next::After(shared.waits.next(&place).time));
    }
    let again = spread(fleet, &namespace, &preserved).await?;
    for place in again.into_iter().map(|cluster| Place {
        cluster: Some(cluster),
        ..place.clone()
    }) {
        shared.queue.add(place);
    }
    Ok(Next::Done)
}

/// Returns whether a namespace is propagated by itself. `default` is in every cluster anyway.
pub(in crate::propagation) fn goes_everywhere(namespace: &Namespace, scope: &Scope) -> bool {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let kept_back = namespace
        .labels()
        .get(label::SKIP_AUTO_PROPAGATION)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    namespace.metadata.deletion_timestamp.is_none()
        && name != "default"
        && !kept_back
        && scope.admits_namespace(name)
}

/// Returns whether a template is a namespace that is in every cluster without a policy.
pub(in crate::propagation) fn is_everywhere(fleet: &Fleet, key: &TemplateKey) -> bool {
    let goes = || {
        let namespace = fleet.namespaces.get(None, &key.name);
        namespace.is_some_and(|it| goes_everywhere(&it, &fleet.scope))
    };
    key.kind.is_namespace() && (key.name == "default" || fleet.settings.runs("namespace") && goes())
}

/// Brings a namespace into all clusters, and names those that have to be reconciled again.
async fn spread(
    fleet: &Fleet,
    namespace: &Namespace,
    preserved: &HashSet<String>,
) -> Result<Vec<String>, ApiError> {
    let clusters = fleet.clusters.list();
    let names: Vec<String> = clusters.iter().map(|cluster| cluster.name_any()).collect();
    let writes = names
        .iter()
        .map(|cluster| ensure(fleet, namespace, cluster, preserved));
    let outcomes = join_all(writes)
        .await
        .into_iter()
        .collect::<Result<Vec<bool>, _>>()?;
    let again = names.into_iter().zip(outcomes);
    Ok(again
        .filter_map(|(name, done)| (!done).then_some(name))
        .collect())
}

/// Brings a namespace into one cluster; `false` if that has to be tried again: a cluster that is
/// just joining has no execution namespace yet, or somebody else wrote at the same time.
///
/// A Work of this name that names a binding is that binding's: the namespace goes there by a policy
/// as well. `preserved` names the clusters in which something in the namespace is to stay.
async fn ensure(
    fleet: &Fleet,
    namespace: &Namespace,
    cluster: &str,
    preserved: &HashSet<String>,
) -> Result<bool, ApiError> {
    let joined = fleet.clusters.get(None, cluster);
    if joined.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()) {
        return Ok(true);
    }
    let compose = |source| {
        let work = format!("the work of namespace {:?}", namespace.name_any());
        ApiError::of("compose", &work)(kube::Error::SerdeError(source))
    };
    let mut rendered = render(namespace, cluster).map_err(compose)?;
    let held = fleet.works.get(Some(&rendered.namespace), &rendered.name);
    let is_kept = |held: &Arc<CachedWork>| held.preserve_resources_on_deletion == Some(true);
    rendered.preserve_resources_on_deletion =
        held.as_ref().is_some_and(is_kept) || preserved.contains(cluster);
    let api: Api<Work> = Api::namespaced(fleet.client.clone(), &rendered.namespace);
    let outcome = match held {
        None => {
            let mut work = compare::create(&rendered);
            work["metadata"]["ownerReferences"] = json!([namespace.controller_owner_ref(&())]);
            let work = serde_json::from_value(work).map_err(compose)?;
            if !fleet.leadership.is_current() {
                return Ok(true);
            }
            api.create(&PostParams::default(), &work).await.map(drop)
        }
        Some(work) if work.metadata.deletion_timestamp.is_some() || is_bound(&work) => Ok(()),
        Some(work) => match compare::patch(&work, &rendered) {
            Some(mut patch) if fleet.leadership.is_current() => {
                patch["metadata"]["resourceVersion"] = json!(work.metadata.resource_version);
                merge(&api, &rendered.name, &patch).await.map(drop)
            }
            _ => Ok(()),
        },
    };
    match outcome {
        Ok(()) => Ok(true),
        // A Work that is there already is compared when the cache shows it.
        Err(error) if is_conflict(&error) || is_gone(&error) => Ok(false),
        Err(error) => {
            let work = format!("work {}/{}", rendered.namespace, rendered.name);
            Err(ApiError::of("write", &work)(error))
        }
    }
}

fn is_bound(work: &CachedWork) -> bool {
    binding_of(work).is_some() || owner_id(work).is_some()
}

/// Returns the Work of a namespace for one cluster. It says nothing about conflicts: a namespace
/// that the member has already is not taken over.
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
        preserved: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::names::finalizer;

    use super::*;
    use crate::fleet::testing;

    fn namespace(metadata: &serde_json::Value) -> Namespace {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_stays_where_something_in_it_is_preserved() {
        let mut binding = testing::binding();
        let mut put = |clusters: &[&str], preserves: bool| {
            let targets: Vec<_> = clusters.iter().map(|it| json!({ "name": it })).collect();
            binding["spec"]["clusters"] = json!(targets);
            binding["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
            binding.clone()
        };
        let namespace = json!({ "metadata": { "name": "shop", "uid": "n" } });
        let clusters = ["m1", "m2"].map(|it| ("clusters", testing::cluster(it)));
        let objects = [
            ("namespaces", namespace),
            ("resourcebindings", put(&["m1"], true)),
        ];
        let mut bench = testing::Bench::new(clusters.into_iter().chain(objects));
        start(&bench.fleet, &mut bench.tasks);
        bench.follow().await;
        let stays = |api: &testing::FakeApi| {
            ["m1", "m2"].map(|cluster| {
                let lies_in = names::execution_namespace(cluster);
                let work = api.object("works", &lies_in, &names::work("Namespace", "shop", ""));
                work.expect("there is one")["spec"]["preserveResourcesOnDeletion"] == json!(true)
            })
        };
        testing::pass(1).await;
        assert_eq!(stays(&bench.api), [true, false]);
        // A list lacks the Work when the setting comes.
        let work = names::work("Namespace", "shop", "");
        bench.api.hide("works", "karmada-es-m2", &work);
        testing::pass(60).await;
        bench.api.put("resourcebindings", put(&["m1", "m2"], true));
        testing::pass(1).await;
        bench.api.reveal("works", "karmada-es-m2", &work);
        testing::pass(60).await;
        assert_eq!(stays(&bench.api), [true, true]);
        bench.api.put("resourcebindings", put(&["m2"], false));
        testing::pass(1).await;
        assert_eq!(stays(&bench.api), [true, true], "what was kept is there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_goes_everywhere_again_when_the_work_of_a_policy_that_placed_it_goes() {
        let work = names::work("Namespace", "shop", "");
        let placed = json!({
            "metadata": {
                "namespace": "karmada-es-m1", "name": work,
                "annotations": { "clusterresourcebinding.karmada.io/name": "shop-namespace" },
            },
        });
        let objects = [
            ("clusters", testing::cluster("m1")),
            (
                "namespaces",
                json!({ "metadata": { "name": "shop", "uid": "n" } }),
            ),
            ("works", placed),
        ];
        let mut bench = testing::Bench::new(objects);
        bench.run(start, 1).await;
        assert!(bench.api.writes().is_empty(), "it is the policy's");
        bench.api.delete("works", "karmada-es-m1", &work);
        testing::pass(1).await;
        let made = bench.api.object("works", "karmada-es-m1", &work);
        let made = made.expect("it is made again");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "n");
    }

    #[test]
    fn a_cluster_that_joins_costs_one_pass_per_namespace_that_it_needs() {
        let scope = Scope::new("", &[]).unwrap();
        let named = |name: &str| Arc::new(namespace(&json!({ "name": name })));
        let others = (0..9).map(|number| named(&format!("karmada-es-m{number}")));
        let all: Vec<_> = others.chain(["a", "b"].map(named)).collect();
        let places = Place::in_cluster("m1", &all, &scope);
        let needed = places
            .iter()
            .map(|it| (&*it.namespace, it.cluster.as_deref()));
        let needed: Vec<_> = needed.collect();
        assert_eq!(needed, [("a", Some("m1")), ("b", Some("m1"))]);
    }

    #[test]
    fn a_work_that_names_a_binding_is_left_to_it() {
        let work = |metadata: serde_json::Value| -> CachedWork {
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let name = json!({ "clusterresourcebinding.karmada.io/name": "shop-namespace" });
        let id = json!({ "clusterresourcebinding.karmada.io/permanent-id": "id" });
        assert!(is_bound(&work(json!({ "annotations": name }))));
        assert!(is_bound(&work(json!({ "labels": id }))));
        assert!(!is_bound(&work(json!({ "labels": { "theirs": "1" } }))));
    }

    #[test]
    fn what_is_preserved_stays_in_the_clusters_that_it_is_leaving_as_well() {
        for (preserves, expected) in [(true, &["m1", "m2"][..]), (false, &[])] {
            let spec = json!({
                "clusters": [{ "name": "m1" }],
                "gracefulEvictionTasks": [{ "fromCluster": "m2" }],
                "preserveResourcesOnDeletion": preserves,
            });
            let binding =
                json!({ "metadata": { "namespace": "shop", "name": "web" }, "spec": spec });
            let binding: AnyBinding = serde_json::from_value(binding).unwrap();
            let found: Vec<&str> = preserved_in(&binding).collect();
            assert_eq!(found, expected, "{preserves}");
        }
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

    #[tokio::test(start_paused = true)]
    async fn nothing_is_known_of_what_stays_while_the_api_does_not_serve_works() {
        for (named, is_known) in [("w", true), ("", false)] {
            let bench = testing::Bench::followed([]).await;
            for method in [http::Method::GET, http::Method::PATCH] {
                bench.api.refuse(method, "/works/w", 404, named);
            }
            let (fleet, lies_in) = (&bench.fleet, "karmada-es-m1");
            let kept = keep_objects(fleet, "w", std::iter::once(lies_in)).await;
            assert_eq!(kept.is_ok(), is_known, "{named}");
            let held = held(fleet, lies_in, "w").await;
            assert_eq!(held.is_ok(), is_known, "{named}");
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
        assert_eq!(
            compare::create(&work)["metadata"]["finalizers"],
            json!([finalizer::WORK])
        );
    }
}
