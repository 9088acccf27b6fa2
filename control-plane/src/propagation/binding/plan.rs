//! Decides what is done about the Works of a binding, before anything is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::{ObjectReference, ResourceBindingSpec, ResourceHealth};
use muster_shared::api::policy::{ClusterAffinity, Placement, PurgeMode};
use muster_shared::api::work::WorkStatus;
use muster_shared::names;

use super::error::Error;
use super::hold::{self, Asked, Hold};
use super::namespaces::holds;
use super::prepare::Prepared;
use super::removal::{self, Reason};
use super::render::{Origin, Rendered, Scope};
use crate::fleet::copy::{self, WorkState};
use crate::fleet::fencing;
use crate::fleet::works::{CachedWork, cluster_of, in_cluster, replicas_of};
use crate::scheduler::core::affinity::allows_name;

/// Works that a binding asks for, and those that it has.
pub(super) struct Wanted<'a> {
    pub(super) origin: &'a Origin,
    /// Spec of the binding with what its policy says by now.
    pub(super) spec: &'a ResourceBindingSpec,
    pub(super) scope: &'a Scope,
    /// The placement of the binding, or those of the workloads that it follows, each with the
    /// clusters that edits have taken from it.
    pub(super) placements: Vec<(Arc<Placement>, BTreeSet<String>)>,
    pub(super) works: &'a [Arc<CachedWork>],
    /// Clusters in which a Work stays because a workload of the policy may be there.
    pub(super) kept: &'a BTreeSet<String>,
    /// Reason why the data of the workload keeps its old copies.
    pub(super) stays: Option<&'a str>,
}

/// Facts about Works and clusters that are not in them.
pub(super) struct Facts<'a> {
    /// Whether the deletion of a Work has been requested.
    pub(super) is_to_go: &'a (dyn Fn(&CachedWork) -> bool + Sync),
    /// Whether a cluster is not silent, so that it carries out its orders.
    pub(super) is_ready: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether a cluster is not silent, and its agent applies Works.
    pub(super) applies: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether movement out of a cluster is paused.
    pub(super) is_paused: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether a cluster leaves the fleet: nothing is made there, and what is there goes.
    pub(super) is_leaving: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether an affinity selects a cluster, as both are now.
    pub(super) selects: &'a (dyn Fn(&ClusterAffinity, &str) -> bool + Sync),
    /// Whether some clusters, which refuse their Works, have done so for a while.
    pub(super) go_on_refusing: &'a (dyn Fn(Vec<String>) -> bool + Sync),
    /// Whether the members decide on the number of replicas, if that is known.
    pub(super) members_scale: &'a (dyn Fn() -> Option<bool> + Sync),
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
    /// Clusters in which a Work that nobody wants stays until there are copies that take its place.
    pub(super) waits: Vec<String>,
    /// Those of them that only the pause of movement keeps.
    pub(super) paused: Vec<String>,
    /// Targets whose copies the others wait for.
    pub(super) lacks: Vec<String>,
    /// The copy that holds new ones back.
    pub(super) hold: Option<Hold<'a>>,
    /// Works that are created and updated.
    pub(super) make: Result<Prepared, Error>,
}

