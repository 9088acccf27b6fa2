//! What has to happen happens: with clusters that can take a workload it is placed, and one that
//! has to leave its cluster has left, as fast as the rate allows; silence is noticed, and so is a
//! return. No malformed neighbour, dead process or lost event holds that up for ever.

use jiff::SignedDuration;
use serde_json::Value;

use super::objects::{self, Binding, Cluster};
use super::scene::Scene;
use super::{End, Oracle, Violation};
use crate::feature::DRAIN;
use crate::history::{Api, Entry, Event, Key, Phase, Process, World};

const NAME: &str = "progress";

/// The oracle.
#[derive(Debug, Default)]
pub struct Progress;

impl Oracle for Progress {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let rests = matches!(entry.event, Event::World(World::Phase(Phase::Rest)));
        if rests { overdue(scene) } else { Vec::new() }
    }

    fn end(&mut self, _: &End, scene: &Scene) -> Vec<Violation> {
        overdue(scene)
    }
}

fn overdue(scene: &Scene) -> Vec<Violation> {
    let runs = scene
        .running
        .keys()
        .any(|it| matches!(it, Process::ControlPlane(_)));
    // A control plane that began a moment ago counts each grace period anew.
    if !runs || scene.calm() < scene.rules.grace + scene.rules.prompt {
        return Vec::new();
    }
    let mut reported = Vec::new();
    for (name, cluster) in scene.clusters() {
        if let Some(problem) = unnoticed(scene, name, cluster) {
            let key = objects::key(&Api::Fleet, objects::CLUSTER, "clusters", "", name);
            reported.push(scene.violation(NAME, &key, &problem));
        }
    }
    let leaving: usize = scene
        .bindings()
        .map(|(_, binding)| {
            binding
                .clusters()
                .into_keys()
                .filter(|it| drives_out(scene, binding, it))
                .count()
        })
        .sum();
    for (key, binding) in scene.bindings() {
        if let Some(problem) = unplaced(scene, binding) {
            reported.push(scene.violation(NAME, key, &problem));
        }
        for cluster in binding.clusters().into_keys() {
            if drives_out(scene, binding, cluster)
                && is_overdue(scene, cluster, leaving)
                && let Some(refuge) = refuge(scene, binding, cluster)
            {
                let message = format!("is on {cluster} still, which it has to leave for {refuge}");
                reported.push(scene.violation(NAME, key, &message));
            }
        }
    }
    reported
}

/// Returns a state of a cluster that its condition does not show.
fn unnoticed(scene: &Scene, name: &str, cluster: Cluster<'_>) -> Option<String> {
    if objects::text(cluster.0, "/spec/syncMode") == "Push" || objects::is_deleting(cluster.0) {
        return None;
    }
    let agent = Process::Agent(name.to_owned());
    let since = |time: Option<&jiff::Timestamp>| {
        time.map_or(SignedDuration::ZERO, |time| scene.now.duration_since(*time))
    };
    let noticed = scene.rules.grace + scene.rules.prompt;
    let silent = since(scene.cut_off.get(name));
    if silent > noticed && cluster.ready() == Some("True") {
        return Some(format!("has been cut off for {silent:#} and is Ready"));
    }
    let runs = since(scene.running.get(&agent)) > noticed;
    let is_well = runs && scene.is_reachable(name);
    // One that is registered twice, or whose report is refused, says so by other conditions.
    (is_well && cluster.ready() == Some("Unknown"))
        .then(|| "is up and reachable, and not heard of".to_owned())
}

