//! Decides which graceful eviction tasks are done.
//!
//! A task protects the old copy for as long as it is in the list. The first line of the safety contract holds here:
//! no old copy goes while no replacement is placed and healthy, unless the policy's own grace period says so, and
//! then only if there is a replacement at all.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceHealth, TargetCluster,
};
use muster_shared::k8s::Time;

/// What is known of a binding and of the clusters it concerns.
pub struct Scene<'a> {
    /// The clusters that the workload is to run on now.
    pub clusters: &'a [TargetCluster],
    /// What they report.
    pub reports: &'a [AggregatedStatusItem],
    /// Whether the scheduler has dealt with the binding as it stands.
    pub scheduled: bool,
    /// What is known of a cluster by its name.
    pub cluster: &'a dyn Fn(&str) -> Standing,
    /// Whether a workload without clusters is put back where it was once that cluster is sound. Our own scheduler does
    /// so where the policy allows it; another one takes no cluster back as long as the task is there.
    pub restores: bool,
    /// How long a task without a grace period of its own lasts; `None`: until there is a healthy replacement.
    pub timeout: Option<Duration>,
}

/// What matters about a cluster here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is healthy, and nothing would make the workload leave it.
    Sound,
    /// It is heard of, and yet the workload has to leave it.
    Left,
    /// It is not heard of: what it reported last may be long past.
    Silent,
    /// There is no such cluster any more.
    Gone,
}

/// Why a task is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Every cluster that was chosen reports a healthy copy.
    Replaced,
    /// The grace period is over.
    Expired,
    /// Somebody allowed the deletion (`suppressDeletion: false`).
    Released,
    /// The workload is to run in this cluster again.
    BackInPlace,
    /// No replacement was found, and the cluster recovered: the old copy is the only one, and in its place again.
    Recovered,
    /// The cluster has left the fleet, and the copy with it.
    ClusterGone,
}

impl Done {
    /// The reason in words, for events and the log.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Replaced => "the replacement is healthy",
            Self::Expired => "the grace period is over",
            Self::Released => "suppressDeletion was set to false",
            Self::BackInPlace => "the workload was placed there again",
            Self::Recovered => "the cluster recovered and there is no replacement",
            Self::ClusterGone => "the cluster left the fleet",
        }
    }

    /// Whether the old copy goes with the task (otherwise it stays, or is gone already).
    pub fn removes_the_copy(self) -> bool {
        matches!(self, Self::Replaced | Self::Expired | Self::Released)
    }
}

/// What becomes of a binding's tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assessment {
    /// The tasks that remain, in their order, each with a creation time.
    pub kept: Vec<GracefulEvictionTask>,
    /// The clusters whose tasks are done, in their order.
    pub done: Vec<(String, Done)>,
    /// Where the workload is put back ([`Done::Recovered`]). To be written together with the tasks: with neither task
    /// nor target the copy would be removed.
    pub restored: Vec<TargetCluster>,
    /// When a grace period ends, if nothing happens before.
    pub again: Option<Timestamp>,
}

/// Goes through the tasks. The order of the rules is Karmada's; what was added to it stands in [`Done`].
pub fn assess(tasks: &[GracefulEvictionTask], scene: &Scene<'_>, now: Timestamp) -> Assessment {
    let replaced = scene.is_replaced();
    let mut assessment = Assessment::default();
    for task in tasks {
        let Some(created) = &task.creation_timestamp else {
            let stamped = GracefulEvictionTask {
                creation_timestamp: Some(Time(now)),
                ..task.clone()
            };
            assessment.keep(stamped, scene, now, now);
            continue;
        };
        match scene.judge(task, created.0, replaced, now) {
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
            None => assessment.keep(task.clone(), scene, created.0, now),
        }
    }
    assessment
}

impl Assessment {
    fn keep(
        &mut self,
        task: GracefulEvictionTask,
        scene: &Scene<'_>,
        created: Timestamp,
        now: Timestamp,
    ) {
        if task.suppress_deletion.is_none()
            && let Some(end) = scene.end(&task, created)
            // A task that outlived its end waits for a replacement, not for time.
            && end >= now
        {
            self.again = Some(self.again.map_or(end, |again| again.min(end)));
        }
        self.kept.push(task);
    }
}