impl<'a> Plan<'a> {
    /// Returns what is done about the Works of a binding.
    ///
    /// A copy goes only for copies that are there: at least one target that is not silent has
    /// applied its own, and so has every other one that can. Where two copies must not run, or the
    /// policy asks for old ones to go at once, one that can be made is enough (safety contract 1).
    /// While movement out of a cluster is paused, no copy goes there for others.
    pub(super) fn of(
        wanted: &Wanted<'a>,
        make: Result<Prepared, Error>,
        facts: &Facts<'_>,
    ) -> Self {
        let Wanted {
            spec,
            scope,
            ref placements,
            works,
            kept,
            ..
        } = *wanted;
        let unwanted = works.iter().filter_map(|work| {
            let cluster = cluster_of(work)?;
            (!scope.expected.contains(cluster) && !kept.contains(cluster))
                .then_some((work, cluster))
        });
        let unwanted: Vec<_> = unwanted.collect();
        // Reading the reports of the targets costs more than all else here.
        let successors = (!unwanted.is_empty())
            .then(|| successors(wanted, &unwanted, &make, facts))
            .flatten();
        let any = |wanted: &[Successor]| {
            let mut all = successors.iter().flatten();
            all.any(|(_, it)| wanted.contains(it))
        };
        let (is_there, is_coming) = (any(&[Successor::There]), any(&[Successor::Coming]));
        let is_awaited = is_coming || any(&[Successor::Missing]);
        let goes_first = fencing::runs_alone(spec) || asks_directly(spec);
        let has_place = |cluster: &str| match &successors {
            None => false,
            Some(none) if none.is_empty() => true,
            Some(_) if goes_first || scope.purged_first.contains(cluster) => is_there || is_coming,
            Some(_) => is_there && !is_awaited,
        };
        // A copy whose place nothing takes does not move.
        let moves = successors.as_ref().is_some_and(|it| !it.is_empty());
        let is_paused = |cluster: &str| moves && (facts.is_paused)(cluster);
        let may_go = |cluster: &str| has_place(cluster) && !is_paused(cluster);
        let preserves = spec.is_preserved_on_deletion();
        let unwanted = unwanted.into_iter();
        let (going, waiting): (Vec<_>, Vec<_>) = unwanted.partition(|(_, it)| may_go(it));
        let reason = |cluster: &str| {
            let allows = |(placement, taken): &(Arc<Placement>, BTreeSet<String>)| {
                // Where the old copy goes first, selectors keep none beside the new one. Labels and
                // fields of a cluster that no edit has taken away may have changed by themselves.
                let is_taken = !goes_first && taken.contains(cluster);
                removal::allows(placement, |it| {
                    if is_taken {
                        (facts.selects)(it, cluster)
                    } else {
                        allows_name(it, cluster)
                    }
                })
            };
            Reason::of(placements.iter().map(allows))
        };
        let remove = going.into_iter().map(|(work, cluster)| Removal {
            work,
            stays: removal::stays(work.role, reason(cluster), preserves) || holds(work),
        });
        let asked = |cluster: &str| {
            let work = in_cluster(works, cluster)?;
            let is_to_leave = scope.purged_first.contains(cluster) && !kept.contains(cluster);
            let can_leave = is_to_leave && (facts.is_ready)(cluster);
            can_leave.then(|| match &work.metadata.deletion_timestamp {
                Some(at) => Asked::At(at.0),
                // A pause puts no time off where another copy runs, which follows its template.
                None if is_there && is_paused(cluster) => Asked::WithItsTask,
                // The removal is asked for now, or once a pause ends.
                None if has_place(cluster) && !(facts.is_to_go)(work) => Asked::NotYet,
                // The removal was refused, or waits for the new copies. The copy holds these back
                // no longer than the grace period that began with its task.
                None => Asked::WithItsTask,
            })
        };
        let lacking = successors.iter().flatten().filter(|(_, it)| match it {
            Successor::There => false,
            Successor::Coming | Successor::Missing => true,
            Successor::Stuck => !is_there,
        });
        let waiting = waiting.iter().map(|(_, it)| *it);
        let paused = waiting.clone().filter(|it| has_place(it) && is_paused(it));
        Self {
            remove: remove.collect(),
            paused: paused.map(str::to_owned).collect(),
            waits: waiting.map(str::to_owned).collect(),
            lacks: lacking.map(|(it, _)| (*it).to_owned()).collect(),
            hold: hold::hold(&spec.graceful_eviction_tasks, &asked, facts.now),
            make,
        }
    }

    /// Returns whether a Work is deleted.
    pub(super) fn removes(&self, work: &Arc<CachedWork>) -> bool {
        self.remove.iter().any(|it| Arc::ptr_eq(it.work, work))
    }
}

/// Returns whether the policy asks for the copy in a cluster that is left to go at once.
fn asks_directly(spec: &ResourceBindingSpec) -> bool {
    let of_cluster = spec.cluster_failover();
    let mode = of_cluster.and_then(|it| it.purge_mode.as_ref());
    mode.map(PurgeMode::canonical) == Some(&PurgeMode::Directly)
}

/// Copy of a target, as far as it takes the place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Successor {
    /// The agent has applied the Work, and is not silent.
    There,
    /// The Work is sent, or can be, to a cluster that is not silent.
    Coming,
    /// The copy cannot be made yet, or its cluster has refused it a moment ago.
    Missing,
    /// The copy may never come: its cluster leaves, is silent or applies nothing,
    /// gets nothing by order of the policy, or goes on refusing it. Where another one is there,
    /// nobody waits for it.
    Stuck,
}

