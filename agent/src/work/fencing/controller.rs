//! Keeps the record of renewals, stops what is due, and answers the applier.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use muster_shared::events::Events;
use muster_shared::k8s::{Client, ResourceExt};
use muster_shared::lease::{LastRenewal, Leadership};
use muster_shared::names::annotation;
use muster_shared::queue::Queue;
use muster_shared::remind::Reminder;
use muster_shared::watch::Informer;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kept::{Kept, Reader};
use super::objects::{Objects, Round};
use super::orders::{Fenced, kind_of};
use super::record::{FIELD_MANAGER, Machine, Record, Store};
use super::rounds::Rounds;
use super::silence::{Permission, Silence};
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::work::CachedWork;

/// Interval at which renewals are recorded, and at which it is asked whether something is due.
const TICK: Duration = Duration::from_secs(1);

/// Parameters of a [`Fencer`].
pub struct Setup {
    /// Name of the cluster.
    pub cluster: String,
    /// Namespace of the record in the member.
    pub namespace: String,
    /// Client of the member.
    pub member: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
    /// Times of renewals.
    pub silence: Silence,
    /// Returns the machine on which the process runs.
    pub machine: fn() -> Machine,
    /// Election of the agent that acts for the member.
    pub leadership: Leadership,
    /// Whether there is an election, so that other agents may act.
    pub is_elected: bool,
    /// Duration of the cluster's lease: the shortest time that can be confirmed.
    pub lease: Duration,
    /// Pause between renewals of it.
    pub interval: Duration,
    /// The id of the fleet.
    pub fleet: fleet_id::Known,
    /// Cache of Works.
    pub works: Informer<CachedWork>,
    /// Works to apply.
    pub to_apply: Queue<String>,
}

/// Stops the fenced workloads of a member that is cut off.
pub struct Fencer {
    setup: Setup,
    objects: Objects,
    store: Store,
    kept: tokio::sync::Mutex<Kept>,
    /// Sending of the last read of each fenced Work from the fleet API, and what it wanted then.
    verified: Mutex<HashMap<String, (Instant, u64)>>,
}

impl Fencer {
    /// Makes it; nothing is sent before [`run`](Self::run).
    pub fn new(setup: Setup) -> Self {
        Self {
            objects: Objects::new(setup.member.clone(), setup.discovery.clone()),
            store: Store::new(
                setup.member.clone(),
                &setup.namespace,
                format!("muster-fencing-{}", setup.cluster),
                FIELD_MANAGER,
            ),
            setup,
            kept: tokio::sync::Mutex::default(),
            verified: Mutex::default(),
        }
    }

    /// Records renewals, and stops what is due, until shutdown.
    pub async fn run(self: Arc<Self>, events: Events, shutdown: CancellationToken) {
        let (mut rounds, mut reminder) = (Rounds::default(), Reminder::at_once());
        let rounds = async {
            loop {
                self.keep().await;
                self.enforce(&mut rounds, &mut reminder, &events).await;
                tokio::time::sleep(TICK).await;
            }
        };
        shutdown.run_until_cancelled(rounds).await;
    }

    /// Returns whether a Work may be applied whose objects are stopped after this time without a
    /// renewal.
    pub fn permission(&self, work: &CachedWork, after: Duration) -> Permission {
        let all = self.verified.lock();
        let verified = all.get(&work.name_any());
        let verified = verified.and_then(|(at, it)| (*it == work.wish()).then_some(*at));
        let silence = &self.setup.silence;
        silence.permission(after, verified, Instant::now())
    }

    /// Records that a Work was read from the fleet API by a request that was sent at a time, and
    /// wants what it wants here.
    pub fn verify(&self, work: &CachedWork, asked: Instant) {
        let verified = (asked, work.wish());
        self.verified.lock().insert(work.name_any(), verified);
    }

    /// Forgets a Work that is gone.
    pub fn forget(&self, work: &str) {
        self.verified.lock().remove(work);
    }