impl Scene<'_> {
    fn judge(
        &self,
        task: &GracefulEvictionTask,
        created: Timestamp,
        replaced: bool,
        now: Timestamp,
    ) -> Option<Done> {
        let standing = (self.cluster)(&task.from_cluster);
        if self
            .clusters
            .iter()
            .any(|target| target.name == task.from_cluster)
        {
            return Some(Done::BackInPlace);
        }
        if standing == Standing::Gone {
            return Some(Done::ClusterGone);
        }
        match task.suppress_deletion {
            Some(true) => return None,
            Some(false) => return Some(Done::Released),
            None => {}
        }
        if self.clusters.is_empty() {
            let restores = self.restores && standing == Standing::Sound;
            return restores.then_some(Done::Recovered);
        }
        if self.end(task, created).is_some_and(|end| now > end) {
            return Some(Done::Expired);
        }
        replaced.then_some(Done::Replaced)
    }

    /// When the task ends by time alone.
    fn end(&self, task: &GracefulEvictionTask, created: Timestamp) -> Option<Timestamp> {
        let grace = match task.grace_period_seconds {
            Some(seconds) => SignedDuration::from_secs(seconds.into()),
            None => SignedDuration::try_from(self.timeout?).unwrap_or(SignedDuration::MAX),
        };
        Some(created.saturating_add(grace).unwrap_or(Timestamp::MAX))
    }

    /// Whether every chosen cluster has a healthy copy. Nothing chosen is nothing healthy (unlike Karmada, K41).
    fn is_replaced(&self) -> bool {
        self.scheduled
            && !self.clusters.is_empty()
            && self.clusters.iter().all(|target| self.is_healthy(target))
    }

    fn is_healthy(&self, target: &TargetCluster) -> bool {
        let report = self
            .reports
            .iter()
            .find(|report| report.cluster_name == target.name);
        report.is_some_and(|report| {
            report.health == Some(ResourceHealth::Healthy)
                && runs_all(report, target.replicas)
                && !matches!(
                    (self.cluster)(&target.name),
                    Standing::Silent | Standing::Gone
                )
        })
    }
}

