//! Asks the servers of the fleet API, and switches the agent's one connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource as _;
use muster_shared::api::cluster::{Cluster, ClusterSpec};
use muster_shared::client::{Gate, Gateway};
use muster_shared::events::{EventType, Events};
use muster_shared::fleet_servers::FleetServer;
use muster_shared::k8s::{Client, CoreObjectReference};
use muster_shared::queue::jittered;
use muster_shared::serve::Health;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::record::{Recorded, record_name};
use super::Obeyed;
use super::decide::{Candidate, Remembered, Said, Verdict, candidates, judge, takes_over};
use super::servers::{Servers, route};
use crate::records::Records;
use crate::write::FIELD_MANAGER;

mod record;

/// Pause between checks of the server in use, where there are several or the store was promoted.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Pause between checks of the one server of a store that was never promoted.
const CHECK_RARELY: Duration = Duration::from_mins(5);
/// Pause between checks while no server may be obeyed, or the one in use does not answer.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// Interval at which the other servers are asked, so that the agent learns of a promotion, and the
/// control plane of an older store, too.
const ASK_OTHERS: Duration = Duration::from_secs(15);
/// Name in `/readyz`.
const PART: &str = "fleet server";
/// Has the agent begin anew within its process, with what it has seen of the fleet.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    is_due: Arc<AtomicBool>,
    seen: Arc<Mutex<Option<Remembered>>>,
}

impl Restart {
    /// Returns whether the agent has ended to begin anew, once.
    pub fn is_due(&self) -> bool {
        self.is_due.swap(false, Ordering::SeqCst)
    }

    /// Ends the tasks of the agent, which begins anew then.
    pub fn begin(&self, shutdown: &CancellationToken) {
        self.is_due.store(true, Ordering::SeqCst);
        shutdown.cancel();
    }
}

/// Everything that the choice of a server needs.
pub struct Setup {
    /// Name of the Cluster.
    pub cluster: String,
    /// Addresses of the settings.
    pub configured: Vec<FleetServer>,
    /// Time for which the server in use may not answer before another one is tried.
    pub patience: Duration,
    /// The connection to the fleet API.
    pub fleet: Arc<Gateway>,
    /// The member's API.
    pub member: Client,
    /// Namespace of the agent's record in the member.
    pub namespace: String,
    /// State of this part.
    pub health: Health,
    /// Publishes events about the Cluster.
    pub events: Events,
    /// Publishes events in the member.
    pub member_events: Events,
    /// Receives whether a store is obeyed.
    pub obeyed: watch::Sender<Obeyed>,
    /// Ends the agent so that it begins anew.
    pub restart: Restart,
    /// Ends the tasks of the agent.
    pub shutdown: CancellationToken,
}

/// The choice of a server of the fleet API.
pub struct Choice {
    setup: Setup,
    servers: Servers,
    records: Records<Remembered>,
    remembered: Remembered,
    /// The record as it is in the member.
    recorded: Recorded,
    /// The server whose requests are sent.
    current: Option<Candidate>,
    /// Whether a store has said something that this process goes by.
    has_learned: bool,
    /// Time of the last answer of the server in use, or at which it was chosen.
    answered: Instant,
    /// Time of the last check of the other servers.
    asked_others: Option<Instant>,
    /// Reason why no server is obeyed, as it was reported last.
    said: Option<String>,
    /// Reason why the record keeps the agent from applying anything, as it was reported last.
    trouble: Option<String>,
}

impl Choice {
    /// Holds all requests to the fleet API until a server was chosen.
    pub fn new(setup: Setup) -> Self {
        setup.fleet.set_gate(Gate::Held);
        setup.fleet.reroute(None);
        let (name, namespace) = (record_name(&setup.cluster), &setup.namespace);
        let records = Records::new(setup.member.clone(), namespace, name, FIELD_MANAGER);
        let servers = Servers {
            cluster: setup.cluster.clone(),
            fleet: Arc::clone(&setup.fleet),
            reported: BTreeMap::new(),
        };
        Self {
            servers,
            records,
            remembered: Remembered::default(),
            recorded: Recorded::Unread,
            current: None,
            has_learned: false,
            answered: Instant::now(),
            asked_others: None,
            said: None,
            trouble: None,
            setup,
        }
    }

