//! Decides which graceful eviction tasks are complete.
//!
//! A task keeps the old copy, except with purge mode Directly. Safety contract 1 applies: a task
//! ends when a replacement is healthy, when the policy's own grace period has passed and a
//! replacement is on an available cluster, and none is still to come, when somebody sets
//! `suppressDeletion` to false, when a Job is over, or when somebody scales the template to no
//! replicas.

mod missing;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use muster_interpreter::{denies_health, is_suspended, reports_health};
use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceHealth, TargetCluster,
};
use muster_shared::clock::{is_far_ahead, later};
use muster_shared::k8s::{RawExtension, Time};
use muster_shared::work_status::REPLICAS_LEFT;
use serde_json::Value;

pub use self::missing::missing;
use super::plugin;
use crate::fleet::copy::{WorkState, copies, ready_replicas};
use crate::fleet::place_state::PlaceState;
use crate::settings::evict_plugin::EvictPlugins;

/// Facts about a binding and about the clusters that it concerns.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Facts<'a> {
    /// The clusters that the workload is to run on now.
    pub clusters: &'a [TargetCluster],
    /// Reports of clusters about the workload.
    pub reports: &'a [AggregatedStatusItem],
    /// State of the Work of the binding for a cluster.
    pub work: &'a dyn Fn(&str) -> WorkState,
    /// Whether a chosen cluster has no copy and is to get one: its Work is not made yet, or its
    /// agent has not answered it. It may also be that another scheduler has still to choose.
    pub awaits: &'a dyn Fn(&str) -> bool,
    /// Whether the scheduler has dealt with the binding as it stands.
    pub scheduled: bool,
    /// State of a cluster by its name.
    pub cluster: &'a dyn Fn(&str) -> PlaceState,
    /// The checks that may end a task.
    pub plugins: EvictPlugins,
    /// How many replicas a healthy copy has in a cluster at least, of its share: fewer where the
    /// members decide on the number (label `resourcetemplate.karmada.io/retain-replicas`) or an
    /// override policy gives it fewer. Asked only where a copy has fewer than its share.
    pub least: &'a dyn Fn(&str, i32) -> i32,
    /// Whether the kind has a health rule that is shipped, so that a healthy copy has been looked
    /// at.
    /// A rule of the users' own may be newer than what was reported.
    pub has_rule: bool,
    /// Whether the status of the kind counts replicas, and leaves the number out where it is 0.
    pub counts_replicas: bool,
    /// Whether a workload without clusters is put back where it was once that cluster is sound. Our
    /// own scheduler does so where the policy allows it; another one takes no cluster back as long
    /// as the task is there.
    pub restores: bool,
    /// Whether the workload is a Job that is over in a cluster, and as a whole.
    pub is_over: &'a dyn Fn(&str) -> bool,
    /// Whether the template asks for no replicas of a workload that is counted in them: its
    /// scheduler chooses no cluster then.
    pub asks_for_none: bool,
}

/// Time after the creation of a task in which a healthy copy that does not report its health yet,
/// where the old one did, does not replace it. A controller writes the first status of an object
/// within seconds; what the old cluster reports must not keep its copy for ever.
pub const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(5);

/// Time that another scheduler has to choose a cluster for an application that failed, where its
/// task has no grace period: that of the moves of failing applications.
const CHOICE: SignedDuration = SignedDuration::from_mins(10);

/// A task, and the time since its creation.
pub struct Age<'a> {
    /// The task.
    pub task: &'a GracefulEvictionTask,
    /// The time.
    pub age: SignedDuration,
}

/// Reason why a task is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Every chosen cluster reports a healthy copy, and at least one is available.
    Replaced,
    /// The grace period has passed, at least one chosen cluster is available and has applied its
    /// Work, and no available one has still to be given its copy.
    Expired,
    /// `suppressDeletion` was set to false.
    Released,
    /// The Job has completed or failed in this cluster, and by its template: nothing of it runs any
    /// more.
    Over,
    /// The template asks for no replicas, and no cluster was chosen for that: nothing is to replace
    /// the old copy, which goes as it would if it were the present one.
    Unwanted,
    /// The workload was placed in this cluster again.
    BackInPlace,
    /// There is no replacement, and the cluster has recovered, or the application if it failed in
    /// it, or another scheduler has chosen no other cluster in time: the old copy stays as the only
    /// one.
    Recovered,
    /// The cluster left the fleet, with the copy, and the task carries nothing for a new one.
    ClusterGone,
}

