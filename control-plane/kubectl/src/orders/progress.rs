//! Progress of a drain, as the bindings show it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use muster_control_plane::clusters::taint::default_tolerations::DefaultTolerations;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::movement::eviction::explain::{
    CONDITION, FAILED, STOPPED, STRANDED, has_completed,
};
use muster_control_plane::movement::eviction::inputs;
use muster_control_plane::movement::eviction::judge::{Judgement, Switches, judge};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::watch::Presence;
use serde::Serialize;

use super::preview::Line;
use crate::follow::{Deleted, Stopped};
use crate::old_copies::UNTIL_RELEASED;
use crate::table::indented;

/// Characters of the bar.
const BAR: usize = 24;

/// End of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left that can leave.
    Done,
    /// The drain itself has been ended.
    Undrained,
    /// A cluster has been removed from the fleet.
    Removed,
}

/// How far a drain has come. Workloads on two of the clusters count twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// Workloads that have left and whose old copies are gone, since the command began. The record
    /// of a failover counts them as soon as they are placed elsewhere.
    pub moved: usize,
    /// Workloads whose new copies are being started.
    pub replacing: usize,
    /// Workloads that wait in the queue.
    pub waiting: usize,
    /// Waiting workloads whose eviction could not be written and is tried again, each with the
    /// reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Line>,
    /// Workloads that stay until fewer clusters have failed.
    pub stopped: usize,
    /// Workloads that stay because they may.
    pub stay: usize,
    /// Workloads that have to leave and cannot, each with the reason.
    pub stuck: Vec<Line>,
    /// Workloads that have left and are healthy elsewhere, and whose old copies stay until somebody
    /// releases them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Line>,
    /// Whether the drain was under way when the command began: what had left before is not counted.
    pub is_resumed: bool,
    /// Reasons why nothing moves now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nothing_moves: Vec<String>,
}

impl Progress {
    /// Returns whether nothing is left that can leave.
    pub fn is_done(&self) -> bool {
        self.waiting == 0 && self.replacing == 0
    }

    /// Returns whether something stays that has to leave.
    pub fn is_stranded(&self) -> bool {
        !self.stuck.is_empty() || self.stopped > 0
    }

    /// Returns the progress in one line.
    pub fn line(&self, with_bar: bool) -> String {
        let all = self.moved + self.replacing + self.waiting + self.stopped + self.stuck.len();
        let mut line = String::new();
        if with_bar {
            let (done, half) = match all {
                0 => (BAR, 0),
                all => (self.moved * BAR / all, self.replacing * BAR / all),
            };
            let rest = BAR - done - half;
            let _ = write!(
                line,
                "[{}{}{}] ",
                "#".repeat(done),
                "=".repeat(half),
                "-".repeat(rest)
            );
        }
        let moved = if self.is_resumed {
            format!("{} moved of the {all} that were still there", self.moved)
        } else {
            format!("{} of {all} moved", self.moved)
        };
        let _ = write!(
            line,
            "{moved}, {} being replaced, {} waiting, {} stranded",
            self.replacing,
            self.waiting,
            self.stuck.len()
        );
        if self.stopped > 0 {
            let _ = write!(line, ", {} until fewer clusters have failed", self.stopped);
        }
        if !self.refused.is_empty() {
            let refused = self.refused.len();
            let words = "of those that wait could not leave at the last attempt";
            let _ = write!(line, "; {refused} {words} (kubectl muster status says why)");
        }
        line
    }

    /// Returns the final report about a drain, with so many lines of each list at most.
    pub fn report(&self, names: &[String], how: Result<End, Stopped>, most: usize) -> String {
        let names = names.join(" ");
        let mut text = format!("{names}: {}\n", self.line(false));
        text.push_str(&indented(&self.refused, most));
        text.push_str(&indented(&self.stuck, most));
        text.push_str(&indented(&self.kept, most));
        for reason in &self.nothing_moves {
            let _ = writeln!(text, "Nothing moves: {reason}");
        }
        match how {
            Ok(End::Done) if self.stopped > 0 => {
                let _ = writeln!(
                    text,
                    "{names}: drained as far as possible; too many clusters have failed (drained ones count), and nothing leaves until fewer have \
                     (--unhealthy-cluster-threshold)"
                );
            }
            Ok(End::Done) if self.stuck.is_empty() && !self.kept.is_empty() => {
                let _ = writeln!(
                    text,
                    "{names}: drained but for old copies that run there until somebody releases them"
                );
            }
            Ok(End::Done) if self.stuck.is_empty() => {
                let _ = writeln!(text, "{names}: drained");
            }
            Ok(End::Done) => {
                let _ = writeln!(
                    text,
                    "{names}: drained as far as possible; the rest leaves when it has a place to go"
                );
            }
            Ok(End::Undrained | End::Removed) | Err(_) => {
                let _ = writeln!(
                    text,
                    "The drain holds: kubectl muster drain {names} --wait shows it again, kubectl muster undrain {names} ends it"
                );
            }
        }
        text
    }
}