/// Returns the copies that take the place of those that nobody wants any more: of each target with
/// a share, since one without has no copy. There are none where the workload asks for no replicas,
/// and where nobody needs an object without a placement any more. `None` if nothing takes the place
/// of a copy: no cluster fits the placement, or the replicas are not divided yet.
fn successors<'a>(
    wanted: &Wanted<'a>,
    unwanted: &[(&Arc<CachedWork>, &str)],
    make: &Result<Prepared, Error>,
    facts: &Facts<'_>,
) -> Option<Vec<(&'a str, Successor)>> {
    let (spec, targets) = (wanted.spec, &wanted.scope.targets);
    let resource = &spec.resource;
    // A copy of which nothing is known may run.
    let runs = |work: &CachedWork| pods(resource, &work.status()) != Some(0);
    let is_running = || unwanted.iter().any(|(it, _)| runs(it));
    if spec.is_scaled_to_zero() && !(is_running() && (facts.members_scale)() != Some(false))
        || targets.is_empty() && spec.placement.is_none()
    {
        return Some(Vec::new());
    }
    if spec.is_undivided() || targets.is_empty() {
        return None;
    }
    let namespace = resource.namespace.as_deref().unwrap_or_default();
    let name = names::work(&resource.kind, &resource.name, namespace);
    let mut own: Vec<_> = wanted
        .works
        .iter()
        .filter(|it| !(facts.is_to_go)(it))
        .collect();
    // Of several in one cluster, that of the object counts.
    own.sort_by_key(|work| work.metadata.name.as_deref() == Some(&*name));
    let own = own.into_iter().filter_map(|it| Some((cluster_of(it)?, it)));
    let own: BTreeMap<_, _> = own.collect();
    let is_counted = spec.has_own_replicas();
    // Where nothing runs in what is to go, nothing need run in what takes its place.
    let has_pods = is_counted && is_running() && (facts.members_scale)() != Some(true);
    let shares = targets.iter().filter(|it| !is_counted || it.replicas > 0);
    let shares: Vec<_> = shares
        .map(|it| {
            let work = own.get(it.name.as_str()).copied();
            let status = work.map(|it| it.status()).unwrap_or_default();
            let order = work.map_or(WorkState::Absent, |_| WorkState::said(&status));
            (it.name.as_str(), work, status, order)
        })
        .collect();
    let refusing = shares.iter().filter(|it| it.3 == WorkState::Refused);
    let go_on_refusing = (facts.go_on_refusing)(refusing.map(|it| it.0.to_owned()).collect());
    let successor = |(cluster, work, status, order): (&'a str, Option<&Arc<CachedWork>>, _, _)| {
        if (facts.is_leaving)(cluster) || !(facts.applies)(cluster) {
            return (cluster, Successor::Stuck);
        }
        // Its share is brought by the Work that is rendered.
        let is_empty = work.is_some_and(|it| copy::is_empty(spec, it));
        let is_sent = match work {
            Some(work) if !is_empty => work.suspend_dispatching != Some(true),
            Some(_) => is_rendered(make, cluster, |it| replicas_of(&it.manifest) != Some(0)),
            None => is_rendered(make, cluster, |_| true),
        };
        let lacks_pods = has_pods && pods(resource, &status) == Some(0);
        let state = match order {
            WorkState::Applied if !is_empty && !lacks_pods => Successor::There,
            // It runs as it was, and a later order was refused.
            WorkState::Refused if is_healthy(&status) && !lacks_pods && !is_empty => {
                Successor::There
            }
            _ if spec.dispatching_suspended_in(cluster) => Successor::Stuck,
            WorkState::Applied if !is_empty => Successor::Coming,
            WorkState::Refused if go_on_refusing => Successor::Stuck,
            WorkState::Absent | WorkState::Sent | WorkState::Applied if is_sent => {
                Successor::Coming
            }
            _ => Successor::Missing,
        };
        (cluster, state)
    };
    Some(shares.into_iter().map(successor).collect())
}

/// Returns how many pods an agent reports of a workload, if it does. Kubernetes leaves the number
/// out of the status of its own kinds while it is 0.
fn pods(resource: &ObjectReference, status: &WorkStatus) -> Option<i64> {
    let status = status.manifest_statuses.first()?.status.as_ref()?;
    let number = status.0["replicas"].as_i64();
    number.or_else(|| resource.is_counted().then_some(0))
}

fn is_healthy(status: &WorkStatus) -> bool {
    let first = status.manifest_statuses.first();
    first.is_some_and(|it| it.health == Some(ResourceHealth::Healthy))
}

