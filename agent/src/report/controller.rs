//! Combines the results of the probe, the collector and the census, and writes the Cluster's
//! status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::capacity::{ModelFault, validate};
use muster_shared::client;
use muster_shared::clock::{Clock, calendar};
use muster_shared::events::Events;
use muster_shared::k8s::{Api, Condition, ResourceExt};
use muster_shared::lease::Leadership;
use muster_shared::names::condition::READY;
use muster_shared::queue::{doubled, jittered};
use muster_shared::watch::{Expectations, Informer};
use muster_shared::write::Verbs;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::collector::Collected;
use super::conditions::{self, Age};
use super::enablements::enablements;
use super::status::{self, Findings};
use crate::census::Census;
use crate::fleet_server::Obeyed;
use crate::health::Health;
use crate::health::debounce::{Memory, Readiness, Thresholds, Verdict, debounce};
use crate::health::deeper::{Deeper, Steady};
use crate::health::peers::{self, Sights};
use crate::health::probe::Observation;
use crate::measures::Step;
use crate::work::CachedWork;
use crate::work::orphans::Orphans;
use crate::write::{self, FIELD_MANAGER, within};

/// Attempts to write when others write the same Cluster.
const ATTEMPTS: usize = 4;
/// Changes of nodes and pods that a scheduler should know of become one report in this part of the
/// update frequency; smaller ones wait for the whole of it. A busy cluster must not turn every pod
/// into a write: an API server takes a thousand a second, from all members.
const CENSUS_PER_PERIOD: u32 = 5;
/// Reason of the control plane for a Cluster whose agent never reported. Such a condition is no
/// earlier observation.
const NEVER_UPDATED: &str = "ClusterStatusNeverUpdated";

/// Reports one member.
pub struct Reporter {
    /// Name of the Cluster.
    pub cluster: String,
    /// Whether this agent may act for the member.
    pub leadership: Leadership,
    /// Sync mode of members that another process reports: the control plane, or an agent.
    pub left: ClusterSyncMode,
    /// The Cluster as the fleet has it.
    pub clusters: Informer<Cluster>,
    /// API of Clusters, for writes.
    pub api: Api<Cluster>,
    /// Latest result of the probe.
    pub health: watch::Receiver<Option<Health>>,
    /// Latest version and kinds of the member.
    pub collected: watch::Receiver<Collected>,
    /// Sums of nodes and pods; `None` when they are not watched.
    pub census: Option<Census>,
    /// The Works of the member; `None` if no controller uses them.
    pub works: Option<Informer<CachedWork>>,
    /// The store that is obeyed, before which no Work is applied.
    pub obeyed: watch::Receiver<Obeyed>,
    /// Objects in the member without a Work; `None` where they were not searched for.
    pub orphans: watch::Receiver<Option<Orphans>>,
    /// The further health checks.
    pub deeper: Deeper,
    /// States of the clusters that this one watches.
    pub peers: watch::Receiver<Sights>,
    /// Whether nodes are counted by grades.
    pub models: bool,
    /// Time after which a changed observation is reported.
    pub thresholds: Thresholds,
    /// Interval of reports without a change.
    pub frequency: Duration,
    /// Clock for the times of conditions.
    pub clock: Arc<Clock>,
    /// Publishes events about the Cluster.
    pub events: Events,
}

/// State between two reports.
#[derive(Default)]
struct Memories {
    ready: Option<Memory>,
    steady: Steady,
    /// Whether the debounce began with the status in the API.
    resumed: bool,
    started: Timestamp,
    reachable_at: Timestamp,
    /// The agent's writes of the Cluster that the cache does not show yet.
    expectations: Expectations<String, Arc<Cluster>>,
    /// Time of the last write of the status.
    written_at: Option<Instant>,
    /// Verbs with which the status may be written.
    verbs: Verbs,
    /// Error in the resource models that was reported last.
    models_fault: Option<ModelFault>,
}

impl Memories {
    /// Makes the state of a process that starts now.
    fn new(now: Timestamp) -> Self {
        Self {
            started: now,
            reachable_at: now,
            ..Self::default()
        }
    }

