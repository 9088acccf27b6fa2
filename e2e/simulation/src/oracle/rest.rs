//! Safety contract 10: a fleet at rest writes nothing but leases, nor does one that is started
//! anew.
//!
//! A workload that waits to leave its cluster, or for its new placement, is not at rest when it is
//! started anew: it is tried once more, and what it waits for is reported. What has no effect in a
//! policy is reported once by each process that audits it. What a wrong clock dated into the
//! future is set right, and what ends at a time ends later by as much as a clock was behind. A
//! fleet in which a graceful eviction goes on is not at rest: an application may fail wherever it
//! comes to.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, Task};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Key, Outcome, Phase, Request, World};

const NAME: &str = "rest";

/// Refusals of one object that a process may bring on itself in a phase at rest: it asks again,
/// ever more rarely.
const REFUSALS: u32 = 8;
/// The same of a process that has just started: its pauses, the first of which is a tenth of a
/// second, become longer than the phase after so many.
const REFUSALS_AT_FIRST: u32 = 12;

/// Reasons for which a new placement that was asked for waits. Which of them it is depends on who
/// waits before it.
const HELD: [&str; 4] = [
    "Paused",
    "WaitingForRate",
    "StoppedByThreshold",
    "TargetObstructed",
];

/// Beginning of the name of the ConfigMap in which an agent keeps when it renewed its lease last.
const RENEWAL: &str = "muster-fencing-";

/// Time after which a warning may be reported again.
const NEARLY_AN_HOUR: SignedDuration = SignedDuration::from_mins(50);

/// The oracle.
#[derive(Debug, Default)]
pub struct Rest {
    /// Whether a graceful eviction went on when the phase began.
    is_moving: bool,
    /// Writes of an object by a process that were refused in this phase.
    refused: BTreeMap<(Actor, Key), u32>,
    /// Objects that were dated into the future when they were changed after a fresh start, and the
    /// templates of such bindings.
    redated: BTreeSet<Key>,
}

impl Rest {
    /// Returns whether a change sets a date right that a wrong clock wrote, or reports one that
    /// did.
    fn sets_date_right(&mut self, request: &Request, scene: &Scene) -> bool {
        if scene.clock_error() == SignedDuration::ZERO {
            return false;
        }
        let is_wrong = |object: &Value| {
            objects::is_dated_after(object, scene.now) || is_reported_before_it_happened(object)
        };
        if request.before.as_deref().is_some_and(is_wrong) {
            let after = request.after.as_deref();
            let template = after.and_then(|it| objects::Binding(it).template());
            self.redated.extend(template);
            self.redated.insert(request.key());
            return true;
        }
        let about = request.after.as_deref().map(|it| &it["involvedObject"]);
        let about = about.and_then(|about| objects::referent(&request.api, about));
        // The record of a failover follows what is said of the workloads of its cluster.
        let cluster = request.after.as_deref();
        let cluster = cluster.filter(|it| it["kind"] == "Failover").map(|it| {
            let name = objects::text(it, "/spec/cluster");
            objects::key(&Api::Fleet, objects::CLUSTER, "clusters", "", name)
        });
        let mut related = about.into_iter().chain(cluster);
        related.any(|it| self.redated.contains(&it))
    }
}

/// Returns whether a binding says something of its eviction since a time before that of its last
/// eviction: the clock was behind when it was said.
fn is_reported_before_it_happened(object: &Value) -> bool {
    let record = objects::annotation(object, objects::LAST_EVICTION);
    let record = record.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let evicted = record.and_then(|record| objects::time(&record, "/at"));
    let reported = objects::condition(object, "EvictionPending");
    let reported = reported.and_then(|reported| objects::time(reported, "/lastTransitionTime"));
    evicted
        .zip(reported)
        .is_some_and(|(evicted, reported)| reported < evicted)
}