/// Returns the switches of a drain: it is an order whatever they are.
fn switches() -> Switches {
    Switches {
        failover: false,
        no_execute: false,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    }
}

/// Returns whether every chosen cluster reports a healthy copy. A share of zero replicas is none.
fn is_replaced(binding: &AnyBinding) -> bool {
    let (spec, status) = (&binding.spec, binding.status());
    let mut copies = spec.copies();
    !spec.clusters.is_empty() && copies.all(|it| status.is_healthy_in(&it.name))
}

/// Counts workloads. `seen` has those that were there before, which have left when they are there
/// no more. What cannot be seen has not left.
pub(super) fn count(
    bindings: &[Arc<AnyBinding>],
    clusters: &BTreeMap<String, Presence<Arc<Cluster>>>,
    deleted: Deleted<'_>,
    seen: &mut BTreeSet<(BindingKey, String)>,
    now: jiff::Timestamp,
) -> Progress {
    let mut progress = Progress::default();
    let (mut present, mut listed) = (BTreeSet::new(), HashSet::new());
    for binding in bindings {
        let (spec, key) = (&binding.spec, BindingKey::of(binding));
        listed.insert(key.clone());
        for (name, cluster) in clusters {
            let here = (key.clone(), name.clone());
            if spec.target(name).is_none() {
                let Some(task) = spec.eviction_task(name) else {
                    continue;
                };
                if task.is_kept() && is_replaced(binding) {
                    progress.kept.push(Line {
                        why: Some(format!("its old copy {UNTIL_RELEASED}")),
                        ..Line::new(binding, name)
                    });
                } else {
                    progress.replacing += 1;
                    present.insert(here);
                }
                continue;
            }
            let Presence::There(cluster) = cluster else {
                progress.waiting += 1;
                present.insert(here);
                continue;
            };
            let taints = &cluster.spec.taints;
            let placement = inputs::placement(binding);
            let stays = match judge(taints, spec, placement.as_deref(), &switches(), now) {
                Judgement::Stay(_) => true,
                Judgement::Leave { .. } => has_completed(binding, name),
            };
            if stays {
                progress.stay += 1;
                seen.remove(&here);
                continue;
            }
            let condition = conditions::get(&binding.status().conditions, CONDITION);
            let reported = |it: &Condition| Line {
                why: Some(it.message.clone()),
                ..Line::new(binding, name)
            };
            match condition.filter(|it| it.status == conditions::TRUE) {
                Some(it) if STRANDED.contains(&it.reason.as_str()) => {
                    progress.stuck.push(reported(it));
                }
                Some(it) if it.reason == STOPPED => progress.stopped += 1,
                Some(it) if it.reason == FAILED => {
                    progress.waiting += 1;
                    progress.refused.push(reported(it));
                }
                _ => progress.waiting += 1,
            }
            present.insert(here);
        }
    }
    seen.extend(present.iter().cloned());
    for (key, _) in seen.difference(&present) {
        if listed.contains(key) || deleted(key) {
            progress.moved += 1;
        } else {
            progress.waiting += 1;
        }
    }
    progress
}

#[cfg(test)]
mod tests {
    use muster_shared::watch::Doubt;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{self, condition, member, tasks};

    const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;
    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn drained() -> BTreeMap<String, Presence<Arc<Cluster>>> {
        let drain = json!({"key": "failover.muster.io/drain", "effect": "NoExecute"});
        let cluster = member("m1", &json!({"spec": {"taints": [drain]}}));
        BTreeMap::from([("m1".to_owned(), Presence::There(Arc::new(cluster)))])
    }

    /// Counts the progress with bindings that were all there when the command began.
    fn count(
        bindings: &[Arc<AnyBinding>],
        clusters: &BTreeMap<String, Presence<Arc<Cluster>>>,
        seen: &mut BTreeSet<(BindingKey, String)>,
    ) -> Progress {
        super::count(bindings, clusters, &|_| true, seen, NOW)
    }