/// Whether a report that counts replicas counts as many ready ones as were asked for. A cluster that was healthy
/// before it was given more is not healthy enough until they run (K47).
fn runs_all(report: &AggregatedStatusItem, wanted: i32) -> bool {
    let number = |name: &str| report.status.as_ref()?.0.get(name)?.as_i64();
    let Some(all) = number("replicas") else {
        return true;
    };
    let ready = number("readyReplicas")
        .or_else(|| number("availableReplicas"))
        .unwrap_or(0);
    all >= wanted.into() && ready >= wanted.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_shared::api::policy::PurgeMode;
    use muster_shared::k8s::RawExtension;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn task(grace: Option<i32>) -> GracefulEvictionTask {
        GracefulEvictionTask {
            from_cluster: "old".into(),
            purge_mode: Some(PurgeMode::Gracefully),
            grace_period_seconds: grace,
            creation_timestamp: Some(Time(at(0))),
            ..GracefulEvictionTask::default()
        }
    }

    fn target(name: &str, replicas: i32) -> TargetCluster {
        TargetCluster {
            name: name.into(),
            replicas,
            ..TargetCluster::default()
        }
    }

    fn report(name: &str, health: ResourceHealth, status: Option<Value>) -> AggregatedStatusItem {
        AggregatedStatusItem {
            cluster_name: name.into(),
            health: Some(health),
            status: status.map(RawExtension),
            ..AggregatedStatusItem::default()
        }
    }

    struct Case<'a> {
        clusters: &'a [TargetCluster],
        reports: &'a [AggregatedStatusItem],
        standing: &'a dyn Fn(&str) -> Standing,
        grace: Option<i32>,
        now: i64,
    }

    fn outcome(case: &Case<'_>) -> Option<Done> {
        let scene = Scene {
            clusters: case.clusters,
            reports: case.reports,
            scheduled: true,
            cluster: case.standing,
            restores: true,
            timeout: None,
        };
        assess(&[task(case.grace)], &scene, at(case.now))
            .done
            .first()
            .map(|(_, done)| *done)
    }

    /// Where it is placed, what is reported, how clusters stand, what becomes of the task.
    type Row<'a> = (
        &'a [TargetCluster],
        &'a [AggregatedStatusItem],
        &'a dyn Fn(&str) -> Standing,
        Option<Done>,
    );

    #[test]
    fn the_old_copy_stays_until_a_replacement_is_placed_and_healthy() {
        use ResourceHealth::{Healthy, Unhealthy, Unknown};
        let new = [target("new", 0)];
        let sound: &dyn Fn(&str) -> Standing = &|name| {
            if name == "old" {
                Standing::Silent
            } else {
                Standing::Sound
            }
        };
        let everyone_silent: &dyn Fn(&str) -> Standing = &|_| Standing::Silent;
        let healthy = [report("new", Healthy, None)];
        let cases: [Row<'_>; 6] = [
            (&new, &healthy, sound, Some(Done::Replaced)),
            (&new, &[report("new", Unhealthy, None)], sound, None),
            (&new, &[report("new", Unknown, None)], sound, None),
            (&new, &[], sound, None),
            (&new, &healthy, everyone_silent, None),
            (&[], &healthy, sound, None),
        ];
        for (n, (clusters, reports, standing, expected)) in cases.into_iter().enumerate() {
            let case = Case {
                clusters,
                reports,
                standing,
                grace: None,
                now: 100_000,
            };
            assert_eq!(outcome(&case), expected, "case {n}");
        }
    }

    #[test]
    fn a_grace_period_ends_the_task_only_if_there_is_a_replacement() {
        let standing: &dyn Fn(&str) -> Standing = &|_| Standing::Silent;
        for (clusters, now, expected) in [
            (&[target("new", 1)][..], 60, None),
            (&[target("new", 1)], 61, Some(Done::Expired)),
            (&[], 61, None),
        ] {
            let case = Case {
                clusters,
                reports: &[],
                standing,
                grace: Some(60),
                now,
            };
            assert_eq!(outcome(&case), expected, "{clusters:?} at {now}");
        }
    }

    #[test]
    fn a_survivor_must_have_scaled_up_before_its_health_counts() {
        let standing: &dyn Fn(&str) -> Standing = &|_| Standing::Sound;
        for (status, expected) in [
            (json!({"replicas": 2, "readyReplicas": 2}), None),
            (json!({"replicas": 3, "readyReplicas": 2}), None),
            (json!({"replicas": 3}), None),
            (
                json!({"replicas": 3, "readyReplicas": 3}),
                Some(Done::Replaced),
            ),
            (
                json!({"replicas": 3, "availableReplicas": 3}),
                Some(Done::Replaced),
            ),
            (json!({"numberReady": 1}), Some(Done::Replaced)),
        ] {
            let reports = [report("new", ResourceHealth::Healthy, Some(status.clone()))];
            let case = Case {
                clusters: &[target("new", 3)],
                reports: &reports,
                standing,
                grace: None,
                now: 10,
            };
            assert_eq!(outcome(&case), expected, "{status}");
        }
    }

    #[test]
    fn a_cluster_that_is_chosen_again_or_recovers_without_replacement_keeps_its_copy() {
        let sound: &dyn Fn(&str) -> Standing = &|_| Standing::Sound;
        let left: &dyn Fn(&str) -> Standing = &|_| Standing::Left;
        let gone: &dyn Fn(&str) -> Standing = &|_| Standing::Gone;
        let both = [target("old", 1), target("new", 1)];
        for (clusters, standing, expected) in [
            (&both[..], left, Some(Done::BackInPlace)),
            (&[], sound, Some(Done::Recovered)),
            (&[], left, None),
            (&[], gone, Some(Done::ClusterGone)),
        ] {
            let case = Case {
                clusters,
                reports: &[],
                standing,
                grace: None,
                now: 10,
            };
            let done = outcome(&case);
            assert_eq!(done, expected);
            assert!(done.is_none_or(|done| !done.removes_the_copy()));
        }
    }

    #[test]
    fn what_is_put_back_is_a_target_in_the_write_that_ends_its_task() {
        let tasks = [GracefulEvictionTask {
            replicas: Some(3),
            ..task(None)
        }];
        let look = |restores| {
            let scene = Scene {
                clusters: &[],
                reports: &[],
                scheduled: true,
                cluster: &|_| Standing::Sound,
                restores,
                timeout: None,
            };
            assess(&tasks, &scene, at(10))
        };
        let restored = look(true);
        assert_eq!(restored.restored, [target("old", 3)]);
        assert!(restored.kept.is_empty());
        let left_to_the_scheduler = look(false);
        assert_eq!(left_to_the_scheduler.restored, []);
        assert_eq!(
            left_to_the_scheduler.kept, tasks,
            "the task keeps the only copy until the scheduler has placed the workload"
        );
    }
}