impl Oracle for Rest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        if matches!(entry.world(), Some(World::Phase(_))) {
            self.refused.clear();
            self.is_moving = scene
                .bindings()
                .any(|(_, it)| it.tasks().any(ends_by_itself));
        }
        let Some(request) = entry.request() else {
            return Vec::new();
        };
        let by_product = matches!(request.actor, Actor::Process(_));
        // So is the record of the last renewal, which an agent that fences keeps in its member.
        let is_lease =
            request.resource.group == "coordination.k8s.io" || request.name.starts_with(RENEWAL);
        if scene.phase < Phase::Rest || !by_product || is_lease || self.is_moving {
            return Vec::new();
        }
        let after = request.after.as_deref();
        let is_expected = || {
            let is_policy = after.is_some_and(|it| is_policy(&it["kind"]));
            let is_change = !is_policy || request.outcome == Outcome::Committed;
            is_change && waits(after, scene) || warns_again(after, scene)
        };
        // The agent of a cluster that leaves may not read its Works any more, and says so anew.
        let leaves =
            request.resource.plural == "clusters" && after.is_some_and(objects::is_deleting);
        let mut is_excused = || {
            is_expected()
                || leaves
                || ends_late(request, scene)
                || self.sets_date_right(request, scene)
        };
        if scene.phase == Phase::Fresh && is_excused() {
            return Vec::new();
        }
        if warns_hourly(after, scene) {
            return Vec::new();
        }
        let what = match request.outcome {
            Outcome::Committed => "changes",
            Outcome::Unchanged => "writes without a change to",
            Outcome::Refused(_) => {
                let of = (request.actor.clone(), request.key());
                let times = self.refused.entry(of).or_default();
                *times += 1;
                let is_fresh = scene.phase == Phase::Fresh;
                if *times
                    != (if is_fresh {
                        REFUSALS_AT_FIRST
                    } else {
                        REFUSALS
                    })
                {
                    return Vec::new();
                }
                "is refused again and again to change"
            }
            Outcome::Lost => return Vec::new(),
        };
        let when = if scene.phase == Phase::Rest {
            "at rest"
        } else {
            "after a fresh start"
        };
        let message = format!("{} {what} it {when}", request.actor);
        vec![scene.violation(NAME, &request.key(), &message)]
    }
}

/// Returns whether a rebalancer is deleted later than it says, by no more than a clock was behind.
fn ends_late(request: &Request, scene: &Scene) -> bool {
    let finished = request
        .before
        .as_deref()
        .filter(|_| request.after.is_none());
    let end = finished.and_then(|it| {
        let seconds = objects::number(it, "/spec/ttlSecondsAfterFinished")?;
        Some(objects::time(it, "/status/finishTime")? + SignedDuration::from_secs(seconds))
    });
    let error = scene.clock_error();
    error > SignedDuration::ZERO && end.is_some_and(|end| scene.now < end + error)
}

/// Returns whether an object is a warning that was there before about the same object, for the same
/// reason: a process does not know what the one before it said of what is still wrong.
fn warns_again(object: Option<&Value>, scene: &Scene) -> bool {
    object.is_some_and(|event| earlier_warnings(event, scene).next().is_some())
}

/// Returns whether an object is a warning that was reported last an hour before or nearly so: the
/// API forgets events after an hour, and what is still wrong is reported again then.
fn warns_hourly(object: Option<&Value>, scene: &Scene) -> bool {
    let time = |event: &Value| -> Option<Timestamp> {
        let text = event.pointer("/lastTimestamp")?.as_str()?;
        text.parse().ok()
    };
    let Some((event, now)) = object.and_then(|event| Some((event, time(event)?))) else {
        return false;
    };
    let last = earlier_warnings(event, scene).filter_map(time).max();
    last.is_some_and(|last| now.duration_since(last) >= NEARLY_AN_HOUR)
}

/// Returns the warnings about the object of a warning and for its reason that were there before it.
fn earlier_warnings<'a>(event: &'a Value, scene: &'a Scene) -> impl Iterator<Item = &'a Value> {
    let is_warning = |it: &Value| it["kind"] == "Event" && it["type"] == "Warning";
    let is_same = |other: &Value, field: &str| other.pointer(field) == event.pointer(field);
    let fields = [
        "/metadata/namespace",
        "/involvedObject/kind",
        "/involvedObject/namespace",
        "/involvedObject/name",
        "/reason",
    ];
    let others = scene.objects.values().map(AsRef::as_ref);
    others.filter(move |other| {
        is_warning(event)
            && is_warning(other)
            && !is_same(other, "/metadata/name")
            && fields.iter().all(|field| is_same(other, field))
    })
}