    fn binding(
        name: &str,
        on: &str,
        leaving: bool,
        reason: &str,
        tolerations: &Value,
    ) -> Arc<AnyBinding> {
        let message = "has to leave m1 and stays";
        let changes = json!({
            "spec": {
                "resource": {"apiVersion": "v1", "kind": "ConfigMap"}, "clusters": [{"name": on}],
                "gracefulEvictionTasks": tasks(leaving.then_some("m1")),
                "placement": {"clusterTolerations": tolerations},
            },
            "status": {"conditions": [condition(CONDITION, "True", reason, message, SINCE)]},
        });
        fixtures::binding("shop", name, &changes)
    }

    #[test]
    fn a_job_that_has_completed_by_its_template_stays() {
        for (cluster, expected) in [("m1", (1, 0)), ("m2", (0, 1))] {
            let message = format!("need not leave {cluster}");
            let changes = json!({
                "spec": {
                    "resource": {"apiVersion": "batch/v1", "kind": "Job"},
                    "clusters": [{"name": "m1"}], "placement": {},
                },
                "status": {"conditions": [condition(CONDITION, "False", "JobCompleted", &message, SINCE)]},
            });
            let job = [fixtures::binding("shop", "sum", &changes)];
            let progress = count(&job, &drained(), &mut BTreeSet::new());
            assert_eq!((progress.stay, progress.waiting), expected, "{cluster}");
        }
    }

    #[test]
    fn each_workload_counts_once_from_waiting_to_left() {
        let (clusters, mut seen) = (drained(), BTreeSet::new());
        let all = json!([{"operator": "Exists"}]);
        let mut fleet = vec![
            binding("a", "m1", false, "WaitingForRate", &json!([])),
            binding("b", "m2", true, "Evicted", &json!([])),
            binding("c", "m1", false, "NowhereToGo", &json!([])),
            binding("d", "m1", false, "Tolerated", &all),
            binding("e", "m2", false, "Tolerated", &json!([])),
        ];
        let mut check = |fleet: &[Arc<AnyBinding>]| count(fleet, &clusters, &mut seen);
        let progress = check(&fleet);
        assert_eq!(
            (
                progress.moved,
                progress.replacing,
                progress.waiting,
                progress.stay
            ),
            (0, 1, 1, 1)
        );
        assert_eq!(
            progress.stuck[0].to_string(),
            "ConfigMap shop/c in m1: has to leave m1 and stays"
        );
        assert!(!progress.is_done());
        fleet[0] = binding("a", "m2", true, "Evicted", &json!([]));
        fleet[1] = binding("b", "m2", false, "Evicted", &json!([]));
        let progress = check(&fleet);
        assert_eq!(
            (progress.moved, progress.replacing, progress.waiting),
            (1, 1, 0)
        );
        fleet[0] = binding("a", "m2", false, "Evicted", &json!([]));
        let progress = check(&fleet);
        assert!(progress.is_done());
        assert_eq!(
            progress.line(true),
            "[################--------] 2 of 3 moved, 0 being replaced, 0 waiting, 1 stranded"
        );
        let names = ["m1".to_owned()];
        assert!(
            progress
                .report(&names, Ok(End::Done), usize::MAX)
                .contains("m1: drained as far as possible")
        );
        assert!(
            progress
                .report(&names, Err(Stopped::TimedOut), usize::MAX)
                .contains("The drain holds")
        );
        fleet.remove(2);
        let progress = check(&fleet);
        assert_eq!(
            progress.line(false),
            "3 of 3 moved, 0 being replaced, 0 waiting, 0 stranded"
        );
        assert!(
            progress
                .report(&names, Ok(End::Done), usize::MAX)
                .ends_with("m1: drained\n")
        );
    }