    /// Returns the newer of the cached Cluster and the agent's last write.
    fn newest(&self, cached: Arc<Cluster>) -> Arc<Cluster> {
        let name = cached.name_any();
        self.expectations.observe(&name, &cached.metadata);
        let written = self.expectations.answer(&name, &cached.metadata);
        written.unwrap_or(cached)
    }

    /// Records a write of the status, and returns the Cluster afterwards.
    fn wrote(&mut self, before: &Cluster, after: Arc<Cluster>) -> Arc<Cluster> {
        self.written_at = Some(Instant::now());
        let answer = Arc::clone(&after);
        let (before, version) = (&before.metadata, &after.metadata);
        self.expectations
            .written(after.name_any(), before, version, answer);
        after
    }
}

impl Reporter {
    /// Reports until shutdown: a change of health at once, other changes together.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = self.clusters.synced() => {}
        }
        // The fleet API has answered, so that the clock is that of its server.
        let mut memories = Memories::new(self.clock.now());
        let mut due: Option<Instant> = None;
        let mut last = Instant::now();
        // Whether values besides the sums of nodes and pods may have changed.
        let mut urgent = false;
        let mut failures = 0;
        loop {
            let soon = |due: Option<Instant>, at: Instant| Some(due.map_or(at, |due| due.min(at)));
            tokio::select! {
                () = shutdown.cancelled() => return,
                Ok(()) = self.health.changed() => (due, urgent) = (Some(Instant::now()), true),
                // A failed report is retried after the pause, with the newest values.
                Ok(()) = self.collected.changed(), if failures == 0 => {
                    (due, urgent) = (Some(Instant::now()), true);
                }
                Ok(()) = self.peers.changed(), if failures == 0 => {
                    (due, urgent) = (Some(Instant::now()), true);
                }
                () = changed(self.census.as_ref()), if failures == 0 => {
                    let quiet = self.frequency / CENSUS_PER_PERIOD;
                    due = soon(due, (last + quiet).max(Instant::now()));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    last = Instant::now();
                    if !std::mem::take(&mut urgent) && let Some(later) = self.postponed(&memories) {
                        due = Some(later);
                        continue;
                    }
                    if let Err(error) = self.report(&mut memories).await {
                        tracing::warn!(%error, "could not report the status of the member");
                        metrics::counter!("muster_status_report_failures_total").increment(1);
                        due = Some(last + pause_after(failures, self.frequency));
                        failures = failures.saturating_add(1);
                        urgent = true;
                    } else {
                        failures = 0;
                    }
                }
            }
        }
    }

    /// Returns the time of the next report of sums that changed a little since the last; `None`
    /// when they changed much, or long ago.
    fn postponed(&self, memories: &Memories) -> Option<Instant> {
        let due = memories.written_at? + jittered(self.frequency).max(self.frequency);
        let cluster = self.clusters.get(None, &self.cluster)?;
        let cluster = memories.newest(cluster);
        let (nodes, resources) = self.census.as_ref()?.summary(&[])?;
        let notable = status::is_notable(cluster.status.as_ref()?, nodes, &resources);
        let early = Instant::now() < due.checked_sub(self.frequency / CENSUS_PER_PERIOD)?;
        (early && !notable).then_some(due)
    }

    async fn report(&self, memories: &mut Memories) -> Result<(), write::Error> {
        if !self.leadership.is_current() {
            return Ok(());
        }
        let Some(cluster) = self.clusters.get(None, &self.cluster) else {
            // The Cluster was deleted: only a new registration brings it back.
            return Ok(());
        };
        if cluster.spec.sync_mode == self.left {
            return Ok(());
        }
        let Some(health) = self.health.borrow().clone() else {
            // The first report waits for the first probe, which is over within its deadline, so
            // that it includes `Ready`.
            return Ok(());
        };
        let mut cluster = memories.newest(cluster);
        self.check_models(&cluster, memories);
        let started = Instant::now();
        for attempt in 1..=ATTEMPTS {
            let findings = self.findings(&cluster, &health, memories);
            let Some(patch) = status::patch(&cluster, &findings) else {
                break;
            };
            let (verbs, manager) = (&memories.verbs, Some(FIELD_MANAGER));
            let call = verbs.merge(&self.api, &self.cluster, Some("status"), &patch, manager);
            match within("write the status of the Cluster", call).await {
                Ok(after) => {
                    cluster = memories.wrote(&cluster, after.into());
                    break;
                }
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    let call = client::get_opt(&self.api, &self.cluster);
                    match within("read the Cluster", call).await? {
                        Some(fresh) => cluster = fresh.into(),
                        None => return Ok(()),
                    }
                }
                Err(error) if error.is_gone() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        metrics::histogram!("cluster_sync_status_duration_seconds", "member_cluster" => self.cluster.clone())
            .record(started.elapsed());
        super::gauges::show(&cluster);
        Step::Status.succeeded(calendar());
        Ok(())
    }

    /// Reports an error in the resource models once. Admission refuses such models; without it they
    /// are counted as far as that is possible.
    fn check_models(&self, cluster: &Cluster, memories: &mut Memories) {
        if self.census.is_none() || !self.models {
            return;
        }
        let fault = validate(&cluster.spec.resource_models).err();
        if memories.models_fault == fault {
            return;
        }
        if let Some(fault) = &fault {
            let note = format!(
                "spec.resourceModels: {fault}. Until that is corrected nodes are counted in a wrong grade or in none."
            );
            self.events.warn(cluster, "InvalidResourceModels", note);
        }
        memories.models_fault = fault;
    }

    fn findings(&self, cluster: &Cluster, health: &Health, memories: &mut Memories) -> Findings {
        let now = self.clock.now();
        let mut findings = Findings::default();
        let unreachable = matches!(health.observation, Observation::Unreachable { .. });
        if !unreachable {
            memories.reachable_at = now;
        }
        findings
            .conditions
            .extend(self.ready(cluster, health, memories, now));
        let collected = self.collected.borrow().clone();
        findings.version.clone_from(&collected.version);
        let mut served = collected.catalog_since;
        if let Some(catalog) = &collected.catalog {
            let known = cluster.status.as_ref();
            let known = known.map_or(&[][..], |status| &status.api_enablements);
            let (enablements, complete) = enablements(catalog, known, now);
            findings.enablements = enablements;
            findings.conditions.push(complete);
        } else if cluster
            .status
            .as_ref()
            .is_none_or(|status| status.api_enablements.is_empty())
        {
            served = served.or(Some(memories.reachable_at));
        }
        let mut ages = vec![
            Age {
                part: "Kubernetes version",
                since: collected.version_since,
            },
            Age {
                part: "API enablements",
                since: served,
            },
        ];
        if let Some(census) = &self.census {
            let models = if self.models {
                &cluster.spec.resource_models[..]
            } else {
                &[]
            };
            let since = match census.summary(models) {
                Some((nodes, resources)) => {
                    findings.nodes = Some(nodes);
                    findings.resources = Some(resources);
                    unreachable.then_some(memories.reachable_at)
                }
                None => Some(census.last_counted()),
            };
            census.measure();
            let age = |(part, since)| Age { part, since };
            if since.is_some() {
                ages.push(age(("nodes and pods", since)));
            } else {
                let lost = census.lost(self.frequency);
                ages.extend(lost.into_iter().map(|(part, at)| age((part, Some(at)))));
            }
        }
        let up_to_date = conditions::up_to_date(&ages, now);
        let stored = cluster.conditions();
        let is_counted = |census: &Census| !census.is_awaited(self.frequency);
        let is_asked = collected.is_asked && self.census.as_ref().is_none_or(is_counted);
        let reported = conditions::unless_awaited(up_to_date, stored, is_asked);
        findings.conditions.extend(reported);
        if let Some(works) = &self.works {
            let lost = works.lost_since(conditions::WORKS_GRACE.unsigned_abs());
            let why = || {
                let why = works.trouble().unwrap_or_else(|| "no answer".to_owned());
                let is_forbidden = works.refused().is_some_and(|it| it.code == Some(403));
                conditions::unread(why, is_forbidden, &self.cluster)
            };
            let lost = lost.map(|since| (since, why()));
            let (obeyed, started) = (self.obeyed.borrow(), memories.started);
            let lost = lost.or_else(|| conditions::unobeyed(&obeyed, started, now));
            if let Some((_, why)) = &lost
                && !stored.iter().any(conditions::says_unread)
            {
                tracing::warn!("the Works of the member cannot be read: {why}");
            }
            findings
                .conditions
                .push(conditions::works_up_to_date(lost, now));
        }
        if let Some(orphans) = &*self.orphans.borrow() {
            let reported = conditions::objects_without_work(orphans, stored, now);
            findings.conditions.extend(reported);
        }
        let (reports, retired) = peers::conditions(cluster, &self.peers.borrow(), now);
        findings.conditions.extend(reports);
        findings.retired = retired;
        let (deeper, nodes) = (&self.deeper, findings.nodes);
        findings.retired.extend(deeper.retired(stored));
        let observed = deeper.observe(nodes, &health.recent, !unreachable, now);
        let steady = &mut memories.steady;
        let reported = steady.judge(stored, observed, self.thresholds, Instant::now());
        findings.conditions.extend(reported);
        findings
    }

    /// Returns the `Ready` condition to write; `None` while a change is held back.
    fn ready(
        &self,
        cluster: &Cluster,
        health: &Health,
        memories: &mut Memories,
        now: Timestamp,
    ) -> Option<Condition> {
        let stored = cluster.condition(READY);
        let readiness = stored.map(|condition| Readiness::of(&condition.status));
        if !std::mem::replace(&mut memories.resumed, true) {
            let earlier = stored.filter(|condition| condition.reason != NEVER_UPDATED);
            memories.ready =
                earlier.map(|condition| Memory::resuming(Readiness::of(&condition.status)));
        }
        let observed = match health.observation {
            Observation::Ready => Readiness::True,
            Observation::Refused { .. } => Readiness::Unknown,
            Observation::NotReady { .. } | Observation::Unreachable { .. } => Readiness::False,
        };
        let verdict = debounce(
            &mut memories.ready,
            readiness,
            observed,
            self.thresholds,
            health.at,
        );
        (verdict == Verdict::Report).then(|| conditions::ready(&health.observation, now))
    }
}

