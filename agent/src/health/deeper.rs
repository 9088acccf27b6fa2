//! Further health checks, each with a condition of its own. They are off unless requested.
//!
//! They do not affect `Ready`: a ClusterTaintPolicy can act on their conditions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::select_ok;
use jiff::Timestamp;
use muster_shared::api::cluster::NodeSummary;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{EGRESS_READY, NAMES_RESOLVE, NODES_READY, RESPONSIVE};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use super::debounce::{Memory, Readiness, Thresholds, Verdict, debounce};
use super::recent::{Limits, Recent};

/// Message of Karmada's detector for CoreDNS when it reports that names do not resolve.
const OF_DETECTOR: &str = "service domain name resolution is unready";

/// Deadline for the resolution of a name. Pods also give up after five seconds.
const LONGEST_LOOKUP: Duration = Duration::from_secs(5);

/// Result of the last lookup, or of the last connection; `None` before the first.
pub type Lookup = Option<Result<(), String>>;

/// The enabled checks.
#[derive(Debug, Default)]
pub struct Deeper {
    /// Share of nodes, from 0 to 1, that must be ready; `None` without this check.
    pub ready_nodes: Option<f64>,
    /// Results of the lookup of a name; `None` without this check.
    pub lookup: Option<watch::Receiver<Lookup>>,
    /// Results of a connection to an address; `None` without this check.
    pub egress: Option<watch::Receiver<Lookup>>,
    /// Limits for the answers of the API server; `None` without this check.
    pub api: Option<Limits>,
}

impl Deeper {
    /// Returns the present conditions; a check without a result yet has none. While the API server
    /// is not reachable, nodes and names keep their conditions.
    pub fn observe(
        &self,
        nodes: Option<NodeSummary>,
        recent: &Recent,
        is_reachable: bool,
        now: Timestamp,
    ) -> Vec<Condition> {
        let nodes = self.ready_nodes.zip(nodes).filter(|_| is_reachable);
        let nodes = nodes.map(|(share, nodes)| nodes_ready(nodes, share, now));
        let last = |of: &Option<watch::Receiver<Lookup>>| of.as_ref()?.borrow().clone();
        let lookup = last(&self.lookup).filter(|_| is_reachable);
        let lookup = lookup.map(|answer| names_resolve(&answer, now));
        let egress = last(&self.egress).map(|answer| egress_ready(&answer, now));
        let api = self.api.and_then(|limits| recent.condition(limits, now));
        let all = nodes.into_iter().chain(lookup);
        all.chain(egress).chain(api).collect()
    }

    /// Returns the types of an agent's conditions whose check is off: nothing corrects them, and a
    /// ClusterTaintPolicy may act on one for ever. Those of others of the same types stay. Whether
    /// names resolve may be in the words of Karmada's detector, which corrects its own.
    pub fn retired(&self, stored: &[Condition]) -> Vec<String> {
        let is_off = |it: &&Condition| match (it.type_.as_str(), it.reason.as_str()) {
            (NODES_READY, "EnoughNodesReady" | "TooFewNodesReady") => self.ready_nodes.is_none(),
            (NAMES_RESOLVE, "ServiceDomainNameResolutionFailed") => {
                self.lookup.is_none() && it.message != OF_DETECTOR
            }
            (EGRESS_READY, "Connected" | "NotConnected") => self.egress.is_none(),
            (RESPONSIVE, "Responsive" | "SlowOrFailing") => self.api.is_none(),
            _ => false,
        };
        let off = stored.iter().filter(is_off);
        off.map(|it| it.type_.clone()).collect()
    }
}

/// Judges whether enough nodes are ready. A cluster without nodes runs nothing, so it has not
/// enough.
fn nodes_ready(nodes: NodeSummary, share: f64, now: Timestamp) -> Condition {
    let (ready, total) = (nodes.ready_num, nodes.total_num);
    let enough = total > 0 && f64::from(ready) >= share * f64::from(total);
    let (status, reason) = if enough {
        (TRUE, "EnoughNodesReady")
    } else {
        (FALSE, "TooFewNodesReady")
    };
    // The message has no numbers, because they change often; the status has them.
    let message = format!(
        "{} {}% of the nodes are ready",
        if enough { "at least" } else { "less than" },
        share * 100.0
    );
    conditions::new(NODES_READY, status, reason, &message, now)
}