/// Returns a workload without clusters that could be placed.
fn unplaced(scene: &Scene, binding: Binding<'_>) -> Option<String> {
    let spec = &binding.0["spec"];
    let is_ours =
        ["", "default-scheduler"].contains(&objects::text(binding.0, "/spec/schedulerName"));
    if !binding.clusters().is_empty()
        || objects::is_deleting(binding.0)
        || spec["placement"].is_null()
        || spec["suspension"]["scheduling"] == true
        || !is_ours
        || has_completed(scene, binding, Api::Fleet)
    {
        return None;
    }
    // What moves a copy that a task keeps waits for the rate.
    let keeps_copy = objects::items(binding.0, "/spec/gracefulEvictionTasks")
        .next()
        .is_some();
    if keeps_copy && is_stopped(scene) {
        return None;
    }
    // One that asks for no replicas is placed only where the flag says so.
    let template = binding.template().and_then(|it| scene.objects.get(&it));
    let asks_for_none = template.is_some_and(|it| it.pointer("/spec/replicas") == Some(&0.into()));
    let refuge = refuge(scene, binding, "").filter(|_| !asks_for_none)?;
    Some(format!("is nowhere, and {refuge} could take it"))
}

/// Returns whether a cluster has a taint that drives the workload out now.
fn drives_out(scene: &Scene, binding: Binding<'_>, name: &str) -> bool {
    let is_held = binding.0["spec"]["suspension"]["scheduling"] == true;
    let Some(cluster) = scene
        .cluster(name)
        .filter(|_| scene.rules.failover && !is_held)
    else {
        return false;
    };
    let behavior = binding.0.pointer("/spec/failover/cluster");
    !has_completed(scene, binding, Api::Member(name.to_owned()))
        && cluster.taints().any(|taint| {
            let seconds = match objects::text(taint, "/effect") {
                "NoExecute" => binding.tolerated_for(taint),
                "PreferNoExecute" => behavior
                    .filter(|it| it.is_object())
                    .map(|it| objects::number(it, "/tolerationSeconds").unwrap_or(300)),
                _ => None,
            };
            let added = objects::time(taint, "/timeAdded");
            seconds.zip(added).is_some_and(|(seconds, added)| {
                scene.now.duration_since(added)
                    > SignedDuration::from_secs(seconds) + scene.rules.prompt
            })
        })
}

/// Returns whether the workload is a Job that has completed in a cluster, and stays there, or, as
/// its template says, in all clusters that it had: in another one it would run again.
fn has_completed(scene: &Scene, binding: Binding<'_>, api: Api) -> bool {
    let job = binding.template().map(|template| Key { api, ..template });
    let job = job.filter(|key| key.group == "batch" && key.plural == "jobs");
    let job = job.and_then(|key| scene.objects.get(&key));
    job.is_some_and(|job| {
        let is_done =
            |end: &str| objects::condition(job, end).is_some_and(|it| it["status"] == "True");
        is_done("Complete") || is_done("SuccessCriteriaMet")
    })
}

/// Returns whether the rate has had time for everything that waits.
fn is_overdue(scene: &Scene, cluster: &str, leaving: usize) -> bool {
    if is_stopped(scene) || has_returned(scene, cluster) {
        return false;
    }
    let waiting = i32::try_from(leaving).unwrap_or(i32::MAX);
    let needed = SignedDuration::from_secs_f64(f64::from(waiting) / scene.rules.primary_rate);
    scene.evicts_for(cluster) > needed + scene.rules.prompt && scene.calm() > needed
}

/// Returns whether a cluster is back, ready or seen by its peers, and each taint that drives
/// workloads out of it is on its way out, because the conditions of its policies match no more: it
/// moves nothing until it is gone.
fn has_returned(scene: &Scene, cluster: &str) -> bool {
    let Some(cluster) = scene.cluster(cluster) else {
        return false;
    };
    let says = |kind| objects::condition(cluster.0, kind).is_some_and(|it| it["status"] == "True");
    if !says("Ready") && !says("SeenByPeers") {
        return false;
    }
    let record = objects::text(cluster.0, "/metadata/annotations/taints.muster.io~1record");
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    let is_going = |taint: &Value| {
        let of = |it: &&Value| it["key"] == taint["key"] && it["effect"] == taint["effect"];
        let owned = objects::items(&record, "/taints").find(of);
        let mut holders = owned
            .into_iter()
            .flat_map(|it| objects::items(it, "/heldBy"));
        let has_let_go = |policy: &Value| {
            let policy = policy.as_str().unwrap_or_default();
            record["windows"][policy]["matched"] == false
        };
        owned.is_some_and(|it| it["heldBy"].is_array()) && holders.all(has_let_go)
    };
    cluster
        .taints()
        .filter(|it| objects::evicts(it))
        .all(is_going)
}