impl Done {
    /// Returns the reason in words, for events and the log.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Replaced => "the replacement is healthy",
            Self::Expired => "the grace period is over",
            Self::Released => "suppressDeletion was set to false",
            Self::Over => "the Job is over",
            Self::Unwanted => "the template asks for no replicas any more",
            Self::BackInPlace => "the workload was placed there again",
            Self::Recovered => {
                "there is no replacement, and the cluster or its copy recovered, or no other cluster was chosen in time"
            }
            Self::ClusterGone => "the cluster left the fleet",
        }
    }

    /// Returns whether the old copy is removed with the task (otherwise it stays, or is gone
    /// already).
    pub fn removes_the_copy(self) -> bool {
        matches!(
            self,
            Self::Replaced | Self::Expired | Self::Released | Self::Over | Self::Unwanted
        )
    }
}

/// Result for the tasks of a binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assessment {
    /// The tasks that remain, in their order, each with a creation time.
    pub kept: Vec<GracefulEvictionTask>,
    /// The clusters whose tasks are done, in their order.
    pub done: Vec<(String, Done)>,
    /// Where the workload is put back ([`Done::Recovered`]). To be written together with the tasks:
    /// with neither task nor target the copy would be removed.
    pub restored: Vec<TargetCluster>,
    /// Time at which a grace period ends, if nothing happens before.
    pub again: Option<Timestamp>,
}

/// Goes through the tasks.
pub fn assess(tasks: &[GracefulEvictionTask], facts: &Facts<'_>, now: Timestamp) -> Assessment {
    let situation = Situation::of(facts);
    let mut assessment = Assessment::default();
    for task in tasks {
        let created = task.creation_timestamp.as_ref().map(|it| it.0);
        // A clock that was wrong wrote a date far ahead. By it, neither the grace period nor the
        // time for which an old copy holds the new one back would end for as long.
        let Some(created) = created.filter(|it| !is_far_ahead(*it, now)) else {
            let stamped = GracefulEvictionTask {
                creation_timestamp: Some(Time(now)),
                ..task.clone()
            };
            assessment.keep(stamped, facts, now, now);
            continue;
        };
        match situation.judge(task, created, now) {
            Some(done) => {
                if done == Done::Recovered {
                    assessment.restored.push(TargetCluster {
                        name: task.from_cluster.clone(),
                        replicas: task.replicas.unwrap_or(0),
                        ..TargetCluster::default()
                    });
                }
                assessment.done.push((task.from_cluster.clone(), done));
            }
            None => assessment.keep(task.clone(), facts, created, now),
        }
    }
    assessment
}

impl Assessment {
    /// Returns the assessment while movement is paused out of some clusters: no old copy is removed
    /// there, unless its workload asks for none anywhere.
    #[must_use]
    pub fn while_paused(
        self,
        tasks: &[GracefulEvictionTask],
        is_paused: impl Fn(&str) -> bool,
    ) -> Self {
        let stays = |cluster: &str| {
            let mut done = self.done.iter();
            let goes = |done: &Done| done.removes_the_copy() && *done != Done::Unwanted;
            done.any(|(name, done)| name == cluster && goes(done)) && is_paused(cluster)
        };
        let kept = |task: &GracefulEvictionTask| {
            let mut kept = self.kept.iter();
            let known = kept
                .find(|it| it.from_cluster == task.from_cluster)
                .cloned();
            // The state that it carries is the new copy's own by now.
            let held = || GracefulEvictionTask {
                preserved_label_state: BTreeMap::new(),
                ..task.clone()
            };
            known.or_else(|| stays(&task.from_cluster).then(held))
        };
        let kept = tasks.iter().filter_map(kept).collect();
        let done = self.done.iter().filter(|(cluster, _)| !stays(cluster));
        let done = done.cloned().collect();
        Self { kept, done, ..self }
    }

