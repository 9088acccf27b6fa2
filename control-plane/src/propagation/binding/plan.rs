//! Decides what is done about the Works of a binding, before anything is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::names;

use super::controller::cluster_of;
use super::error::Error;
use super::hold::{self, Hold};
use super::prepare::Prepared;
use super::removal::{self, Reason};
use super::render::Scope;
use crate::fleet::binding::BindingKey;
use crate::fleet::copy::Order;
use crate::fleet::fencing;
use crate::fleet::works::CachedWork;

/// What a binding asks for, and the Works that it has.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a BindingKey,
    /// Permanent id of the binding.
    pub(super) id: &'a str,
    /// Spec of the binding with what its policy says by now.
    pub(super) spec: &'a ResourceBindingSpec,
    pub(super) scope: &'a Scope,
    pub(super) works: &'a [Arc<CachedWork>],
    /// Clusters in which a Work stays because a workload of the policy may be there.
    pub(super) kept: &'a BTreeSet<String>,
}

/// What is known of Works and clusters beyond what stands in them.
pub(super) struct Facts<'a> {
    /// Whether the deletion of a Work has been requested.
    pub(super) is_to_go: &'a (dyn Fn(&CachedWork) -> bool + Sync),
    /// Whether a cluster can remove what it has.
    pub(super) is_heard: &'a (dyn Fn(&str) -> bool + Sync),
    pub(super) now: Timestamp,
}

/// A Work that is deleted.
pub(super) struct Removal<'a> {
    pub(super) work: &'a Arc<CachedWork>,
    /// Whether its object stays in the member.
    pub(super) stays: bool,
}

/// What is done about the Works of a binding, in this order. Before anything is made, fencing asks
/// for its own permission, which it reads from the API.
pub(super) struct Plan<'a> {
    /// Works that are deleted.
    pub(super) remove: Vec<Removal<'a>>,
    /// Whether Works that nobody wants stay until there are copies that take their place.
    pub(super) waits: bool,
    /// The copy that holds new ones back.
    pub(super) hold: Option<Hold<'a>>,
    /// Works that are created and updated.
    pub(super) make: Result<Prepared, Error>,
}

impl<'a> Plan<'a> {
    /// Returns what is done about the Works of a binding.
    ///
    /// A copy goes only for copies that can be made: for all of them, or for one where two copies
    /// must not run and nothing is made before this one is gone (safety contract 1).
    pub(super) fn of(
        wanted: &Wanted<'a>,
        make: Result<Prepared, Error>,
        facts: &Facts<'_>,
    ) -> Self {
        let Wanted {
            spec,
            scope,
            works,
            kept,
            ..
        } = *wanted;
        let replaced = replaced(wanted, &make, facts);
        let (all, any) = (!replaced.contains(&false), replaced.contains(&true));
        let is_fenced = fencing::asked(spec).is_some();
        let may_go =
            |cluster: &str| all || any && (is_fenced || scope.purged_first.contains(cluster));
        let preserves = spec.preserve_resources_on_deletion.unwrap_or(false);
        let unwanted = works.iter().filter_map(|work| {
            let cluster = cluster_of(work)?;
            (!scope.expected.contains(cluster) && !kept.contains(cluster))
                .then_some((work, cluster))
        });
        let (going, waiting): (Vec<_>, Vec<_>) = unwanted.partition(|(_, it)| may_go(it));
        let remove = going.into_iter().map(|(work, cluster)| Removal {
            work,
            stays: removal::stays(work.role, Reason::of(spec, cluster), preserves),
        });
        let has_work = |cluster: &str| works.iter().any(|it| cluster_of(it) == Some(cluster));
        let is_there = |cluster: &str| {
            scope.purged_first.contains(cluster)
                && !kept.contains(cluster)
                && (facts.is_heard)(cluster)
                && has_work(cluster)
        };
        Self {
            remove: remove.collect(),
            waits: !waiting.is_empty(),
            hold: hold::hold(&spec.graceful_eviction_tasks, &is_there, facts.now),
            make,
        }
    }
}