/// Returns whether a graceful eviction comes to an end without a person.
fn ends_by_itself(task: Task<'_>) -> bool {
    !task.0["suppressDeletion"].is_boolean()
}

fn is_policy(kind: &Value) -> bool {
    kind == "PropagationPolicy" || kind == "ClusterPropagationPolicy"
}

/// Returns whether the status of a policy has the reason for which a binding of the policy waits.
fn repeats_reason(policy: &Value, binding: &Value) -> bool {
    let ids = policy
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let mut ids = ids.into_iter().flatten();
    let is_its = ids.any(|(label, id)| {
        label.ends_with("permanent-id") && binding["metadata"]["labels"].get(label) == Some(id)
    });
    let reasons = policy.pointer("/status/reasons").and_then(Value::as_array);
    let mut reasons = reasons.into_iter().flatten();
    let why = objects::condition(binding, "EvictionPending").map(|it| &it["reason"]);
    is_its && reasons.any(|it| Some(&it["reason"]) == why)
}

/// Returns whether an object is a binding that waits for an eviction, an event of such a wait, a
/// policy or a Failover whose status repeats its reason, or an event that warns of a policy.
fn waits(object: Option<&Value>, scene: &Scene) -> bool {
    let Some(object) = object else {
        return false;
    };
    let pending = |binding: &Value| {
        objects::condition(binding, "EvictionPending").is_some_and(|it| it["status"] == "True")
            || objects::condition(binding, "Scheduled")
                .is_some_and(|it| HELD.contains(&objects::text(it, "/reason")))
    };
    if is_policy(&object["kind"]) {
        let mut bindings = scene.bindings();
        return bindings.any(|(_, it)| pending(it.0) && repeats_reason(object, it.0));
    }
    if object["kind"] == "Failover" {
        // The record of a failover repeats what its workloads wait for.
        let cluster = objects::text(object, "/spec/cluster");
        let mut bindings = scene.bindings();
        return bindings.any(|(_, it)| pending(it.0) && it.keeps(cluster));
    }
    if object["kind"] != "Event" {
        return pending(object);
    }
    let about = &object["involvedObject"];
    match about["kind"].as_str() {
        Some("PropagationPolicy" | "ClusterPropagationPolicy") => true,
        // It says what the workloads wait for that it has still to place anew.
        Some("WorkloadRebalancer") => {
            let rebalancer = objects::referent(&Api::Fleet, about);
            let rebalancer = rebalancer.and_then(|key| scene.objects.get(&key));
            rebalancer.is_some_and(|it| it["status"]["finishTime"].is_null())
        }
        Some("Cluster") => {
            let name = objects::text(about, "/name");
            objects::text(object, "/reason").starts_with("Evict")
                && scene.evicts_for(name) > jiff::SignedDuration::ZERO
        }
        Some("ResourceBinding" | "ClusterResourceBinding") => {
            let binding = objects::referent(&Api::Fleet, about);
            binding.is_some_and(|key| scene.objects.get(&key).is_some_and(|it| pending(it)))
        }
        _ => {
            let template = objects::referent(&Api::Fleet, about);
            let mut bindings = scene.bindings();
            bindings.any(|(_, binding)| binding.template() == template && pending(binding.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Rules;
    use super::super::testing::*;
    use super::*;
    use crate::history::Process;

    #[test]
    fn who_waits_to_leave_is_tried_and_reported_once_more_after_a_fresh_start() {
        let event = |name: &str| {
            let kind = "Deployment";
            let about = json!({"apiVersion": "apps/v1", "kind": kind, "namespace": "default", "name": name});
            json!({"kind": "Event", "reason": "WaitingForRate", "involvedObject": about})
        };
        let condition = json!([{"type": "EvictionPending", "status": "True"}]);
        let mut waiting = binding(&["m1"]);
        waiting["status"] = json!({"conditions": condition});
        let key = objects::key(&Api::Fleet, "", "events", "default", "e");
        for (phase, about, is_kept) in [
            (Phase::Rest, "web", false),
            (Phase::Fresh, "web", true),
            (Phase::Fresh, "api", false),
        ] {
            let mut story = Story::new(Rest::default());
            story.write(control_plane(), &binding_key("web"), waiting.clone());
            story.world(World::Phase(phase));
            story.write(control_plane(), &key, event(about));
            story.keeps(is_kept, (phase, about));
        }
    }

    #[test]
    fn who_waits_for_a_new_placement_is_reported_once_more_after_a_fresh_start() {
        for (phase, reason, is_kept) in [
            (Phase::Fresh, "StoppedByThreshold", true),
            (Phase::Fresh, "NoClusterFit", false),
            (Phase::Rest, "StoppedByThreshold", false),
        ] {
            let mut story = Story::new(Rest::default());
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.world(World::Phase(phase));
            let reported = json!({"type": "Scheduled", "status": "True", "reason": reason});
            let patch = json!({"status": {"conditions": [reported]}});
            story.patch(control_plane(), &binding_key("web"), &patch);
            story.keeps(is_kept, (phase, reason));
        }
    }

    #[test]
    fn what_a_rebalancer_waits_for_is_reported_once_more_after_a_fresh_start() {
        let about = json!({"apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer", "name": "r"});
        let event = json!({"kind": "Event", "reason": "RebalancePending", "involvedObject": about});
        let key = |group, plural, namespace, name| {
            objects::key(&Api::Fleet, group, plural, namespace, name)
        };
        for (phase, finished, is_kept) in [
            (Phase::Rest, json!(null), false),
            (Phase::Fresh, json!(null), true),
            (Phase::Fresh, json!("2030-01-01T00:00:00Z"), false),
        ] {
            let mut story = Story::new(Rest::default());
            let rebalancer =
                json!({"kind": "WorkloadRebalancer", "status": {"finishTime": finished}});
            let of = key("apps.karmada.io", "workloadrebalancers", "", "r");
            story.write(control_plane(), &of, rebalancer);
            story.world(World::Phase(phase));
            let of = key("", "events", "default", "e");
            story.write(control_plane(), &of, event.clone());
            story.keeps(is_kept, (phase, finished));
        }
    }

    #[test]
    fn a_policy_may_repeat_what_is_said_anew_of_a_workload_that_waits_to_leave() {
        let id = "propagationpolicy.karmada.io/permanent-id";
        for (reason, status, policy, is_kept) in [
            ("StoppedByThreshold", "True", "p", true),
            ("StoppedByThreshold", "True", "q", false),
            ("StoppedByThreshold", "False", "p", false),
            ("NoClusterFit", "True", "p", false),
        ] {
            let condition = json!({
                "type": "EvictionPending", "status": status, "reason": "StoppedByThreshold",
            });
            let mut waiting = binding(&["m1"]);
            waiting["status"] = json!({"conditions": [condition]});
            waiting["metadata"]["labels"] = json!({ id: "p" });
            let mut story = Story::new(Rest::default());
            story.write(control_plane(), &binding_key("web"), waiting);
            story.world(World::Phase(Phase::Fresh));
            let status = json!({"reasons": [{"reason": reason}]});
            let metadata = json!({"labels": { id: policy }});
            let policy =
                json!({"kind": "PropagationPolicy", "metadata": metadata, "status": status});
            let group = "policy.karmada.io";
            let key = objects::key(&Api::Fleet, group, "propagationpolicies", "default", "p");
            story.write(control_plane(), &key, policy);
            story.keeps(is_kept, reason);
        }
    }

    #[test]
    fn what_has_no_effect_in_a_policy_is_reported_by_each_process_that_starts() {
        let key = objects::key(&Api::Fleet, "", "events", "default", "e");
        for (phase, kind, is_kept) in [
            (Phase::Rest, "PropagationPolicy", false),
            (Phase::Fresh, "PropagationPolicy", true),
            (Phase::Fresh, "Deployment", false),
        ] {
            let mut story = Story::new(Rest::default());
            story.world(World::Phase(phase));
            let event = json!({"kind": "Event", "involvedObject": {"kind": kind, "name": "a"}});
            story.write(control_plane(), &key, event);
            story.keeps(is_kept, (phase, kind));
        }
    }

    #[test]
    fn what_is_still_wrong_is_reported_again_about_once_an_hour() {
        let event = |kind: &str, minute: u8| {
            let time = format!("2030-01-01T00:{minute:02}:00Z");
            json!({
                "kind": "Event", "metadata": {"namespace": "default", "name": time}, "type": kind,
                "reason": "InterpretFailed", "lastTimestamp": time,
                "involvedObject": {"kind": "Cluster", "name": "m1"},
            })
        };
        for (before, kind, minute, is_kept) in [
            (&[0][..], "Warning", 55, true),
            (&[0], "Warning", 30, false),
            (&[0, 30], "Warning", 55, false),
            (&[], "Warning", 55, false),
            (&[0], "Normal", 55, false),
        ] {
            let mut story = Story::new(Rest::default());
            let key = |name: &str| objects::key(&Api::Fleet, "", "events", "default", name);
            for minute in before {
                story.write(control_plane(), &key("before"), event("Warning", *minute));
            }
            story.world(World::Phase(Phase::Rest));
            story.write(control_plane(), &key("again"), event(kind, minute));
            story.keeps(is_kept, (before, kind, minute));
        }
    }

    #[test]
    fn what_is_still_wrong_is_reported_again_by_each_process_that_starts() {
        let event = |name: &str, kind: &str, reason: &str| {
            let about = json!({"kind": "Widget", "namespace": "default", "name": "a"});
            let metadata = json!({"namespace": "default", "name": name});
            json!({"kind": "Event", "metadata": metadata, "type": kind, "reason": reason, "involvedObject": about})
        };
        let key = |name| objects::key(&Api::Fleet, "", "events", "default", name);
        for (phase, kind, reason, is_kept) in [
            (Phase::Fresh, "Warning", "InterpretFailed", true),
            (Phase::Rest, "Warning", "InterpretFailed", false),
            (Phase::Fresh, "Warning", "AnotherReason", false),
            (Phase::Fresh, "Normal", "InterpretFailed", false),
        ] {
            let mut story = Story::new(Rest::default());
            let before = event("before", "Warning", "InterpretFailed");
            story.write(control_plane(), &key("before"), before);
            story.world(World::Phase(phase));
            story.write(control_plane(), &key("again"), event("again", kind, reason));
            story.keeps(is_kept, (phase, kind, reason));
        }
    }

    #[test]
    fn a_rebalancer_goes_later_than_it_says_by_as_much_as_a_clock_was_behind() {
        let key = objects::key(
            &Api::Fleet,
            "apps.karmada.io",
            "workloadrebalancers",
            "",
            "r",
        );
        for (what, jump, hours, is_kept) in [
            ("no clock was wrong", 0, 1, false),
            ("a clock was behind", -7_200, 1, true),
            ("it is later than that", -7_200, 4, false),
        ] {
            let rules = Rules {
                clock_error: SignedDuration::from_hours(2),
                ..Rules::default()
            };
            let mut story = Story::with(Rest::default(), rules);
            let detail = json!({"kind": "serverClock", "api": "fleet", "jump": jump});
            let (id, kind) = (1, "serverClock".to_owned());
            story.world(World::FaultBegins { id, kind, detail });
            story.world(World::Started(Process::ControlPlane(0)));
            story.world(World::FaultEnds { id });
            let finished = json!({
                "kind": "WorkloadRebalancer",
                "spec": {"ttlSecondsAfterFinished": 60},
                "status": {"finishTime": "1970-01-01T00:00:00Z"},
            });
            story
                .write(control_plane(), &key, finished)
                .wait(hours * 3_600);
            story.world(World::Phase(Phase::Fresh));
            story.write(control_plane(), &key, Value::Null);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn what_a_wrong_clock_dated_into_the_future_is_set_right_after_a_fresh_start() {
        let event = |name: &str| {
            let about = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name});
            json!({"kind": "Event", "involvedObject": about})
        };
        let key = objects::key(&Api::Fleet, "", "events", "default", "e");
        // The history is of the first hours of 1970.
        let (past, future) = ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z");
        for (phase, since, about, is_skewed, (is_kept, event_is_kept)) in [
            (Phase::Fresh, future, "web", true, (true, true)),
            (Phase::Fresh, future, "api", true, (true, false)),
            (Phase::Fresh, future, "web", false, (false, false)),
            (Phase::Fresh, past, "web", true, (false, false)),
            (Phase::Rest, future, "web", true, (false, false)),
        ] {
            let rules = Rules {
                clock_error: SignedDuration::from_hours(9),
                ..Rules::default()
            };
            let mut story = Story::with(Rest::default(), rules);
            if is_skewed {
                let detail = json!({"kind": "serverClock", "api": "fleet", "jump": 9_999});
                let (id, kind) = (1, "serverClock".to_owned());
                story.world(World::FaultBegins { id, kind, detail });
                story.world(World::Started(Process::ControlPlane(0)));
                story.world(World::FaultEnds { id });
            }
            let mut wrong = binding(&["m1"]);
            let message = format!("unhealthy since {since}.");
            let condition = json!([{"type": "ApplicationFailoverPending", "message": message}]);
            wrong["status"] = json!({"conditions": condition});
            story.write(control_plane(), &binding_key("web"), wrong);
            story.world(World::Phase(phase));
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            let reported = story.reported().len();
            assert_eq!(reported == 0, is_kept, "{phase:?} {since} {is_skewed}");
            story.write(control_plane(), &key, event(about));
            let tells = story.reported().len() - reported;
            assert_eq!(
                tells == 0,
                event_is_kept,
                "{phase:?} {since} {about} {is_skewed}"
            );
        }
    }

    #[test]
    fn a_fleet_in_which_a_graceful_eviction_goes_on_is_not_at_rest() {
        let kept = json!({"fromCluster": "m2", "suppressDeletion": true});
        for (tasks, is_kept) in [
            (json!([{"fromCluster": "m2"}]), true),
            (json!([kept]), false),
            (json!([]), false),
        ] {
            let mut story = Story::new(Rest::default());
            let mut leaving = binding(&["m1"]);
            leaving["spec"]["gracefulEvictionTasks"] = tasks.clone();
            story.write(control_plane(), &binding_key("web"), leaving);
            story.world(World::Phase(Phase::Rest));
            story.write(control_plane(), &binding_key("web"), binding(&["m1"]));
            story.keeps(is_kept, tasks);
        }
    }

    #[test]
    fn the_agent_of_a_cluster_that_leaves_reports_anew_after_a_fresh_start() {
        for (phase, leaves, is_kept) in [
            (Phase::Fresh, true, true),
            (Phase::Fresh, false, false),
            (Phase::Rest, true, false),
        ] {
            let mut story = Story::new(Rest::default());
            let mut reported = cluster("True", &[]);
            if leaves {
                reported["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            story.world(World::Phase(phase));
            story.write(agent("m1"), &cluster_key("m1"), reported);
            story.keeps(is_kept, (phase, leaves));
        }
    }

    #[test]
    fn a_fleet_at_rest_writes_leases_and_nothing_else() {
        let lease = objects::key(&Api::Fleet, "coordination.k8s.io", "leases", "x", "m1");
        let web = binding_key("web");
        for (phase, actor, key, is_kept) in [
            (Phase::Busy, control_plane(), &web, true),
            (Phase::Calm, control_plane(), &web, true),
            (Phase::Rest, control_plane(), &web, false),
            (Phase::Rest, agent("m1"), &lease, true),
            (Phase::Rest, Actor::Workloads, &web, true),
            (Phase::Fresh, control_plane(), &web, false),
            (Phase::Fresh, agent("m1"), &lease, true),
        ] {
            let mut story = Story::new(Rest::default());
            story.world(World::Phase(phase));
            story.write(actor.clone(), key, json!({}));
            story.keeps(is_kept, (phase, actor));
        }
    }

    #[test]
    fn who_is_refused_again_and_again_is_not_at_rest() {
        for (phase, times, is_kept) in [
            (Phase::Rest, 3, true),
            (Phase::Rest, 8, false),
            (Phase::Fresh, 11, true),
            (Phase::Fresh, 12, false),
            (Phase::Calm, 20, true),
        ] {
            let mut story = Story::new(Rest::default());
            story.world(World::Phase(phase));
            for _ in 0..times {
                story.refuse(control_plane(), &binding_key("web"), 422);
            }
            story.keeps(is_kept, (phase, times));
        }
    }
}