    fn keep(
        &mut self,
        task: GracefulEvictionTask,
        facts: &Facts<'_>,
        created: Timestamp,
        now: Timestamp,
    ) {
        let reported = later(created, FIRST_STATUS);
        let ends = [
            end(&task, created),
            (!facts.has_rule).then_some(reported),
            facts.choice_ends(&task, created),
        ];
        if task.suppress_deletion.is_none() {
            // A task that outlived its end waits for a replacement, not for time.
            let next = ends.into_iter().flatten().filter(|end| *end >= now);
            self.again = self.again.into_iter().chain(next).min();
        }
        self.kept.push(task);
    }
}

impl<'a> Facts<'a> {
    /// Returns the chosen clusters that are to have a copy. Another one takes the place of no old
    /// copy, and none waits for it.
    fn copies(&self) -> impl Iterator<Item = &'a TargetCluster> + Clone + use<'a> {
        copies(self.clusters)
    }

    /// Returns whether the template asks for no replicas, and no cluster is to have the workload.
    /// Our scheduler leaves none without a cluster that had one; another one may still choose.
    fn is_unwanted(&self) -> bool {
        let is_decided = self.scheduled || !self.restores;
        self.clusters.is_empty() && self.asks_for_none && is_decided
    }

    /// Returns the time until which another scheduler may choose a cluster for a workload that left
    /// its only one for a reason of its own. Nobody corrects a copy that a task keeps as it is, so
    /// that it need not be healthy ever again.
    fn choice_ends(&self, task: &GracefulEvictionTask, created: Timestamp) -> Option<Timestamp> {
        let is_open = self.restores && self.clusters.is_empty() && task.is_about_the_copy();
        is_open.then(|| end(task, created).unwrap_or_else(|| later(created, CHOICE)))
    }

    /// Returns whether a chosen cluster is not silent and has applied its Work, whatever it
    /// reports.
    fn is_made(&self, name: &str) -> bool {
        let is_ready = matches!((self.cluster)(name), PlaceState::Sound | PlaceState::Left);
        is_ready && (self.work)(name) == WorkState::Applied
    }

    /// Returns whether the copy in a chosen cluster was seen to run as it was ordered last, as if
    /// it had been given so many replicas.
    fn runs(&self, name: &str, report: Option<&AggregatedStatusItem>, given: i32) -> bool {
        let is_healthy = report.is_some_and(|report| {
            report.health == Some(ResourceHealth::Healthy)
                && runs_all(report, given, self.counts_replicas, self.least)
        });
        is_healthy && self.is_made(name)
    }
}

/// Returns the time at which the grace period of the policy ends the task even if nothing else
/// does. Without one, time alone removes nothing: the proposal deprecates
/// `--graceful-eviction-timeout`.
fn end(task: &GracefulEvictionTask, created: Timestamp) -> Option<Timestamp> {
    let seconds = task.grace_period_seconds?;
    Some(later(created, SignedDuration::from_secs(seconds.into())))
}

/// The facts, with what all tasks of the binding have in common.
pub struct Situation<'a> {
    facts: &'a Facts<'a>,
    reports: HashMap<&'a str, &'a AggregatedStatusItem>,
    /// One of the chosen clusters at least is available now.
    available: bool,
    /// Each chosen cluster reports a healthy copy and is not silent.
    healthy: bool,
    /// Each chosen cluster reports a healthy copy and is not silent, whatever replicas it runs.
    responsive: bool,
    /// See [`Situation::is_given`]: found out once, for the first task that asks.
    is_given: OnceCell<bool>,
}

impl<'a> Situation<'a> {
    fn of(facts: &'a Facts<'a>) -> Self {
        let reports: HashMap<&str, &AggregatedStatusItem> = facts
            .reports
            .iter()
            .map(|report| (report.cluster_name.as_str(), report))
            .collect();
        let (mut available, mut healthy, mut responsive) = (false, true, true);
        for target in facts.copies() {
            let (name, report) = (&*target.name, reports.get(&*target.name).copied());
            available |= (facts.cluster)(name) == PlaceState::Sound;
            healthy &= facts.runs(name, report, target.replicas);
            responsive &= healthy || facts.runs(name, report, 0);
        }
        Self {
            facts,
            reports,
            available,
            healthy,
            responsive,
            is_given: OnceCell::new(),
        }
    }