    /// Makes sure that the objects of a Work would be stopped, also by the next process.
    ///
    /// # Errors
    /// The reason why they would not, in one word and in a sentence.
    pub async fn arm(&self, fenced: &Fenced) -> Result<(), (&'static str, String)> {
        let lease = self.setup.lease;
        if fenced.after() < lease {
            let message = format!(
                "afterSeconds is {} and must be at least {} s, the duration of the lease of this cluster (--cluster-lease-duration)",
                fenced.shortest,
                lease.as_secs_f64()
            );
            return Err(("TooShort", message));
        }
        let mut kept = self.kept.lock().await;
        let unrecorded = |why: &str| {
            let namespace = &self.setup.namespace;
            (
                "NotRecorded",
                format!(
                    "the agent cannot keep its record in namespace {namespace} of the member: {why}"
                ),
            )
        };
        let Some(record) = &kept.record else {
            return Err(unrecorded("it has not been read yet"));
        };
        if fenced.kinds.is_subset(&record.kinds) {
            return Ok(());
        }
        let mut kinds = record.kinds.clone();
        kinds.extend(fenced.kinds.iter().cloned());
        self.write(&mut kept, kinds)
            .await
            .map_err(|why| unrecorded(&why))
    }

    /// Brings the record up to date, or learns from it.
    async fn keep(&self) {
        self.observe();
        let mut kept = self.kept.lock().await;
        let (now, own) = (Instant::now(), self.setup.silence.own());
        let renews = own.is_some_and(|own| now < own + 2 * self.setup.interval);
        let kinds = kept.record.as_ref().map(|record| record.kinds.clone());
        let outcome = match kinds {
            Some(kinds) if renews && (kinds.is_empty() || own <= kept.recorded) => return,
            Some(kinds) if renews => self.write(&mut kept, kinds).await,
            Some(_) => {
                let pause = self.setup.interval / 2;
                if kept.read.is_some_and(|read| now < read + pause) {
                    return;
                }
                self.learn(&mut kept).await
            }
            None => self.learn(&mut kept).await,
        };
        if let Err(error) = outcome {
            tracing::debug!(error, "the record of renewals");
        }
    }

    /// Learns from the election when the leader last renewed the lease of the member, whatever
    /// hinders it from writing the record. That the leader renews the lease of the election says
    /// nothing of that: the control plane counts the renewals of the member's lease alone.
    fn observe(&self) {
        let renewal = self.setup.leadership.last_renewal();
        if let Some(at) = renewal.as_ref().and_then(renewed_by) {
            self.setup.silence.learned(at);
        }
    }

    async fn write(&self, kept: &mut Kept, kinds: BTreeSet<String>) -> Result<(), String> {
        let Some(sent) = self.setup.silence.own() else {
            return Err("the lease has not been renewed yet".to_owned());
        };
        let record = Record::of(sent, Instant::now(), &(self.setup.machine)(), kinds);
        self.store.write(&record).await?;
        kept.wrote(record, sent);
        Ok(())
    }

    /// Reads the record of another process.
    async fn learn(&self, kept: &mut Kept) -> Result<(), String> {
        let asked = Instant::now();
        let found = self.store.read().await?;
        let (machine, silence) = ((self.setup.machine)(), &self.setup.silence);
        let interval = self.setup.interval;
        let reader = Reader {
            machine: &machine,
            silent_from: silence.own().map(|own| own + 2 * interval),
            woken: silence.woken(),
            interval,
        };
        kept.learn(found, asked, &reader);
        if let Some(bound) = kept.bound(&machine, Instant::now()) {
            silence.learned(bound);
        }
        Ok(())
    }