/// Returns whether the rate need not let anything leave: among many failures it is another one, and
/// what it allows then is not worth a rule.
fn is_stopped(scene: &Scene) -> bool {
    let (all, failed) = scene.clusters().fold((0.0, 0.0), |(all, failed), (_, it)| {
        (all + 1.0, failed + f64::from(u8::from(it.has_failed())))
    });
    failed > scene.rules.unhealthy_threshold * all || scene.rules.primary_rate <= 0.0
}

/// Returns a cluster that could take a workload, by rules so simple that they leave no doubt: it is
/// ready, has no taint at all, the placement allows it and spreads nothing, dispatching to it is
/// not suspended, and most of it is free. A cluster that has a copy takes none over, unless a
/// person drains the other one.
fn refuge(scene: &Scene, binding: Binding<'_>, but: &str) -> Option<String> {
    let placement = &binding.0["spec"]["placement"];
    let is_plain = ["spreadConstraints", "clusterAffinities", "workloadAffinity"]
        .iter()
        .all(|field| placement[*field].is_null());
    let strategy = &placement["replicaScheduling"];
    let is_divided = !strategy.is_null() && strategy["replicaSchedulingType"] != "Duplicated";
    let by_weight = !strategy["weightPreference"]["staticWeightList"].is_null();
    if !is_plain || by_weight || objects::is_deleting(binding.0) || placement.is_null() {
        return None;
    }
    // A policy that keeps the old copy, and allows no other one beside it.
    let modes = [
        binding.cluster_purge_mode(),
        binding.application_purge_mode(),
    ];
    let preserves = binding.0["spec"]["preserveResourcesOnDeletion"] == true;
    if scene.is_fenced(binding) && (preserves || modes.contains(&"Never")) {
        return None;
    }
    let kind = objects::text(binding.0, "/spec/resource/kind");
    // A cluster that has a part of a Job takes no more of it. A copy that would go at once goes
    // only for another cluster, which takes its part over beside the others.
    let goes_first = scene.is_fenced(binding) || modes.contains(&"Directly");
    let has_parts = kind == "Job" && is_divided && goes_first;
    let mut others = binding.clusters().into_keys().filter(|it| *it != but);
    let stays = |name: &str| {
        let cluster = scene.cluster(name);
        cluster.is_some_and(|it| is_well(scene, binding, (name, it)))
    };
    if has_parts && !others.all(stays) {
        return None;
    }
    // A copy under a taint is better than none where nobody gains one by its departure.
    let is_emptied = scene.cluster(but).is_some_and(|cluster| {
        let mut taints = cluster.taints();
        taints.any(|it| it["key"] == DRAIN && it["effect"] == "NoExecute")
    });
    let found = scene.clusters().find(|(name, cluster)| {
        let is_whole = !is_divided
            || binding.0["spec"]["replicas"]
                .as_i64()
                .is_none_or(|it| it == 0);
        let has_it = binding.clusters().contains_key(name) && is_whole;
        let holds_it = has_it && is_emptied;
        let has_part = has_parts && binding.clusters().contains_key(name);
        *name != but
            && (holds_it || !has_it)
            && !has_part
            && is_well(scene, binding, (*name, *cluster))
            && binding.task(name).is_none()
            && objects::condition(cluster.0, "WorksUpToDate")
                .is_none_or(|it| it["status"] == "True")
            && objects::condition(cluster.0, "UniqueIdentity")
                .is_none_or(|it| it["status"] == "True")
            && serves(
                cluster.0,
                objects::text(binding.0, "/spec/resource/apiVersion"),
                kind,
            )
            && (holds_it || has_room(cluster.0, binding))
    });
    found.map(|(name, _)| name.to_owned())
}