    /// Returns whether a chosen cluster is available and has applied its Work, and no available one
    /// has still to be given its copy. One that had its copy before is none for another that is to
    /// come.
    fn is_given(&self) -> bool {
        *self.is_given.get_or_init(|| {
            let facts = self.facts;
            let lives = |it: &TargetCluster| (facts.cluster)(&it.name) == PlaceState::Sound;
            let is_applied = |it: &TargetCluster| (facts.work)(&it.name) == WorkState::Applied;
            let awaits = |it: &TargetCluster| (facts.awaits)(&it.name);
            facts.copies().any(|it| lives(it) && is_applied(it))
                && !facts.copies().any(|it| lives(it) && awaits(it))
        })
    }

    /// Returns whether the workload is to run in a cluster.
    pub fn is_target(&self, cluster: &str) -> bool {
        self.facts
            .clusters
            .iter()
            .any(|target| target.name == cluster)
    }

    /// Returns whether every chosen cluster has a healthy copy that can take the place of the one
    /// that the task keeps, and at least one of these clusters does not have to be left itself. If
    /// no cluster is chosen, nothing is replaced (unlike in Karmada).
    pub fn is_replaced(&self, task: &Age<'_>) -> bool {
        let facts = self.facts;
        let runs = self.healthy
            || self.responsive && self.is_idle(task)
            || self.lacks_what_is_not_given(task) && self.is_made();
        facts.scheduled && self.available && runs && self.replaces(task)
    }

    /// Returns whether an autoscaler has the old copy run nothing, so that nothing has to run in
    /// its place.
    fn is_idle(&self, task: &Age<'_>) -> bool {
        let report = self.reports.get(&*task.task.from_cluster);
        let status = report.and_then(|it| it.status.as_ref());
        status.is_some_and(|it| {
            let replicas = it.0.get("replicas").and_then(Value::as_i64);
            it.0.get(REPLICAS_LEFT).is_some() && replicas.unwrap_or(0) == 0
        })
    }

    /// Returns whether the old copy is unhealthy for want of something that its cluster may never
    /// give it, so that nothing has to take the place of that: an address of a load balancer, which
    /// many controllers do not publish, or the pods of a disruption budget that asks for more than
    /// there are.
    fn lacks_what_is_not_given(&self, task: &Age<'_>) -> bool {
        let report = self.reports.get(&*task.task.from_cluster);
        // An old copy that is healthy without an address is replaced as any other.
        let report = report.filter(|it| it.health != Some(ResourceHealth::Healthy));
        let status = report.and_then(|it| it.status.as_ref());
        status.is_some_and(|RawExtension(status)| {
            let balancer = status.get("loadBalancer");
            let no_address = |it: &Value| it["ingress"].as_array().is_none_or(Vec::is_empty);
            let pods = |field: &str| status[field].as_i64();
            let asked = pods("desiredHealthy").zip(pods("expectedPods"));
            balancer.is_some_and(no_address) || asked.is_some_and(|(least, all)| least > all)
        })
    }

    /// Returns whether each new copy was applied in a cluster that is not silent, whatever that
    /// reports.
    fn is_made(&self) -> bool {
        let facts = self.facts;
        let mut copies = facts.copies();
        copies.all(|target| facts.is_made(&target.name))
    }

    /// Returns whether healthy copies do as much as the old one did. For kinds without a health
    /// rule, health says less than that: they are healthy until they say otherwise.
    fn replaces(&self, task: &Age<'_>) -> bool {
        let status = |cluster: &str| Some(&self.reports.get(cluster)?.status.as_ref()?.0);
        let old = status(&task.task.from_cluster).unwrap_or(&Value::Null);
        let mut new = self.facts.copies();
        // A DaemonSet is healthy where no node is to run it.
        let daemons = |status: &Value| status["desiredNumberScheduled"].as_i64().unwrap_or(0);
        let runs = |target: &TargetCluster| status(&target.name).is_some_and(|it| daemons(it) > 0);
        if daemons(old) > 0 && !new.clone().any(runs) {
            return false;
        }
        if self.facts.has_rule {
            return true;
        }
        let first_status = task.age < FIRST_STATUS;
        new.all(|target| match status(&target.name) {
            Some(new) => {
                !denies_health(new)
                    && (is_suspended(old) || !is_suspended(new))
                    && (!first_status || reports_health(new) >= reports_health(old))
            }
            // A copy that was just created has no status yet.
            None => !first_status || !reports_health(old),
        })
    }