/// Returns whether a Work that is as `is_meant` says can be made for a cluster.
pub(super) fn is_rendered(
    make: &Result<Prepared, Error>,
    cluster: &str,
    is_meant: impl Fn(&Rendered) -> bool,
) -> bool {
    match make {
        Ok(Prepared::Works { rendered, .. }) => {
            let namespace = names::execution_namespace(cluster);
            let mut rendered = rendered.iter().filter(|it| it.namespace == namespace);
            rendered.any(is_meant)
        }
        Ok(Prepared::Nothing | Prepared::Later(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use muster_shared::queue::Next;
    use serde_json::{Value, json};

    use super::super::render::render_plain;
    use super::*;
    use crate::fleet::testing;

    /// Returns what becomes of the Works of a binding with copies in some clusters, as `edit`
    /// changes its spec, where a workload keeps what is in others. `made` says whether the Works of
    /// its targets can be rendered.
    fn planned(edit: &Value, made: bool, works: &[&str], kept: &[&str]) -> String {
        plan_of(edit, made, works, kept).0
    }

    fn lacking(edit: &Value, made: bool, works: &[&str]) -> Vec<String> {
        plan_of(edit, made, works, &[]).1
    }

    fn plan_of(edit: &Value, made: bool, works: &[&str], kept: &[&str]) -> (String, Vec<String>) {
        let mut binding = testing::binding();
        merge::apply(&mut binding["spec"], edit);
        let spec: ResourceBindingSpec = serde_json::from_value(binding["spec"].clone()).unwrap();
        let read = |cluster: &&str| {
            let mut work = testing::work(cluster, "Healthy");
            if *cluster == "empty" {
                work["spec"] = json!({"workload": {"manifests": [{"spec": {"replicas": 0}}]}});
            }
            serde_json::from_value(work)
        };
        let works: Vec<Arc<CachedWork>> = works.iter().map(|it| read(it).unwrap()).collect();
        let origin = Origin {
            key: testing::key("web-deployment"),
            id: "id".to_owned(),
        };
        let template = testing::deployment(2);
        let rendered = render_plain(&origin, &spec, &template, false);
        let prepared = Prepared::Works {
            rendered: rendered.unwrap(),
            refused: Vec::new(),
            keepers: None,
        };
        let later = Prepared::Later(Next::Done);
        let own = spec.placement.clone().into_iter();
        let own = own.map(|it| (it, BTreeSet::new()));
        let wanted = Wanted {
            origin: &origin,
            spec: &spec,
            scope: &Scope::of(&spec),
            placements: own.collect(),
            works: &works,
            kept: &kept.iter().map(|it| (*it).to_owned()).collect(),
            stays: None,
        };
        let facts = Facts {
            is_to_go: &|work| work.metadata.deletion_timestamp.is_some(),
            is_ready: &|cluster| cluster != "silent",
            applies: &|cluster| cluster != "silent",
            is_paused: &|cluster| cluster == "paused",
            is_leaving: &|cluster| cluster == "leaving",
            selects: &allows_name,
            go_on_refusing: &|_| false,
            members_scale: &|| Some(false),
            now: Timestamp::UNIX_EPOCH,
        };
        let plan = Plan::of(&wanted, Ok(if made { prepared } else { later }), &facts);
        let lacks = plan.lacks.clone();
        let removed = plan.remove.iter().map(|it| {
            let fate = if it.stays { "released" } else { "removed" };
            format!("{} {fate}", cluster_of(it.work).unwrap())
        });
        let waits = (!plan.waits.is_empty()).then(|| "others wait".to_owned());
        let hold = plan.hold.map(|it| format!("{} holds", it.cluster));
        let all: Vec<String> = removed.chain(waits).chain(hold).collect();
        (all.join(", "), lacks)
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
        let failover = |clusters: &[&str], behaviour: Value| {
            with(to(clusters), &json!({"failover": {"cluster": behaviour}}))
        };
        let fenced =
            |clusters: &[&str]| failover(clusters, json!({"fencing": {"afterSeconds": 60}}));
        let directly = |clusters: &[&str]| failover(clusters, json!({"purgeMode": "Directly"}));
        let scaled = |clusters: &[&str]| with(to(clusters), &json!({"replicas": 0}));
        // No rule counts its replicas, which run.
        let controller = json!({"apiVersion": "v1", "kind": "ReplicationController"});
        let uncounted = json!({
            "resource": controller, "clusters": [{"name": "m2"}],
            "replicas": 0, "replicaRequirements": null,
        });
        let uneven = shares(&[("m2", 0), ("m3", 2)]);
        let unplaced = json!({"clusters": [], "placement": null});
        for (spec, made, works, expected) in [
            (to(&["m1"]), true, &["m1"][..], ""),
            (to(&["m2"]), true, &["m1"], "others wait"),
            (to(&["m2"]), false, &["m1"], "others wait"),
            (to(&["m2"]), false, &["m1", "m2"], "m1 removed"),
            (to(&["m2", "m3"]), false, &["m1", "m2"], "others wait"),
            (to(&["silent"]), false, &["m1", "silent"], "others wait"),
            (to(&["leaving"]), true, &["m1", "leaving"], "others wait"),
            (fenced(&["m2"]), true, &["m1"], "m1 removed"),
            (directly(&["m2"]), true, &["m1"], "m1 removed"),
            (directly(&["m2"]), false, &["m1"], "others wait"),
            (directly(&["silent"]), true, &["m1"], "others wait"),
            (fenced(&["leaving"]), true, &["m1"], "others wait"),
            (fenced(&["m2", "m3"]), false, &["m1", "m2"], "m1 removed"),
            (shares(&[("m2", 0)]), true, &["m1", "m2"], "others wait"),
            (to(&["empty"]), true, &["m1", "empty"], "others wait"),
            (fenced(&["empty"]), true, &["m1", "empty"], "m1 removed"),
            (fenced(&["empty"]), false, &["m1", "empty"], "others wait"),
            (uneven, true, &["m1", "m3"], "m1 removed"),
            (with(to(&["m2"]), &task("Gracefully")), true, &["m1"], ""),
            (to(&[]), false, &["m1"], "others wait"),
            (scaled(&[]), false, &["m1"], "m1 removed"),
            (scaled(&["m2"]), false, &["m1"], "m1 removed"),
            (uncounted, false, &["m1"], "others wait"),
            (unplaced, false, &["m1"], "m1 removed"),
            (to(&["m2"]), true, &["paused", "m2"], "others wait"),
            (scaled(&[]), true, &["paused"], "paused removed"),
            (to(&["m2", "silent"]), true, &["m1", "m2"], "m1 removed"),
        ] {
            let planned = planned(&spec, made, works, &[]);
            assert_eq!(planned, expected, "{spec} {made} {works:?}");
        }
    }

    #[test]
    fn a_copy_that_has_to_go_first_holds_new_ones_back() {
        let leaves = |clusters: &[&str]| with(to(clusters), &task("Directly"));
        for (clusters, made, works, expected) in [
            (&["m2"][..], true, &["m1"][..], "m1 removed, m1 holds"),
            (&["m2"], false, &["m1"], "others wait, m1 holds"),
            (&["m2", "m3"], false, &["m1", "m2"], "m1 removed, m1 holds"),
        ] {
            let planned = planned(&leaves(clusters), made, works, &[]);
            assert_eq!(planned, expected, "{clusters:?} {made}");
        }
        // A workload needs what is there.
        for spec in [leaves(&["m2"]), to(&["m2"])] {
            assert_eq!(planned(&spec, true, &["m1"], &["m1"]), "", "{spec}");
        }
    }

    #[test]
    fn a_copy_that_has_to_go_first_and_that_a_pause_keeps_holds_new_ones_back_for_as_long() {
        let long_ago = json!([{
            "fromCluster": "paused", "purgeMode": "Directly", "reason": "", "producer": "",
            "creationTimestamp": "1960-01-01T00:00:00Z",
        }]);
        let leaves = with(to(&["m2"]), &json!({"gracefulEvictionTasks": long_ago}));
        let planned = |works: &[&str]| planned(&leaves, true, works, &[]);
        assert_eq!(planned(&["paused"]), "others wait, paused holds");
        // A copy that runs beside it gets what is edited.
        assert_eq!(planned(&["paused", "m2"]), "others wait");
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

    #[test]
    fn a_copy_that_a_pause_holds_is_not_reported_to_wait_for_a_silent_target() {
        let spec = to(&["m2", "silent"]);
        // Without the pause it goes, with the same successors.
        assert_eq!(planned(&spec, true, &["m1", "m2"], &[]), "m1 removed");
        assert_eq!(planned(&spec, true, &["paused", "m2"], &[]), "others wait");
        let lacks = lacking(&spec, true, &["paused", "m2"]);
        assert!(
            lacks.is_empty(),
            "the event names {lacks:?}, and it is the pause"
        );
    }
}