/// Returns whether nothing speaks against a copy of a workload in a cluster: the cluster is ready
/// and has no taint, the placement allows it, and dispatching to it is not suspended.
fn is_well(scene: &Scene, binding: Binding<'_>, (name, cluster): (&str, Cluster<'_>)) -> bool {
    let affinity = &binding.0["spec"]["placement"]["clusterAffinity"];
    scene.is_reachable(name)
        && cluster.ready() == Some("True")
        && cluster.taints().next().is_none()
        && !objects::is_deleting(cluster.0)
        && !binding.is_suspended_in(name)
        && is_allowed(affinity, name, cluster.0)
}

fn serves(cluster: &Value, version: &str, kind: &str) -> bool {
    objects::items(cluster, "/status/apiEnablements")
        .filter(|group| group["groupVersion"] == version)
        .flat_map(|group| objects::items(group, "/resources"))
        .any(|resource| resource["kind"] == kind)
}

/// Returns whether an affinity of names and labels lets a cluster in; one of another shape lets
/// none in.
fn is_allowed(affinity: &Value, name: &str, cluster: &Value) -> bool {
    let known = ["clusterNames", "exclude", "labelSelector"];
    let fields = affinity.as_object();
    let is_known = fields.is_none_or(|it| it.keys().all(|field| known.contains(&field.as_str())))
        && affinity["labelSelector"]["matchExpressions"].is_null();
    is_known && !objects::rules_out(affinity, name, cluster)
}