fn names_resolve(answer: &Result<(), String>, now: Timestamp) -> Condition {
    let (status, reason, message) = match answer {
        Ok(()) => (
            TRUE,
            "ServiceDomainNameResolutionReady",
            "service domain name resolution is ready",
        ),
        Err(cause) => (FALSE, "ServiceDomainNameResolutionFailed", cause.as_str()),
    };
    conditions::new(NAMES_RESOLVE, status, reason, message, now)
}

fn egress_ready(answer: &Result<(), String>, now: Timestamp) -> Condition {
    let (status, reason, message) = match answer {
        Ok(()) => (TRUE, "Connected", "connections out of the cluster succeed"),
        Err(cause) => (FALSE, "NotConnected", cause.as_str()),
    };
    conditions::new(EGRESS_READY, status, reason, message, now)
}

/// Looks a name up once a period, with the resolver of the member's pods, and publishes the
/// results.
pub async fn resolve(
    name: String,
    period: Duration,
    publish: watch::Sender<Lookup>,
    shutdown: CancellationToken,
) {
    let late = "was not resolved";
    check(|| look_up(&name), &name, late, period, publish, shutdown).await;
}

/// Connects to an address (`host:port`) once a period, sends nothing, and publishes the results.
pub async fn connect(
    address: String,
    period: Duration,
    publish: watch::Sender<Lookup>,
    shutdown: CancellationToken,
) {
    let late = "was not connected to";
    check(
        || connect_to(&address),
        &address,
        late,
        period,
        publish,
        shutdown,
    )
    .await;
}

async fn connect_to(address: &str) -> Result<(), String> {
    let resolved = tokio::net::lookup_host(address).await;
    let resolved = resolved.map_err(|error| format!("{address} was not resolved: {error}"))?;
    connect_to_any(address, resolved.collect()).await
}

/// Connects to one of the addresses that a name resolved to, as most programs do: to the one that
/// answers first.
async fn connect_to_any(address: &str, resolved: Vec<SocketAddr>) -> Result<(), String> {
    if resolved.is_empty() {
        return Err(format!("{address} has no address"));
    }
    let connections = resolved.into_iter().map(TcpStream::connect).map(Box::pin);
    match timeout(LONGEST_LOOKUP, select_ok(connections)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{address} was not connected to: {error}")),
        Err(_) => Err(format!("{address} was not connected to in time")),
    }
}

/// Asks a question about a subject once a period, and publishes the answers; `late` says what has
/// not happened when one does not come in time.
async fn check<F: Future<Output = Result<(), String>>>(
    ask: impl Fn() -> F,
    subject: &str,
    late: &str,
    period: Duration,
    publish: watch::Sender<Lookup>,
    shutdown: CancellationToken,
) {
    let deadline = (period / 2).min(LONGEST_LOOKUP);
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asks = async {
        loop {
            timer.tick().await;
            let mut asked = std::pin::pin!(ask());
            let answer = timeout(deadline, &mut asked).await;
            let is_late = answer.is_err();
            let answer = answer.unwrap_or_else(|_| {
                Err(format!(
                    "{subject} {late} within {}s",
                    deadline.as_secs_f64()
                ))
            });
            publish.send_replace(Some(answer));
            if is_late {
                // The lookup continues in a thread of its own until the resolver gives up; there is
                // at most one.
                _ = asked.await;
            }
        }
    };
    shutdown.run_until_cancelled(asks).await;
}

async fn look_up(name: &str) -> Result<(), String> {
    let mut addresses = tokio::net::lookup_host((name, 0))
        .await
        .map_err(|error| format!("{name} was not resolved: {error}"))?;
    let first = addresses.next();
    first
        .map(|_| ())
        .ok_or_else(|| format!("{name} has no address"))
}

