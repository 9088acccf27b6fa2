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

/// Works that a binding asks for, and those that it has.
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

/// Facts about Works and clusters that do not stand in them.
pub(super) struct Facts<'a> {
    /// Whether the deletion of a Work has been requested.
    pub(super) is_to_go: &'a (dyn Fn(&CachedWork) -> bool + Sync),
    /// Whether a cluster is heard of, so that it carries out what it is told.
    pub(super) is_heard: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether a cluster leaves the fleet: nothing is made there, and what is there goes.
    pub(super) is_leaving: &'a (dyn Fn(&str) -> bool + Sync),
    pub(super) now: Timestamp,
}

/// A Work that is deleted.
pub(super) struct Removal<'a> {
    pub(super) work: &'a Arc<CachedWork>,
    /// Whether its object stays in the member.
    pub(super) stays: bool,
}

/// Steps for the Works of a binding, in this order. Before anything is made, fencing asks
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
    /// A copy goes only for copies that are there, in all targets. Where two copies must not run,
    /// nothing is made before this one is gone, and one that can be made is enough (safety
    /// contract 1).
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
        let is_there = replaced(wanted, facts, &|_| false);
        let can_be = replaced(wanted, facts, &|cluster| is_rendered(&make, cluster));
        let is_fenced = fencing::asked(spec).is_some();
        let may_go = |cluster: &str| {
            if is_fenced || scope.purged_first.contains(cluster) {
                can_be.is_empty() || can_be.contains(&true)
            } else {
                !is_there.contains(&false)
            }
        };
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

/// Returns for each target whether its copy is there, or can be made, so that nothing is lost where
/// the Works elsewhere are removed: it has a Work that stays and is carried out, or `is_made` says
/// that it gets one. A Work that is not dispatched makes no copy, nor does one in a cluster that
/// leaves or is not heard of, unless its object was applied there. A target without a share has no
/// copy: it counts for nothing beside others, and alone it says that the replicas are not divided
/// yet.
fn replaced(wanted: &Wanted<'_>, facts: &Facts<'_>, is_made: &dyn Fn(&str) -> bool) -> Vec<bool> {
    let spec = wanted.spec;
    let is_replaced = |target: &TargetCluster| {
        let mut works = wanted.works.iter();
        let work = works.find(|work| cluster_of(work) == Some(&*target.name));
        let is_sent = !spec.dispatching_suspended_in(&target.name);
        let is_replaced = match work {
            None => is_sent && is_made(&target.name),
            Some(work) => {
                let is_applied = || Order::said(&work.status()) == Order::Applied;
                let is_carried_out = is_sent && (facts.is_heard)(&target.name);
                !(facts.is_to_go)(work) && (is_carried_out || is_applied())
            }
        };
        is_replaced && !(facts.is_leaving)(&target.name)
    };
    if spec.is_undivided() {
        return vec![false];
    }
    let is_counted = spec.replicas > 0 && spec.components.is_empty();
    let targets = wanted.scope.targets.iter();
    let shares = targets.filter(|it| !is_counted || it.replicas > 0);
    shares.map(is_replaced).collect()
}