    /// Returns the kinds with fenced objects; `None` while nothing may be stopped, because it is
    /// not clear yet whether the member is cut off.
    async fn kinds(&self) -> Option<BTreeSet<String>> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        if self.setup.is_elected && !kept.is_settled(now) {
            return None;
        }
        let searched = kept.to_search(now);
        let answers = searched.iter().map(async |text| {
            let kind = kind_of(text)?;
            self.objects.has_fenced(&kind).await.ok()
        });
        let answers = join_all(answers).await;
        let is_whole = answers.iter().all(Option::is_some);
        let found = searched.iter().zip(answers);
        let found = found.filter_map(|(kind, has)| has.unwrap_or_default().then_some(*kind));
        let found: Vec<_> = found.collect();
        if !searched.is_empty() {
            kept.found(found, is_whole, now);
        }
        Some(kept.kinds())
    }

    /// Stops what is due. When nothing is due any more, all Works are applied again.
    async fn enforce(&self, rounds: &mut Rounds, reminder: &mut Reminder, events: &Events) {
        let silence = &self.setup.silence;
        let is_due = |after| silence.is_due(after, Instant::now());
        if !is_due(self.setup.lease) {
            if rounds.end() {
                tracing::info!(
                    "the lease is renewed again: checking the workloads that were stopped"
                );
                metrics::gauge!("muster_fenced_objects").set(0.0);
                for work in self.setup.works.list() {
                    self.setup.to_apply.add(work.name_any());
                }
            }
            return;
        }
        let now = Instant::now();
        if !rounds.is_time(now) {
            return;
        }
        let Some(kinds) = self.kinds().await else {
            return;
        };
        let fleet = &self.setup.fleet.now();
        // A kind whose server does not answer keeps no other one waiting.
        let stops = kinds
            .iter()
            .filter_map(|text| kind_of(text))
            .map(async |kind| {
                let mut round = self.objects.stop(&kind, &is_due, fleet, events).await;
                round.trouble = round.trouble.map(|error| format!("{}: {error}", kind.kind));
                round
            });
        let mut sum = Round::default();
        for round in join_all(stops).await {
            sum.add(round);
        }
        if let Some(error) = &sum.trouble {
            if reminder.trouble(now).is_some() {
                let lasts = silence.lasts(now);
                tracing::error!(
                    error,
                    ?lasts,
                    "cannot look for workloads to stop while the member is cut off; they may run twice"
                );
            }
            metrics::counter!("muster_fencing_failures_total").increment(1);
        } else {
            reminder.over(now);
        }
        let now = Instant::now();
        rounds.over(&sum, silence.lasts(now), now);
        #[expect(clippy::cast_precision_loss, reason = "a count of objects")]
        metrics::gauge!("muster_fenced_objects").set(sum.stopped as f64);
    }
}

/// Returns what a leader writes into the lease of the election: the age of the last renewal of the
/// member's lease that was acknowledged.
pub fn heartbeat_note(leader: &str, silence: &Silence) -> BTreeMap<String, String> {
    let age = silence.age(Instant::now());
    let note = age.map(|age| {
        let note = format!("{leader}/{}", age.as_millis());
        (annotation::HEARTBEAT.to_owned(), note)
    });
    note.into_iter().collect()
}

/// Returns a time at or before the last renewal of the member's lease that a leader reports. One
/// that does not write the note leaves that of another leader as it was.
fn renewed_by(renewal: &LastRenewal) -> Option<Instant> {
    let note = renewal.annotations.get(annotation::HEARTBEAT)?;
    let age = note.strip_prefix(&*renewal.holder)?.strip_prefix('/')?;
    renewal
        .since
        .checked_sub(Duration::from_millis(age.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_follower_learns_the_age_of_the_leaders_last_renewal_and_nothing_from_its_election() {
        let since = Instant::now();
        let (leader, other) = (Silence::begin(Duration::ZERO, || None), "b/0");
        assert!(
            heartbeat_note("a", &leader).is_empty(),
            "it has renewed nothing"
        );
        leader.acknowledged(since, true);
        tokio::time::advance(Duration::from_secs(7)).await;
        let note = heartbeat_note("a", &leader);
        let renewal = |annotations| LastRenewal {
            holder: "a".to_owned(),
            since,
            annotations,
        };
        let age = renewed_by(&renewal(note)).map(|at| since - at);
        assert_eq!(age, Some(Duration::from_secs(7)));
        let left = BTreeMap::from([(annotation::HEARTBEAT.to_owned(), other.to_owned())]);
        for note in [BTreeMap::new(), left] {
            assert_eq!(renewed_by(&renewal(note)), None);
        }
    }
}