/// Holds changes back until they have lasted, as with `Ready`. Other words for the same failure are
/// no change: a name may not be resolved for one cause now and for another one in ten seconds.
#[derive(Debug, Default)]
pub struct Steady {
    memories: BTreeMap<String, Option<Memory>>,
    /// The first of the last observations with one status and reason, whose words stay, by type.
    first: BTreeMap<String, Condition>,
}

impl Steady {
    /// Returns the conditions to report, given those of the Cluster.
    pub fn judge(
        &mut self,
        stored: &[Condition],
        observed: Vec<Condition>,
        thresholds: Thresholds,
        at: Instant,
    ) -> Vec<Condition> {
        let mut reported = observed;
        for observed in &mut reported {
            self.keep_words(observed);
        }
        reported.retain(|observed| {
            let stored = stored.iter().find(|known| known.type_ == observed.type_);
            let stored = stored.map(|known| Readiness::of(&known.status));
            let memory = self
                .memories
                .entry(observed.type_.clone())
                .or_insert_with(|| stored.map(Memory::resuming));
            let observed = Readiness::of(&observed.status);
            debounce(memory, stored, observed, thresholds, at) == Verdict::Report
        });
        reported
    }

    /// Gives an observation the words of the one before if status and reason are the same.
    fn keep_words(&mut self, observed: &mut Condition) {
        let is_same = |first: &&Condition| {
            (&first.status, &first.reason) == (&observed.status, &observed.reason)
        };
        let first = self.first.get(&observed.type_).filter(is_same);
        if let Some(first) = first {
            observed.message.clone_from(&first.message);
        } else {
            self.first.insert(observed.type_.clone(), observed.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn nodes_are_ready_when_the_share_of_them_is() {
        for (ready, total, share, expected) in [
            (5, 5, 0.6, "True"),
            (3, 5, 0.6, "True"),
            (2, 5, 0.6, "False"),
            (1, 1, 1.0, "True"),
            (0, 0, 0.1, "False"),
        ] {
            let nodes = NodeSummary {
                total_num: total,
                ready_num: ready,
            };
            let condition = nodes_ready(nodes, share, NOW);
            assert_eq!(condition.status, expected, "{ready} of {total}, {share}");
        }
    }

    #[tokio::test]
    async fn a_change_is_reported_when_it_has_lasted() {
        let thresholds = Thresholds {
            success: Duration::from_secs(30),
            failure: Duration::from_secs(10),
        };
        let (start, well, ill) = (
            Instant::now(),
            names_resolve(&Ok(()), NOW),
            names_resolve(&Err("x".into()), NOW),
        );
        let mut steady = Steady::default();
        let mut stored = Vec::new();
        for (second, observed, said) in [
            (0, &well, true),
            (10, &ill, false),
            (15, &ill, false),
            (16, &well, true),
            (20, &ill, false),
            (30, &ill, true),
            (40, &well, false),
            (70, &well, true),
        ] {
            let at = start + Duration::from_secs(second);
            let reported = steady.judge(&stored, vec![observed.clone()], thresholds, at);
            assert_eq!(!reported.is_empty(), said, "{second}");
            if said {
                stored = reported;
            }
        }
    }

    #[test]
    fn a_failure_keeps_its_words_until_it_ends_or_the_agent_starts_again() {
        let failure = |cause: &str| names_resolve(&Err(cause.to_owned()), NOW);
        let well = names_resolve(&Ok(()), NOW);
        let thresholds = Thresholds {
            success: Duration::ZERO,
            failure: Duration::ZERO,
        };
        let mut steady = Steady::default();
        let mut stored = vec![failure("of the agent before")];
        for (observed, words) in [
            (failure("refused"), "refused"),
            (failure("late"), "refused"),
            (well.clone(), &*well.message),
            (failure("late"), "late"),
            (failure("refused"), "late"),
        ] {
            stored = steady.judge(&stored, vec![observed], thresholds, Instant::now());
            assert_eq!(stored[0].message, words);
        }
    }

    #[tokio::test]
    async fn names_are_looked_up() {
        assert_eq!(look_up("localhost").await, Ok(()));
        let error = look_up("nothing.invalid").await.unwrap_err();
        assert!(error.starts_with("nothing.invalid"), "{error}");
    }

    #[test]
    fn nothing_is_asked_unless_it_was_asked_for() {
        let nodes = NodeSummary::default();
        let mut recent = Recent::default();
        for _ in 0..9 {
            recent.note(None);
        }
        assert_eq!(
            Deeper::default().observe(Some(nodes), &recent, true, NOW),
            []
        );
    }

    #[test]
    fn the_conditions_of_checks_that_are_switched_off_are_taken_back_and_those_of_others_stay() {
        let few = nodes_ready(NodeSummary::default(), 0.5, NOW);
        let other = Condition {
            reason: "SomebodyElse".into(),
            ..few.clone()
        };
        let unresolved = |message: &str| names_resolve(&Err(message.into()), NOW);
        let resolved = names_resolve(&Ok(()), NOW);
        let mut recent = Recent::default();
        for _ in 0..9 {
            recent.note(None);
        }
        let limits = Limits {
            latency: Duration::from_secs(1),
            share: 0.5,
        };
        let slow = recent.condition(limits, NOW).unwrap();
        for (what, stored, is_off) in [
            ("nodes", few, true),
            ("nodes, somebody else's", other, false),
            ("a name", unresolved("x was not resolved"), true),
            ("names, the detector's", unresolved(OF_DETECTOR), false),
            ("names, the detector's or ours", resolved, false),
            ("egress", egress_ready(&Err("x".into()), NOW), true),
            ("the API server", slow, true),
        ] {
            let expected = if is_off {
                vec![stored.type_.clone()]
            } else {
                vec![]
            };
            assert_eq!(Deeper::default().retired(&[stored]), expected, "{what}");
        }
        let (_, lookup) = watch::channel(None);
        let (_, egress) = watch::channel(None);
        let every = Deeper {
            ready_nodes: Some(0.5),
            lookup: Some(lookup),
            egress: Some(egress),
            api: Some(limits),
        };
        let stored = [
            nodes_ready(NodeSummary::default(), 0.5, NOW),
            unresolved("x was not resolved"),
            egress_ready(&Ok(()), NOW),
            recent.condition(limits, NOW).unwrap(),
        ];
        assert_eq!(every.retired(&stored), Vec::<String>::new());
    }

    #[tokio::test]
    async fn one_address_of_a_name_that_answers_is_enough() {
        let bind = || async { TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let (listener, other) = (bind().await, bind().await);
        let live = listener.local_addr().unwrap();
        let dead = other.local_addr().unwrap();
        drop(other);
        for (resolved, is_connected) in [
            (vec![live], true),
            (vec![dead, live], true),
            (vec![live, dead], true),
            (vec![dead, dead], false),
            (vec![], false),
        ] {
            let answer = connect_to_any("name:443", resolved.clone()).await;
            assert_eq!(answer.is_ok(), is_connected, "{resolved:?} {answer:?}");
        }
    }

    #[tokio::test]
    async fn connections_out_of_the_member_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(connect_to(&address).await, Ok(()));
        drop(listener);
        let error = connect_to(&address).await.unwrap_err();
        assert!(
            error.starts_with(&format!("{address} was not connected to: ")),
            "{error}"
        );
        let error = connect_to("nothing.invalid:443").await.unwrap_err();
        assert!(
            error.starts_with("nothing.invalid:443 was not resolved"),
            "{error}"
        );
        let said = egress_ready(&Err(error.clone()), NOW);
        assert_eq!((said.status.as_str(), said.message), ("False", error));
        assert_eq!(egress_ready(&Ok(()), NOW).status, "True");
    }
}