/// Returns whether there are ten times as many free places for pods as the workload has, and it
/// asks for nothing else.
fn has_room(cluster: &Value, binding: Binding<'_>) -> bool {
    let replicas = binding.0["spec"]["replicas"].as_i64().unwrap_or_default();
    if replicas == 0 {
        return true;
    }
    let asks = &binding.0["spec"]["replicaRequirements"]["resourceRequest"];
    let pods = |list: &str| {
        let amount = &cluster["status"]["resourceSummary"][list]["pods"];
        amount
            .as_str()
            .and_then(|it| it.parse::<i64>().ok())
            .unwrap_or_default()
    };
    let free = pods("allocatable") - pods("allocated") - pods("allocating");
    asks.as_object().is_none_or(serde_json::Map::is_empty) && free >= replicas.saturating_mul(10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    type State = Box<dyn Fn(&str) -> Value>;

    fn serving(ready: &str, taints: &[&str], since: &str) -> Value {
        let mut cluster = cluster(ready, taints);
        for taint in cluster["spec"]["taints"].as_array_mut().expect("taints") {
            taint["timeAdded"] = json!(since);
        }
        cluster["status"]["apiEnablements"] =
            json!([{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}]);
        cluster["status"]["resourceSummary"] = json!({"allocatable": {"pods": "110"}});
        cluster
    }

    /// Makes a story in which `m1` is tainted, `m2` is as given and the control plane runs.
    fn story(state: impl Fn(&str) -> Value, placed: Value) -> Story<Progress> {
        let mut story = Story::new(Progress);
        let leader = World::Started(Process::ControlPlane(0));
        story.world(leader);
        let since = story.time();
        let tainted = serving("True", &["x:NoExecute"], &since);
        story.write(person(), &cluster_key("m1"), tainted);
        story.write(person(), &cluster_key("m2"), state(&since));
        story.write(person(), &cluster_key("m3"), cluster("True", &[]));
        story.write(control_plane(), &binding_key("web"), placed);
        story
    }

    #[test]
    fn who_has_to_leave_has_left_when_there_is_a_place() {
        let well = |since: &str| serving("True", &[], since);
        let silent = |since: &str| serving("Unknown", &[], since);
        let tainted = |since: &str| serving("True", &["y:NoSchedule"], since);
        let cases: [(&str, State, &str, i64, bool); 6] = [
            ("a place", Box::new(well), "m1", 600, false),
            ("a place, early", Box::new(well), "m1", 60, true),
            ("silence", Box::new(silent), "m1", 600, true),
            ("a taint", Box::new(tainted), "m1", 600, true),
            ("moved", Box::new(well), "m2", 600, true),
            ("nowhere", Box::new(well), "", 600, false),
        ];
        for (what, state, place, seconds, is_kept) in cases {
            let targets: Vec<&str> = [place].into_iter().filter(|it| !it.is_empty()).collect();
            let mut story = story(state, binding(&targets));
            story.wait(seconds).ends_without("m2", is_kept, what);
        }
    }

    #[test]
    fn what_is_in_a_cluster_whose_taint_is_on_its_way_out_may_stay() {
        for (ready, matched, is_kept) in [
            ("True", false, true),
            ("True", true, false),
            ("Unknown", false, false),
        ] {
            let well = |since: &str| serving("True", &[], since);
            let mut story = story(well, binding(&["m1"]));
            let since = story.time();
            let mut back = serving(ready, &["x:NoExecute"], &since);
            let record = json!({
                "taints": [{"key": "x", "effect": "NoExecute", "heldBy": ["dead"]}],
                "windows": {"dead": {"matched": matched}},
            });
            back["metadata"] =
                json!({"annotations": {"taints.muster.io/record": record.to_string()}});
            story.write(person(), &cluster_key("m1"), back);
            story.wait(600).ends(is_kept, (ready, matched));
        }
    }

    #[test]
    fn a_copy_under_a_taint_leaves_for_one_that_is_there_only_where_a_person_drains() {
        for (key, is_kept) in [("x", true), (DRAIN, false)] {
            let well = |since: &str| serving("True", &[], since);
            let mut story = story(well, binding(&["m1", "m2"]));
            let since = story.time();
            let tainted = serving("True", &[&format!("{key}:NoExecute")], &since);
            story.write(person(), &cluster_key("m1"), tainted);
            story.wait(600).ends(is_kept, key);
        }
    }

    #[test]
    fn a_copy_that_a_task_keeps_waits_while_too_many_clusters_have_failed() {
        for (failed, has_task, is_kept) in [(2, true, true), (2, false, false), (1, true, false)] {
            let well = |since: &str| serving("True", &[], since);
            let mut nowhere = binding(&[]);
            if has_task {
                nowhere["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "m1"}]);
            }
            let mut story = story(well, nowhere);
            if failed == 2 {
                let tainted = cluster("True", &["x:NoExecute"]);
                story.write(person(), &cluster_key("m3"), tainted);
            }
            let case = (failed, has_task);
            story.wait(600).ends_without("nowhere", is_kept, case);
        }
    }

    #[test]
    fn a_job_that_has_completed_is_not_run_again_though_it_has_lost_its_cluster() {
        for (end, is_kept) in [("Complete", true), ("Suspended", false)] {
            let well = |since: &str| {
                let mut well = serving("True", &[], since);
                well["status"]["apiEnablements"] =
                    json!([{"groupVersion": "batch/v1", "resources": [{"kind": "Job"}]}]);
                well
            };
            let mut nowhere = binding(&[]);
            nowhere["spec"]["resource"]["apiVersion"] = json!("batch/v1");
            nowhere["spec"]["resource"]["kind"] = json!("Job");
            let template = objects::key(&Api::Fleet, "batch", "jobs", "default", "web");
            let mut story = story(well, nowhere);
            let status = json!({"conditions": [{"type": end, "status": "True"}]});
            story.write(person(), &template, json!({"status": status}));
            story.wait(600).ends_without("nowhere", is_kept, end);
        }
    }

    #[test]
    fn a_part_of_a_job_leaves_at_once_for_a_cluster_without_a_part() {
        let serving_jobs = |taints: &[&str], since: &str| {
            let mut cluster = serving("True", taints, since);
            cluster["status"]["apiEnablements"] =
                json!([{"groupVersion": "batch/v1", "resources": [{"kind": "Job"}]}]);
            cluster
        };
        for (mode, of_m2, has_place, is_kept) in [
            ("Directly", &[][..], true, false),
            ("Directly", &[], false, true),
            ("Directly", &["y:NoSchedule"], true, true),
            ("Gracefully", &[], false, false),
        ] {
            let mut placed = binding(&["m1", "m2"]);
            placed["spec"]["resource"]["apiVersion"] = json!("batch/v1");
            placed["spec"]["resource"]["kind"] = json!("Job");
            let divided = json!({"replicaSchedulingType": "Divided"});
            placed["spec"]["placement"]["replicaScheduling"] = divided;
            placed["spec"]["failover"] = json!({"cluster": {"purgeMode": mode}});
            let mut story = story(|since| serving_jobs(of_m2, since), placed);
            let since = story.time();
            if has_place {
                story.write(person(), &cluster_key("m3"), serving_jobs(&[], &since));
            }
            let case = (mode, of_m2, has_place);
            story
                .wait(600)
                .ends_without("is on m1 still", is_kept, case);
        }
    }

    #[test]
    fn what_is_not_counted_is_not_divided() {
        for (replicas, is_kept) in [(Value::Null, true), (json!(2), false)] {
            let well = |since: &str| serving("True", &[], since);
            let mut placed = binding(&["m1", "m2"]);
            placed["spec"]["replicas"] = replicas.clone();
            let divided = json!({"replicaSchedulingType": "Divided"});
            placed["spec"]["placement"]["replicaScheduling"] = divided;
            let mut story = story(well, placed);
            story.wait(600).ends(is_kept, replicas);
        }
    }

    #[test]
    fn a_cluster_to_which_nothing_is_sent_takes_nothing() {
        let not_to = |cluster: &str| json!({"dispatchingOnClusters": {"clusterNames": [cluster]}});
        let well = |since: &str| serving("True", &[], since);
        for (suspension, is_kept) in [
            (json!(null), false),
            (json!({"dispatching": true}), true),
            (not_to("m2"), true),
            (not_to("m1"), false),
        ] {
            let mut nowhere = binding(&[]);
            nowhere["spec"]["suspension"] = suspension.clone();
            let mut story = story(well, nowhere);
            story.wait(600).ends_without("m2", is_kept, suspension);
        }
    }

    #[test]
    fn silence_is_noticed_and_so_is_a_return() {
        let agent = || Process::Agent("m2".to_owned());
        for (what, ready, cut, is_kept) in [
            ("well", "True", false, true),
            ("silent", "True", true, false),
            ("noticed", "Unknown", true, true),
            ("back", "Unknown", false, false),
        ] {
            let mut story = story(|since| serving(ready, &[], since), binding(&["m3"]));
            story.world(World::Started(agent()));
            if cut {
                story.world(World::CutOff("m2".to_owned()));
            }
            story.wait(600).ends(is_kept, what);
        }
    }

    #[test]
    fn an_agent_that_ends_by_itself_again_and_again_is_no_excuse() {
        for (killed, is_kept) in [(false, false), (true, true)] {
            let silent = |since: &str| serving("Unknown", &[], since);
            let mut story = story(silent, binding(&["m3"]));
            let process = Process::Agent("m2".to_owned());
            story.world(World::Started(process.clone()));
            for _ in 0..6 {
                let stopped = World::Stopped {
                    process: process.clone(),
                    killed,
                };
                story.wait(100).world(stopped);
                story.world(World::Started(process.clone()));
            }
            story.ends(is_kept, killed);
        }
    }

    #[test]
    fn nothing_is_expected_while_nothing_runs_or_a_fault_lasts() {
        let well = |since: &str| serving("True", &[], since);
        let mut stopped = story(well, binding(&["m1"]));
        stopped.world(World::Stopped {
            process: Process::ControlPlane(0),
            killed: true,
        });
        assert_eq!(stopped.wait(600).end(), [""; 0]);
        let mut faulty = story(well, binding(&["m1"]));
        faulty.world(World::FaultBegins {
            id: 1,
            kind: "lag".to_owned(),
            detail: json!({}),
        });
        assert_eq!(faulty.wait(600).end(), [""; 0]);
    }
}