    /// Chooses and follows a server until shutdown.
    pub async fn run(mut self) {
        let shutdown = self.setup.shutdown.clone();
        shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        self.recall().await;
        // Nothing that this store could say would be a reason not to obey it.
        if !self.remembered.is_needed(&self.setup.configured)
            && let Some(own) = self.candidates().into_iter().next()
        {
            self.use_server(own);
        }
        loop {
            let pause = self.round().await;
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// Checks the server in use, or searches for one. Returns the pause until the next check.
    async fn round(&mut self) -> Duration {
        // Another agent of the member may have met a newer store.
        if self.recorded == Recorded::Unread || self.remembered.is_needed(&self.setup.configured) {
            self.recall().await;
        }
        let candidates = self.candidates();
        self.remembered.name_store(&candidates);
        let Some(current) = self.current.clone() else {
            self.choose(candidates, Vec::new()).await;
            return SEARCH_EVERY;
        };
        match self.servers.ask(&current, self.remembered.epoch).await {
            Ok(said) => {
                self.answered = Instant::now();
                self.report_success(&current);
                match judge(&self.remembered, &current, &said) {
                    Verdict::Same => self.keep(&current, &said).await,
                    // All that this process has read since its start comes from this store.
                    Verdict::New if !self.has_learned && self.recorded == Recorded::Absent => {
                        self.keep(&current, &said).await;
                    }
                    Verdict::New => {
                        self.keep(&current, &said).await;
                        self.begin_anew("the store of the fleet API is another one now");
                    }
                    Verdict::Refused(refusal) => {
                        self.servers.report(&current, &refusal).await;
                        self.begin_anew(&refusal.to_string());
                    }
                }
                self.ask_others(candidates, &current).await;
                let is_needed = self.remembered.is_needed(&self.setup.configured);
                let is_unread = self.recorded == Recorded::Unread;
                if is_needed || is_unread {
                    CHECK_EVERY
                } else {
                    CHECK_RARELY
                }
            }
            Err(error) => {
                tracing::debug!(
                    server = current.server.server,
                    error,
                    "the fleet API does not answer"
                );
                if candidates.len() == 1 {
                    return CHECK_EVERY;
                }
                if self.answered.elapsed() >= self.setup.patience {
                    let reason = format!("{}: {error}", current.server.server);
                    self.choose(without(candidates, &current), vec![reason])
                        .await;
                }
                SEARCH_EVERY
            }
        }
    }

    /// Uses the first of some servers that may be obeyed; `reasons` are those against others.
    async fn choose(&mut self, candidates: Vec<Candidate>, mut reasons: Vec<String>) {
        let mut answers = self.servers.ask_all(candidates, self.remembered.epoch);
        while let Some((candidate, said)) = answers.next().await {
            let why = match said {
                Err(error) => error,
                Ok(said) => match judge(&self.remembered, &candidate, &said) {
                    Verdict::Refused(refusal) => {
                        self.servers.report(&candidate, &refusal).await;
                        refusal.to_string()
                    }
                    verdict => {
                        self.keep(&candidate, &said).await;
                        if verdict == Verdict::New && self.current.is_some() {
                            self.begin_anew("another store of the fleet was promoted");
                        } else {
                            self.use_server(candidate);
                        }
                        return;
                    }
                },
            };
            reasons.push(format!("{}: {why}", candidate.server.server));
        }
        let words = format!(
            "no server of the fleet API may be used ({})",
            reasons.join("; ")
        );
        // A server that only does not answer stays the one in use.
        if self.current.is_none() {
            self.setup
                .fleet
                .set_gate(Gate::Closed(words.as_str().into()));
        }
        self.setup.health.ready(PART, Err(words.clone()));
        if self.said.as_ref() != Some(&words) {
            self.publish_in_member(EventType::Warning, "NoFleetServer", &words);
            self.said = Some(words);
        }
    }

    /// Sends the requests of the agent to a server.
    fn use_server(&mut self, candidate: Candidate) {
        let server = &candidate.server;
        match route(&candidate) {
            Ok(route) => self.setup.fleet.reroute(route),
            Err(error) => {
                tracing::warn!(
                    server = server.server,
                    error,
                    "cannot use an address of the fleet API"
                );
                return;
            }
        }
        self.setup.fleet.set_gate(Gate::Open);
        let (epoch, store) = (self.remembered.epoch, &server.store);
        if let Some(before) = &self.current {
            let note = format!(
                "The agent uses {} of the fleet API since {} does not answer.",
                server.server, before.server.server
            );
            tracing::info!("{note}");
            let cluster = Cluster::new(&self.setup.cluster, ClusterSpec::default());
            let about = cluster.object_ref(&());
            let events = &self.setup.events;
            events.publish_about(about, EventType::Normal, "FleetServerChanged", note);
        } else if self.said.is_some() || self.remembered.is_needed(&self.setup.configured) {
            tracing::info!(
                server = server.server,
                store,
                epoch,
                "the agent obeys this server of the fleet API"
            );
        }
        self.report_success(&candidate);
        self.answered = Instant::now();
        self.current = Some(candidate);
    }

    /// Reports that a server is in use, if it was reported that none is.
    fn report_success(&mut self, candidate: &Candidate) {
        if self.said.take().is_some() {
            let note = format!(
                "The agent obeys {} of the fleet API.",
                candidate.server.server
            );
            self.publish_in_member(EventType::Normal, "FleetServerFound", &note);
        }
        self.setup.health.ready(PART, Ok(()));
    }

    /// Reports the epoch of the store that is obeyed and has been asked, once it is recorded.
    fn note_obeyed(&self) {
        if self.is_recorded() {
            let epoch = Ok(self.remembered.epoch);
            let obeyed = &self.setup.obeyed;
            obeyed.send_if_modified(|it| std::mem::replace(it, epoch.clone()) != epoch);
        }
    }

    /// Takes in and records what a store says that is obeyed.
    async fn keep(&mut self, candidate: &Candidate, said: &Said) {
        for problem in &said.problems {
            tracing::warn!(
                server = candidate.server.server,
                problem,
                "namespace karmada-cluster"
            );
        }
        self.has_learned = true;
        self.remembered = self.remembered.learn(candidate, said);
        *self.setup.restart.seen.lock() = Some(self.remembered.clone());
        self.record().await;
        self.note_obeyed();
    }

    fn candidates(&self) -> Vec<Candidate> {
        let own = self.setup.fleet.own_server().to_string();
        candidates(&own, &self.setup.configured, &self.remembered.servers)
    }

    /// Asks the other servers, changes to one whose store was promoted, and informs older stores of
    /// the newest epoch: a former host that is back answers as before.
    async fn ask_others(&mut self, candidates: Vec<Candidate>, current: &Candidate) {
        let is_due = self
            .asked_others
            .is_none_or(|at| at.elapsed() >= ASK_OTHERS);
        if !is_due {
            return;
        }
        self.asked_others = Some(Instant::now());
        let others = without(candidates, current);
        let mut answers = self.servers.ask_all(others, self.remembered.epoch);
        while let Some((candidate, said)) = answers.next().await {
            let Ok(said) = said else {
                continue;
            };
            if takes_over(&self.remembered, &said) {
                self.keep(&candidate, &said).await;
                self.begin_anew("another store of the fleet was promoted");
                return;
            }
            if let Verdict::Refused(refusal) = judge(&self.remembered, &candidate, &said) {
                self.servers.report(&candidate, &refusal).await;
            }
        }
    }

    /// Ends the tasks of the agent, whose caches are those of a store that is not obeyed any more.
    fn begin_anew(&self, why: &str) {
        tracing::warn!(why, "the agent starts again");
        self.setup.fleet.set_gate(Gate::Closed(why.into()));
        self.publish_in_member(EventType::Warning, "FleetStoreChanged", why);
        self.setup.restart.begin(&self.setup.shutdown);
    }

    fn publish_in_member(&self, kind: EventType, reason: &str, words: &str) {
        let about = CoreObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.setup.namespace.clone()),
            name: Some(record_name(&self.setup.cluster)),
            ..CoreObjectReference::default()
        };
        let events = &self.setup.member_events;
        events.publish_about(about, kind, reason, words);
    }
}

fn without(candidates: Vec<Candidate>, current: &Candidate) -> Vec<Candidate> {
    let others = candidates
        .into_iter()
        .filter(|it| it.server != current.server);
    others.collect()
}

#[cfg(test)]
mod tests;
