//! Copies that may still run in clusters where their workloads are not placed any more. Pure.
//!
//! A Work is gone when the agent of its cluster has removed what it stands for. Until then, as in a
//! cluster that is silent, the copy may run beside the new one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_control_plane::fleet::availability::readiness;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::works::binding_named;
use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_control_plane::propagation::binding::render::expects;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::{ObjectMeta, ResourceExt as _};
use muster_shared::names::cluster_of_execution_namespace;
use serde::Serialize;

use super::table::{count, first_titles};

/// State of a cluster that is silent.
pub(super) const SILENT: &str = "silent";
/// State of a cluster that has left the fleet.
pub(super) const NOT_IN_FLEET: &str = "not in the fleet";

/// Predicate of an old copy that a person has to release.
pub(super) const UNTIL_RELEASED: &str =
    "stays until suppressDeletion of its eviction task is set to false";

/// Clusters with copies that are not confirmed to be gone, by the binding of the workload.
pub(super) type OldCopies = BTreeMap<BindingKey, BTreeSet<String>>;

/// Finds the copies that their bindings do not ask for any more, or whose bindings are gone, and
/// that no agent has confirmed to be gone. A copy that an eviction task keeps until its replacement
/// is healthy is none of them.
pub(super) fn old_copies<'a>(
    works: impl IntoIterator<Item = &'a ObjectMeta>,
    bindings: &[Arc<AnyBinding>],
) -> OldCopies {
    let known: HashMap<BindingKey, &Arc<AnyBinding>> =
        bindings.iter().map(|it| (BindingKey::of(it), it)).collect();
    let mut old = OldCopies::new();
    for (key, cluster) in works.into_iter().filter_map(place) {
        let binding = known.get(&key);
        // What runs nothing may stay on purpose, beside a workload that is still there.
        let is_none = |it: &&Arc<AnyBinding>| expects(&it.spec, cluster) || runs_nothing(&it.spec);
        if !binding.is_some_and(is_none) {
            old.entry(key).or_default().insert(cluster.to_owned());
        }
    }
    old
}

/// Returns the binding that a Work was made for, and its cluster.
fn place(work: &ObjectMeta) -> Option<(BindingKey, &str)> {
    let cluster = cluster_of_execution_namespace(work.namespace.as_deref()?)?;
    Some((binding_named(work)?, cluster))
}

/// Clusters with old copies of one workload.
pub(super) fn of_one<'a>(
    works: &'a [ObjectMeta],
    key: &BindingKey,
    spec: &ResourceBindingSpec,
) -> BTreeSet<&'a str> {
    let places = works.iter().filter_map(place);
    let own = places.filter(|(of, cluster)| of == key && !expects(spec, cluster));
    own.map(|(_, cluster)| cluster).collect()
}

/// Number of old copies in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InCluster {
    pub cluster: String,
    pub copies: usize,
    /// The first few of the workloads, of the first few clusters; all of them where they are few.
    pub names: Vec<String>,
    /// State of the cluster that keeps them from being confirmed: `silent`, `not ready` or
    /// `not in the fleet`; `null` in a cluster that is ready, which is removing them.
    pub state: Option<&'static str>,
}

/// Clusters whose old copies are listed one by one.
const CLUSTERS: usize = 3;

/// Returns how many workloads of a group are named: all of a small one, the first few of others.
pub(super) fn named(count: usize) -> usize {
    if count > 10 { 3 } else { count }
}

/// Counts old copies by cluster. `silent` are clusters that are silent while nobody says so, and
/// `title` names the workload of a binding.
pub(super) fn by_cluster(
    old: &OldCopies,
    title: impl Fn(&BindingKey) -> String,
    clusters: &[Cluster],
    silent: &BTreeSet<String>,
) -> Vec<InCluster> {
    let mut counts: BTreeMap<&String, (usize, Vec<String>)> = BTreeMap::new();
    for cluster in old.values().flatten() {
        counts.entry(cluster).or_default().0 += 1;
    }
    let all: usize = counts.values().map(|it| it.0).sum();
    let listed = if named(all) < all {
        CLUSTERS
    } else {
        counts.len()
    };
    for (cluster, (copies, names)) in counts.iter_mut().take(listed) {
        let here = old.iter().filter(|it| it.1.contains(*cluster));
        names.extend(here.take(named(*copies)).map(|it| title(it.0)));
    }
    let counts = counts
        .into_iter()
        .map(|(cluster, (copies, names))| InCluster {
            state: state(cluster, clusters, silent),
            cluster: cluster.clone(),
            copies,
            names,
        });
    counts.collect()
}

/// Returns the state of a cluster if it keeps copies there from being confirmed gone; `None` if the
/// cluster is ready.
fn state(name: &str, clusters: &[Cluster], silent: &BTreeSet<String>) -> Option<&'static str> {
    let state = state_of(clusters.iter().find(|it| it.name_any() == name));
    state.or_else(|| silent.contains(name).then_some(SILENT))
}