fn is_rendered(make: &Result<Prepared, Error>, cluster: &str) -> bool {
    match make {
        Ok(Prepared::Works { rendered, .. }) => {
            let namespace = names::execution_namespace(cluster);
            rendered.iter().any(|work| work.namespace == namespace)
        }
        Ok(Prepared::Nothing | Prepared::Later(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use muster_shared::queue::Next;
    use serde_json::{Value, json};

    use super::super::prepare::origin;
    use super::super::render::render_plain;
    use super::*;
    use crate::fleet::testing;

    /// Returns what becomes of the Works of a binding with copies in some clusters, as `edit`
    /// changes its spec, where a workload keeps what is in others. `made` says whether the Works of
    /// its targets can be rendered.
    fn planned(edit: &Value, made: bool, works: &[&str], kept: &[&str]) -> String {
        let mut binding = testing::binding();
        merge::apply(&mut binding["spec"], edit);
        let spec: ResourceBindingSpec = serde_json::from_value(binding["spec"].clone()).unwrap();
        let read = |cluster: &&str| serde_json::from_value(testing::work(cluster, "Healthy"));
        let works: Vec<Arc<CachedWork>> = works.iter().map(|it| read(it).unwrap()).collect();
        let key = BindingKey {
            namespace: Some("shop".to_owned()),
            name: "web-deployment".to_owned(),
        };
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2},
        });
        let rendered = render_plain(&origin(&key, "id"), &spec, &template, false);
        let prepared = Prepared::Works {
            rendered: rendered.unwrap(),
            refused: Vec::new(),
            keepers: None,
        };
        let later = Prepared::Later(Next::Done);
        let wanted = Wanted {
            key: &key,
            id: "id",
            spec: &spec,
            scope: &Scope::of(&spec),
            works: &works,
            kept: &kept.iter().map(|it| (*it).to_owned()).collect(),
        };
        let facts = Facts {
            is_to_go: &|work| work.metadata.deletion_timestamp.is_some(),
            is_heard: &|cluster| cluster != "silent",
            is_leaving: &|cluster| cluster == "leaving",
            now: Timestamp::UNIX_EPOCH,
        };
        let plan = Plan::of(&wanted, Ok(if made { prepared } else { later }), &facts);
        let removed = plan.remove.iter().map(|it| {
            let fate = if it.stays { "released" } else { "removed" };
            format!("{} {fate}", cluster_of(it.work).unwrap())
        });
        let waits = plan.waits.then(|| "others wait".to_owned());
        let hold = plan.hold.map(|it| format!("{} holds", it.cluster));
        let all: Vec<String> = removed.chain(waits).chain(hold).collect();
        all.join(", ")
    }

    fn to(clusters: &[&str]) -> Value {
        let targets = clusters.iter().map(|name| (*name, 1));
        shares(&targets.collect::<Vec<_>>())
    }

    fn shares(clusters: &[(&str, i32)]) -> Value {
        let target = |(name, replicas): &(&str, i32)| json!({"name": name, "replicas": replicas});
        json!({"clusters": clusters.iter().map(target).collect::<Vec<_>>()})
    }

    fn with(mut spec: Value, edit: &Value) -> Value {
        merge::apply(&mut spec, edit);
        spec
    }

    fn task(mode: &str) -> Value {
        let task = json!({"fromCluster": "m1", "purgeMode": mode, "reason": "", "producer": ""});
        json!({"gracefulEvictionTasks": [task]})
    }

    #[test]
    fn a_copy_goes_only_for_copies_that_can_be_made() {
        let fenced = json!({"failover": {"cluster": {"fencing": {"afterSeconds": 60}}}});
        for (spec, made, works, expected) in [
            (to(&["m1"]), true, &["m1"][..], ""),
            (to(&["m2"]), true, &["m1"], "others wait"),
            (to(&["m2"]), false, &["m1"], "others wait"),
            (to(&["m2"]), false, &["m1", "m2"], "m1 removed"),
            (to(&["m2", "m3"]), false, &["m1", "m2"], "others wait"),
            (to(&["silent"]), false, &["m1", "silent"], "m1 removed"),
            (to(&["leaving"]), true, &["m1", "leaving"], "others wait"),
            (with(to(&["m2"]), &fenced), true, &["m1"], "m1 removed"),
            (
                with(to(&["leaving"]), &fenced),
                true,
                &["m1"],
                "others wait",
            ),
            (
                with(to(&["m2", "m3"]), &fenced),
                false,
                &["m1", "m2"],
                "m1 removed",
            ),
            (shares(&[("m2", 0)]), true, &["m1", "m2"], "others wait"),
            (
                shares(&[("m2", 0), ("m3", 2)]),
                true,
                &["m1", "m3"],
                "m1 removed",
            ),
            (with(to(&["m2"]), &task("Gracefully")), true, &["m1"], ""),
            (to(&[]), false, &["m1"], "m1 removed"),
        ] {
            let planned = planned(&spec, made, works, &[]);
            assert_eq!(planned, expected, "{spec} {made} {works:?}");
        }
    }

    #[test]
    fn a_copy_that_has_to_go_first_holds_new_ones_back() {
        let leaves = |clusters: &[&str]| with(to(clusters), &task("Directly"));
        for (spec, made, works, kept, expected) in [
            (
                leaves(&["m2"]),
                true,
                &["m1"][..],
                &[][..],
                "m1 removed, m1 holds",
            ),
            (
                leaves(&["m2"]),
                false,
                &["m1"],
                &[],
                "others wait, m1 holds",
            ),
            (
                leaves(&["m2", "m3"]),
                false,
                &["m1", "m2"],
                &[],
                "m1 removed, m1 holds",
            ),
            // A workload needs what is there.
            (leaves(&["m2"]), true, &["m1"], &["m1"], ""),
            (to(&["m2"]), true, &["m1"], &["m1"], ""),
        ] {
            let planned = planned(&spec, made, works, kept);
            assert_eq!(planned, expected, "{spec} {made} {kept:?}");
        }
    }

    #[test]
    fn nothing_takes_the_place_of_a_copy_where_nothing_is_dispatched_and_what_a_person_deselects_may_stay()
     {
        let suspended = json!({"suspension": {"dispatching": true}});
        let deselected = json!({
            "placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
            "preserveResourcesOnDeletion": true,
        });
        for (edit, works, expected) in [
            (suspended, &["m1"][..], "others wait"),
            (deselected, &["m1", "m2"], "m1 released"),
        ] {
            let spec = with(to(&["m2"]), &edit);
            assert_eq!(planned(&spec, true, works, &[]), expected, "{edit}");
        }
    }
}