    /// Returns why a task ends: nothing is removed where the workload is to run again.
    fn unless_back(&self, task: &GracefulEvictionTask, done: Done) -> Done {
        if self.is_target(&task.from_cluster) {
            Done::BackInPlace
        } else {
            done
        }
    }

    /// Returns whether what drove the workload out of a sound cluster is over. Where it failed, or
    /// could not be applied, a cluster is sound all the time: only a healthy copy says so, and it
    /// counts as over where no other cluster was chosen in time.
    fn has_recovered(
        &self,
        task: &GracefulEvictionTask,
        created: Timestamp,
        now: Timestamp,
    ) -> bool {
        let report = self.reports.get(&*task.from_cluster);
        let is_healthy = report.is_some_and(|it| it.health == Some(ResourceHealth::Healthy));
        let choice_ends = self.facts.choice_ends(task, created);
        is_healthy || !task.is_about_the_copy() || choice_ends.is_some_and(|end| now > end)
    }

    fn judge(
        &self,
        task: &GracefulEvictionTask,
        created: Timestamp,
        now: Timestamp,
    ) -> Option<Done> {
        let facts = self.facts;
        let age = Age {
            task,
            age: now.duration_since(created),
        };
        if let Some(done) = plugin::any(facts.plugins, &age, self) {
            return Some(done);
        }
        let state = (facts.cluster)(&task.from_cluster);
        let gives_state = task.gives_state() && !facts.clusters.is_empty();
        if state == PlaceState::Gone && !gives_state {
            return Some(Done::ClusterGone);
        }
        match task.suppress_deletion {
            Some(true) => return None,
            Some(false) => return Some(self.unless_back(task, Done::Released)),
            None => {}
        }
        if (facts.is_over)(&task.from_cluster) {
            return Some(self.unless_back(task, Done::Over));
        }
        if facts.is_unwanted() {
            return Some(Done::Unwanted);
        }
        if facts.clusters.is_empty() {
            let is_sound = state == PlaceState::Sound;
            let is_home = is_sound && self.has_recovered(task, created, now);
            return (facts.restores && is_home).then_some(Done::Recovered);
        }
        let ended = end(task, created).is_some_and(|end| now > end);
        // The policy gives up health for time, not the replacement: that has to have been made in a
        // cluster that lives.
        if !ended || !self.available {
            None
        } else if self.is_target(&task.from_cluster) {
            Some(Done::BackInPlace)
        } else {
            self.is_given().then_some(Done::Expired)
        }
    }
}

/// Returns whether a report that counts replicas counts as many ready ones as were asked for. A
/// cluster that was healthy before it was given more is not healthy enough until they run. Where
/// fewer are enough, as `least` says, or the member leaves the number to its autoscaler, as many as
/// it wants have to be ready, and no fewer than these. With `counts`, a status without a number of
/// replicas counts as none.
pub fn runs_all(
    report: &AggregatedStatusItem,
    given: i32,
    counts: bool,
    least: &dyn Fn(&str, i32) -> i32,
) -> bool {
    let number = |name: &str| report.status.as_ref()?.0.get(name)?.as_i64();
    let all = match number("replicas") {
        Some(all) => all,
        None if counts => 0,
        None => return true,
    };
    let status = report.status.as_ref();
    let ready = status.and_then(|it| ready_replicas(&it.0)).unwrap_or(0);
    let runs = |wanted: i64| all >= wanted && ready >= wanted;
    let is_left = status.is_some_and(|it| it.0.get(REPLICAS_LEFT).is_some());
    let enough = || {
        if is_left {
            given.min(1)
        } else {
            least(&report.cluster_name, given)
        }
    };
    runs(i64::from(given)) || (ready >= all && runs(i64::from(enough())))
}

/// Returns whether the status of a binding's kind counts its replicas: Kubernetes leaves the number
/// out of the status of these kinds while it is 0. Other kinds count where any cluster of the
/// binding reports a number.
pub fn counts_replicas(spec: &ResourceBindingSpec, reports: &[AggregatedStatusItem]) -> bool {
    let has_number = |it: &AggregatedStatusItem| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.0["replicas"].is_i64())
    };
    spec.resource.is_counted() || (spec.replicas > 0 && reports.iter().any(has_number))
}

#[cfg(test)]
mod tests;