/// Returns for each target whether its copy is there or can be made now, so that nothing is lost
/// where the Works elsewhere are removed: it has a Work that stays, or one that could be rendered
/// and is not held up by a former one that is still being removed. One that is not dispatched makes
/// no copy.
fn replaced(wanted: &Wanted<'_>, make: &Result<Prepared, Error>, facts: &Facts<'_>) -> Vec<bool> {
    let is_rendered = |cluster: &str| match make {
        Ok(Prepared::Works { rendered, .. }) => {
            let namespace = names::execution_namespace(cluster);
            rendered.iter().any(|work| work.namespace == namespace)
        }
        Ok(Prepared::Nothing | Prepared::Later(_)) | Err(_) => false,
    };
    let is_replaced = |target: &TargetCluster| {
        let mut works = wanted.works.iter();
        let work = works.find(|work| cluster_of(work) == Some(&*target.name));
        let is_sent = !wanted.spec.dispatching_suspended_in(&target.name);
        match work {
            None => is_sent && is_rendered(&target.name),
            Some(work) => {
                let is_applied = || Order::said(&work.status()) == Order::Applied;
                !(facts.is_to_go)(work) && (is_sent || is_applied())
            }
        }
    };
    wanted.scope.targets.iter().map(is_replaced).collect()
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use muster_shared::queue::Next;
    use serde_json::{Value, json};

    use super::super::render::{Origin, render_plain};
    use super::*;
    use crate::fleet::testing;

    /// Plans the Works of a binding whose copy in `m1` is there, as `edit` changes its spec; `made`
    /// says whether the Works of its targets can be rendered. Returns the clusters whose Works go,
    /// with a `+` where the object stays, whether others wait, and the cluster of the hold.
    fn planned(
        edit: &Value,
        made: bool,
        works: &[(&str, &str)],
        kept: &[&str],
    ) -> (Vec<String>, bool, Option<String>) {
        let mut binding = testing::binding();
        merge::apply(&mut binding["spec"], edit);
        let spec: ResourceBindingSpec = serde_json::from_value(binding["spec"].clone()).unwrap();
        let works: Vec<Arc<CachedWork>> = works
            .iter()
            .map(|(cluster, health)| {
                Arc::new(serde_json::from_value(testing::work(cluster, health)).unwrap())
            })
            .collect();
        let kept: BTreeSet<String> = kept.iter().map(|it| (*it).to_owned()).collect();
        let key = BindingKey {
            namespace: Some("default".to_owned()),
            name: "web-deployment".to_owned(),
        };
        let origin = Origin {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            id: "id".to_owned(),
        };
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 2},
        });
        let make = if made {
            Ok(Prepared::Works {
                rendered: render_plain(&origin, &spec, &template, false).unwrap(),
                refused: Vec::new(),
                keepers: None,
            })
        } else {
            Ok(Prepared::Later(Next::Done))
        };
        let wanted = Wanted {
            key: &key,
            id: "id",
            spec: &spec,
            scope: &Scope::of(&spec),
            works: &works,
            kept: &kept,
        };
        let facts = Facts {
            is_to_go: &|work| work.metadata.deletion_timestamp.is_some(),
            is_heard: &|_| true,
            now: Timestamp::UNIX_EPOCH,
        };
        let plan = Plan::of(&wanted, make, &facts);
        let gone = plan.remove.iter().map(|it| {
            let stays = if it.stays { "+" } else { "" };
            format!("{}{stays}", cluster_of(it.work).unwrap())
        });
        let hold = plan.hold.map(|hold| hold.cluster.to_owned());
        (gone.collect(), plan.waits, hold)
    }

    #[test]
    fn a_copy_goes_only_for_copies_that_can_be_made() {
        let to = |names: &[&str]| -> Value {
            let targets = names
                .iter()
                .map(|name| json!({"name": name, "replicas": 1}));
            json!({"clusters": targets.collect::<Vec<_>>()})
        };
        let and = |mut first: Value, second: Value| {
            merge::apply(&mut first, &second);
            first
        };
        let task = |mode: &str| {
            let task =
                json!({"fromCluster": "m1", "purgeMode": mode, "reason": "", "producer": ""});
            json!({"gracefulEvictionTasks": [task]})
        };
        let fenced = json!({"failover": {"cluster": {"fencing": {"afterSeconds": 60}}}});
        let suspended = json!({"suspension": {"dispatching": true}});
        let deselected = json!({
            "placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
            "preserveResourcesOnDeletion": true,
        });
        let m1 = [("m1", "Healthy")];
        let both = [("m1", "Healthy"), ("m2", "Healthy")];
        let none: [&str; 0] = [];
        for (what, spec, made, works, kept, gone, waits, hold) in [
            (
                "it stays a target",
                to(&["m1"]),
                true,
                &m1[..],
                &none[..],
                &none[..],
                false,
                None,
            ),
            (
                "the next is rendered",
                to(&["m2"]),
                true,
                &m1,
                &none,
                &["m1"],
                false,
                None,
            ),
            (
                "the next is not rendered",
                to(&["m2"]),
                false,
                &m1,
                &none,
                &none,
                true,
                None,
            ),
            (
                "the next is there",
                to(&["m2"]),
                false,
                &both,
                &none,
                &["m1"],
                false,
                None,
            ),
            (
                "one of two is there",
                to(&["m2", "m3"]),
                false,
                &both,
                &none,
                &none,
                true,
                None,
            ),
            (
                "one of two is there, and it has to go first",
                and(to(&["m2", "m3"]), task("Directly")),
                false,
                &both,
                &none,
                &["m1"],
                false,
                Some("m1"),
            ),
            (
                "one of two is there, and two copies must not run",
                and(to(&["m2", "m3"]), fenced),
                false,
                &both,
                &none,
                &["m1"],
                false,
                None,
            ),
            (
                "it is left gracefully",
                and(to(&["m2"]), task("Gracefully")),
                true,
                &m1,
                &none,
                &none,
                false,
                None,
            ),
            (
                "a workload needs it",
                to(&["m2"]),
                true,
                &m1,
                &["m1"],
                &none,
                false,
                None,
            ),
            (
                "a workload needs it, and it would hold new ones back",
                and(to(&["m2"]), task("Directly")),
                true,
                &m1,
                &["m1"],
                &none,
                false,
                None,
            ),
            (
                "nothing is dispatched",
                and(to(&["m2"]), suspended),
                true,
                &m1,
                &none,
                &none,
                true,
                None,
            ),
            (
                "a person took it out",
                and(to(&["m2"]), deselected),
                true,
                &m1,
                &none,
                &["m1+"],
                false,
                None,
            ),
            (
                "there is no target",
                json!({"clusters": []}),
                false,
                &m1,
                &none,
                &["m1"],
                false,
                None,
            ),
        ] {
            let expected = (
                gone.iter().map(|it| (*it).to_owned()).collect(),
                waits,
                hold.map(str::to_owned),
            );
            assert_eq!(planned(&spec, made, works, kept), expected, "{what}");
        }
    }
}