    #[test]
    fn an_old_copy_that_somebody_has_to_release_is_named_once_the_new_one_is_healthy() {
        let mut seen = BTreeSet::new();
        for (health, counted, is_replaced) in
            [("Unknown", (0, 1), false), ("Healthy", (1, 0), true)]
        {
            let mut binding = AnyBinding::clone(&binding("a", "m2", true, "Evicted", &json!([])));
            binding.spec.graceful_eviction_tasks[0].suppress_deletion = Some(true);
            let report = json!([{"clusterName": "m2", "applied": true, "health": health}]);
            binding.status.as_mut().unwrap().aggregated_status = fixtures::read(report);
            let progress = count(&[Arc::new(binding)], &drained(), &mut seen);
            assert_eq!((progress.moved, progress.replacing), counted, "{health}");
            assert_eq!(progress.is_done(), is_replaced, "{health}");
            let reported = progress.report(&["m1".to_owned()], Ok(End::Done), usize::MAX);
            let line = format!("\n  ConfigMap shop/a in m1: its old copy {UNTIL_RELEASED}\n");
            assert_eq!(reported.contains(&line), is_replaced, "{reported}");
            assert_eq!(reported.ends_with("m1: drained\n"), !is_replaced);
        }
        // A cluster with a share of zero replicas may be silent.
        for (replicas, is_replaced) in [(0, true), (1, false)] {
            let mut binding = AnyBinding::clone(&binding("a", "m2", true, "Evicted", &json!([])));
            binding.spec.replicas = 2;
            binding.spec.clusters = fixtures::read(json!([
                {"name": "m2", "replicas": 2},
                {"name": "m3", "replicas": replicas},
            ]));
            binding.spec.graceful_eviction_tasks[0].suppress_deletion = Some(true);
            let report = json!([{"clusterName": "m2", "applied": true, "health": "Healthy"}]);
            binding.status.as_mut().unwrap().aggregated_status = fixtures::read(report);
            let progress = count(&[Arc::new(binding)], &drained(), &mut BTreeSet::new());
            assert_eq!(progress.is_done(), is_replaced, "{replicas}");
        }
    }

    #[test]
    fn what_stays_because_too_many_clusters_have_failed_is_not_reported_to_wait_in_the_queue() {
        let fleet = [
            binding("a", "m1", false, STOPPED, &json!([])),
            binding("b", "m1", false, "NowhereToGo", &json!([])),
        ];
        let progress = count(&fleet, &drained(), &mut BTreeSet::new());
        assert!(progress.is_done() && progress.is_stranded());
        assert_eq!(
            progress.line(false),
            "0 of 2 moved, 0 being replaced, 0 waiting, 1 stranded, 1 until fewer clusters have failed"
        );
        let reported = progress.report(&["m1".to_owned()], Ok(End::Done), usize::MAX);
        assert!(
            reported.contains("too many clusters have failed"),
            "{reported}"
        );
    }

    #[test]
    fn what_waits_because_its_eviction_could_not_be_written_is_reported_with_the_reason() {
        let fleet = [
            binding("a", "m1", false, FAILED, &json!([])),
            binding("b", "m1", false, "WaitingForRate", &json!([])),
        ];
        let progress = count(&fleet, &drained(), &mut BTreeSet::new());
        assert!(!progress.is_done());
        assert_eq!(
            progress.line(false),
            "0 of 2 moved, 0 being replaced, 2 waiting, 0 stranded; 1 of those that wait could not leave at the last attempt (kubectl muster status says why)"
        );
        let reported = progress.report(&["m1".to_owned()], Err(Stopped::TimedOut), usize::MAX);
        let refused = "\n  ConfigMap shop/a in m1: has to leave m1 and stays\n";
        assert!(reported.contains(refused), "{reported}");
    }

    #[test]
    fn a_drain_that_was_under_way_is_not_reported_to_have_moved_nothing_and_a_standstill_is_reported()
     {
        let resumed = Progress {
            waiting: 31,
            is_resumed: true,
            nothing_moves: vec!["all movement is paused by ann".to_owned()],
            ..Progress::default()
        };
        let reported = resumed.report(&["m1".to_owned()], Err(Stopped::TimedOut), usize::MAX);
        for part in [
            "m1: 0 moved of the 31 that were still there, 0 being replaced, 31 waiting",
            "\nNothing moves: all movement is paused by ann\n",
            "The drain holds: ",
        ] {
            assert!(reported.contains(part), "{part:?} is not in\n{reported}");
        }
    }

    #[test]
    fn what_is_not_seen_has_not_left() {
        let (mut clusters, mut seen) = (drained(), BTreeSet::new());
        let fleet = [binding("a", "m1", false, "WaitingForRate", &json!([]))];
        let left = |progress: &Progress| (progress.moved, progress.waiting);
        assert_eq!(left(&count(&fleet, &clusters, &mut seen)), (0, 1));
        for (is_deleted, expected) in [(false, (0, 1)), (true, (1, 0))] {
            let progress = super::count(&[], &clusters, &|_| is_deleted, &mut seen, NOW);
            assert_eq!(left(&progress), expected, "its binding is not listed");
        }
        let unseen = Presence::Unknown(Doubt::Vanished);
        clusters.insert("m1".to_owned(), unseen);
        assert_eq!(left(&count(&fleet, &clusters, &mut seen)), (0, 1));
    }
}