/// Waits for a change of nodes and pods; forever when they are not watched.
async fn changed(census: Option<&Census>) {
    match census {
        Some(census) => census.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns the pause after a failed report: short at first, then the update frequency, so that a
/// fleet API that returns is not loaded by one report of each member at once.
fn pause_after(failures: u32, frequency: Duration) -> Duration {
    let soon = frequency / CENSUS_PER_PERIOD;
    jittered(doubled((soon, frequency), failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_fail_again_and_again_are_tried_once_in_the_update_frequency() {
        let frequency = Duration::from_secs(10);
        for (failures, seconds) in [(0, 2), (1, 4), (2, 8), (3, 10), (u32::MAX, 10)] {
            let pause = pause_after(failures, frequency);
            let exact = Duration::from_secs(seconds);
            let near = exact.mul_f64(0.79)..exact.mul_f64(1.21);
            assert!(near.contains(&pause), "after {failures}: {pause:?}");
        }
    }
    #[test]
    fn a_written_status_counts_until_the_cache_shows_it_or_a_later_one() {
        let version = |version: &str| {
            let mut cluster = Cluster::default();
            cluster.metadata.name = Some("m1".to_owned());
            cluster.metadata.resource_version = Some(version.to_owned());
            Arc::new(cluster)
        };
        let mut memories = Memories::new(Timestamp::UNIX_EPOCH);
        memories.wrote(&version("1"), version("2"));
        for (cached, newest) in [("1", "2"), ("1", "2"), ("3", "3"), ("1", "1")] {
            let found = memories.newest(version(cached));
            assert_eq!(found.metadata.resource_version.as_deref(), Some(newest));
        }
    }
}