/// Returns the state of a cluster, as it says itself, if it keeps copies there from being confirmed
/// gone; a cluster of `None` stands for one that is not in the fleet.
pub(super) fn state_of(cluster: Option<&Cluster>) -> Option<&'static str> {
    let Some(cluster) = cluster else {
        return Some(NOT_IN_FLEET);
    };
    match readiness(cluster) {
        conditions::TRUE => None,
        conditions::FALSE => Some("not ready"),
        _ => Some(SILENT),
    }
}

/// Returns where old copies may still run, such as `3 old copies not confirmed gone in member1
/// (silent): ` and the workloads; `none` if there are none.
pub(super) fn describe(all: &[InCluster]) -> String {
    let each = all.iter().take(CLUSTERS).map(|it| {
        let copies = count(it.copies, "old copy");
        let state = it.state.unwrap_or("being removed");
        let names = first_titles(&it.names, it.copies);
        format!(
            "{copies} not confirmed gone in {} ({state}): {names}",
            it.cluster
        )
    });
    let each = each.collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(CLUSTERS) {
        _ if all.is_empty() => "none".to_owned(),
        0 => each,
        more => {
            let rest: usize = all.iter().skip(CLUSTERS).map(|it| it.copies).sum();
            format!("{each}; and {rest} in {}", count(more, "other cluster"))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{self, condition, member, read};

    /// Returns the Work of a binding of the namespace `default` in a cluster.
    pub fn work(binding: &str, cluster: &str) -> ObjectMeta {
        read(json!({
            "name": binding, "namespace": format!("karmada-es-{cluster}"),
            "annotations": {
                "resourcebinding.karmada.io/namespace": "default",
                "resourcebinding.karmada.io/name": binding,
            },
        }))
    }

    fn binding(name: &str, spec: &Value) -> Arc<AnyBinding> {
        fixtures::binding("default", name, &json!({"spec": spec}))
    }

    fn cluster(name: &str, ready: &str) -> Cluster {
        let ready = condition("Ready", ready, "R", "", "2026-01-01T00:00:00Z");
        member(name, &json!({"status": {"conditions": [ready]}}))
    }

    #[test]
    fn a_copy_is_old_until_its_work_is_gone_unless_the_binding_asks_for_it() {
        let on_m2 = |more: Value| {
            let mut spec = json!({"clusters": [{"name": "m2"}]});
            json_patch::merge(&mut spec, &more);
            spec
        };
        let task = |mode: &str| {
            on_m2(json!({"gracefulEvictionTasks": [{
                "fromCluster": "m1", "reason": "R", "producer": "P", "purgeMode": mode,
            }]}))
        };
        let needed = json!({"requiredBy": [{"name": "web", "clusters": [{"name": "m1"}]}]});
        let works = [work("web", "m1"), work("web", "m2")];
        for (what, spec, expected) in [
            ("it has moved", on_m2(json!({})), true),
            ("its old copy is kept for now", task("Gracefully"), false),
            ("its old copy has to go first", task("Directly"), true),
            ("another workload needs it there", on_m2(needed), false),
        ] {
            let old = old_copies(&works, &[binding("web", &spec)]);
            let clusters: Vec<_> = old.into_values().flatten().collect();
            let expected = if expected { &["m1"][..] } else { &[] };
            assert_eq!(clusters, expected, "{what}");
        }
        let kept = json!({
            "clusters": [{"name": "m2"}],
            "resource": {"apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "web"},
        });
        let old = old_copies(&works, &[binding("web", &kept)]);
        assert_eq!(
            old,
            OldCopies::new(),
            "it runs nothing, and may stay beside what does"
        );
        let gone = old_copies(&works, &[]);
        assert_eq!(gone.into_values().flatten().count(), 2, "it was deleted");
        let mut other = work("web", "m1");
        other.annotations = None;
        assert_eq!(old_copies([&other], &[]), OldCopies::new());
    }

    #[test]
    fn old_copies_are_reported_with_their_cluster_and_why_they_are_not_confirmed_gone() {
        let moved = json!({"clusters": [{"name": "m5"}]});
        let works = [
            work("web", "m1"),
            work("api", "m1"),
            work("web", "m2"),
            work("web", "m3"),
            work("web", "m4"),
        ];
        let old = old_copies(&works, &[binding("web", &moved), binding("api", &moved)]);
        let fleet = [("m1", "Unknown"), ("m2", "True"), ("m3", "False")];
        let fleet = fleet.map(|(name, ready)| cluster(name, ready));
        let none = BTreeSet::new();
        assert_eq!(
            describe(&by_cluster(&old, |it| it.name.clone(), &fleet, &none)),
            "2 old copies not confirmed gone in m1 (silent): api, web; \
             1 old copy not confirmed gone in m2 (being removed): web; \
             1 old copy not confirmed gone in m3 (not ready): web; and 1 in 1 other cluster"
        );
        assert_eq!(state("m4", &fleet, &none), Some("not in the fleet"));
        assert_eq!(describe(&[]), "none");
        let silent = BTreeSet::from(["m2".to_owned()]);
        assert_eq!(state("m2", &fleet, &silent), Some(SILENT));
    }
}
