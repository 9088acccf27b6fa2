//! Faults: what goes wrong, when, and with whom.
//!
//! A fault is a part of the plan, with a number of its own and a generator of its own: leaving one
//! out of a plan leaves the decisions of all others as they were.

mod refusal;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::refusal::Refusal;
use crate::history::{Actor, Api, Process, Verb};
use crate::network::{Call, Kind};
use crate::random::Random;

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Number in the plan.
    pub id: u64,
    /// Milliseconds since the beginning of the busy phase at which it begins.
    pub from: u64,
    /// Milliseconds at which it ends.
    pub until: u64,
    /// What goes wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// What can go wrong. Shares are in thousandths of the requests; times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind"
)]
pub enum FaultKind {
    /// Two parties cannot reach each other.
    Partition {
        /// One of them.
        actor: Actor,
        /// The other.
        api: Api,
        /// Whether requests wait for the end of it, instead of failing at once.
        silent: bool,
    },
    /// A member is down with all that runs in it, its agent included.
    Down {
        /// The member.
        member: String,
    },
    /// A server refuses requests with a code.
    Refuse {
        /// Who is refused.
        actor: Actor,
        /// The server.
        api: Api,
        /// 403, 409, 410, 422, 429, 500, 503 or 504.
        code: u16,
        /// How many.
        share: u16,
    },
    /// Requests do not reach the server.
    LoseRequests {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
        /// How many.
        share: u16,
    },
    /// Requests are carried out and their answers are lost.
    LoseAnswers {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
        /// How many.
        share: u16,
    },
    /// Requests take longer.
    Slow {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
        /// The longest delay; each request has its own.
        delay: u64,
    },
    /// A process is killed at a write, and started again later.
    Crash {
        /// Which one.
        process: Process,
        /// At its so manieth write of this window, counted from 1.
        nth: u64,
        /// When exactly.
        moment: Moment,
        /// Whether leases and events count.
        of_all: bool,
    },
    /// Watches are behind.
    Lag {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
        /// By how much.
        lag: u64,
        /// The plural of the kind; none for all kinds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plural: Option<String>,
    },
    /// Each watch breaks once.
    Break {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
    },
    /// Each watch tells nothing for a while and then ends as one that is too old: what happened
    /// meanwhile is never seen as an event.
    Miss {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
        /// For how long.
        pause: u64,
        /// The plural of the kind; none for all kinds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plural: Option<String>,
    },
    /// Each watch tells one piece twice.
    Repeat {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
    },
    /// Lists that accept any version are some versions old.
    Stale {
        /// Whose.
        actor: Actor,
        /// The server.
        api: Api,
    },
    /// Objects in lists and watches have a `spec` that cannot be read. When it is over, watches end
    /// as too old: that an object can be read again is no event.
    Garble {
        /// Who reads them.
        actor: Actor,
        /// The server.
        api: Api,
        /// How many pieces of an answer have such an object, their first.
        share: u16,
    },
    /// Numbers that an API tells of the status of objects and of the room of nodes are nonsense.
    /// When it is over, watches end as too old, as with [`FaultKind::Garble`].
    Nonsense {
        /// Who reads them.
        actor: Actor,
        /// The server.
        api: Api,
        /// How many pieces of an answer have such an object.
        share: u16,
    },
    /// Lists lack some of their objects. When it is over, watches end as too old, as with
    /// [`FaultKind::Garble`].
    Short {
        /// Who lists.
        actor: Actor,
        /// The server.
        api: Api,
        /// How many of the objects.
        share: u16,
    },
    /// The quota of a cluster is used up: pods are not created.
    Quota {
        /// The server.
        api: Api,
    },
    /// An admission webhook refuses all writes of a kind, or does not answer.
    Deny {
        /// The server.
        api: Api,
        /// The plural of the kind.
        plural: String,
        /// Whether it does not answer, so that the server refuses in its place.
        fails: bool,
    },
    /// Nodes of a member fail, with all pods on them.
    Nodes {
        /// The member.
        member: String,
        /// How many.
        count: usize,
    },
    /// The calendar of all programs is wrong by so many seconds.
    Clock {
        /// Seconds ahead; negative for behind.
        offset: i64,
    },
}

/// When in a write a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
    /// The request is not sent.
    BeforeSending,
    /// The server has committed it, and the answer is on its way.
    AfterCommit,
}

/// State of the way between two parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Requests pass.
    Open,
    /// Requests fail at once.
    Reset,
    /// Requests wait.
    Silent,
}

/// What happens to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Delay beyond the usual latency.
    pub delay: Duration,
    /// The refusal that the caller gets instead of what the server would say.
    pub refusal: Option<Refusal>,
    /// Whether it does not reach the server.
    pub loses_request: bool,
    /// Whether its answer does not reach the caller.
    pub loses_answer: bool,
    /// Whether a list may be old.
    pub is_stale: bool,
    /// Whether the caller is killed.
    pub crash: Option<Moment>,
}

/// What happens to a piece of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // faults that occur together
pub struct Piece {
    /// It comes so much later.
    pub lag: Duration,
    /// The watch breaks instead.
    pub breaks: bool,
    /// Nothing comes for a while, and then the watch ends as too old.
    pub misses: Option<Duration>,
    /// It comes twice.
    pub repeats: bool,
    /// Its first object cannot be read.
    pub garbles: bool,
    /// The numbers in it are nonsense.
    pub is_nonsense: bool,
}

/// The faults that are going on.
#[derive(Debug, Default)]
pub struct Faults {
    active: Mutex<BTreeMap<u64, Active>>,
    /// How many times each kind did something.
    counts: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Active {
    kind: FaultKind,
    random: Random,
    /// Writes of the process that is to be killed.
    writes: u64,
}

impl FaultKind {
    /// Its name, as in the plan.
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["kind"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether it concerns watches of a kind.
    fn is_about(&self, kind: &str) -> bool {
        match self {
            Self::Lag { plural, .. } | Self::Miss { plural, .. } => {
                plural.as_ref().is_none_or(|plural| plural == kind)
            }
            _ => true,
        }
    }

    /// Whether it concerns the requests of a party to a server.
    fn concerns(&self, who: &Actor, server: &Api) -> bool {
        match self {
            Self::Partition { actor, api, .. }
            | Self::Refuse { actor, api, .. }
            | Self::LoseRequests { actor, api, .. }
            | Self::LoseAnswers { actor, api, .. }
            | Self::Slow { actor, api, .. }
            | Self::Lag { actor, api, .. }
            | Self::Break { actor, api }
            | Self::Miss { actor, api, .. }
            | Self::Repeat { actor, api }
            | Self::Garble { actor, api, .. }
            | Self::Nonsense { actor, api, .. }
            | Self::Short { actor, api, .. }
            | Self::Stale { actor, api } => actor == who && api == server,
            Self::Crash { process, .. } => matches!(who, Actor::Process(it) if it == process),
            Self::Down { member } => {
                matches!(who, Actor::Process(Process::Agent(name)) if name == member)
                    || matches!(server, Api::Member(name) if name == member)
            }
            // People write their steps once, and know when they are refused.
            Self::Quota { api } | Self::Deny { api, .. } => {
                api == server && matches!(who, Actor::Process(_) | Actor::Workloads)
            }
            Self::Clock { .. } | Self::Nodes { .. } => false,
        }
    }

    /// Whether objects that are read may be others than there are.
    const fn distorts(&self) -> bool {
        matches!(
            self,
            Self::Garble { .. } | Self::Nonsense { .. } | Self::Short { .. }
        )
    }
}

impl Faults {
    /// Begins a fault.
    pub fn begin(&self, seed: u64, fault: &Fault) {
        let active = Active {
            kind: fault.kind.clone(),
            random: Random::new(seed, &format!("fault {}", fault.id)),
            writes: 0,
        };
        self.active().insert(fault.id, active);
        if matches!(
            fault.kind,
            FaultKind::Partition { .. }
                | FaultKind::Down { .. }
                | FaultKind::Nodes { .. }
                | FaultKind::Clock { .. }
        ) {
            self.count(&fault.kind);
        }
    }

    /// Ends a fault.
    pub fn end(&self, id: u64) {
        self.active().remove(&id);
    }

    /// How many times each kind did something.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// State of the way between a party and a server.
    pub fn way(&self, actor: &Actor, api: &Api) -> Way {
        let mut way = Way::Open;
        for active in self.active().values() {
            match &active.kind {
                kind if !kind.concerns(actor, api) => {}
                FaultKind::Partition { silent: false, .. } => way = Way::Reset,
                FaultKind::Partition { .. } | FaultKind::Down { .. } => return Way::Silent,
                _ => {}
            }
        }
        way
    }

    /// Whether a party may read other objects of a server than there are now.
    pub fn distorts(&self, actor: &Actor, api: &Api) -> bool {
        let active = self.active();
        let mut kinds = active.values().map(|active| &active.kind);
        kinds.any(|kind| kind.distorts() && kind.concerns(actor, api))
    }

    /// Whether a list of a party lacks its next object.
    pub fn leaves_out(&self, actor: &Actor, api: &Api) -> bool {
        let mut leaves_out = false;
        for active in self.active().values_mut() {
            if let FaultKind::Short { share, .. } = active.kind
                && active.kind.concerns(actor, api)
                && active.random.per_mille(share)
            {
                leaves_out = true;
                self.count(&active.kind);
            }
        }
        leaves_out
    }

    /// Decides what happens to a request.
    pub fn judge(&self, actor: &Actor, call: &Call) -> Verdict {
        let mut verdict = Verdict::default();
        for active in self.active().values_mut() {
            if !active.kind.concerns(actor, &call.api) {
                continue;
            }
            let random = &mut active.random;
            let acts = match &active.kind {
                FaultKind::Refuse { code, share, .. } => {
                    let fits = fits(*code, call) && random.per_mille(*share);
                    if fits {
                        verdict.refusal = Some(Refusal::of(*code));
                    }
                    fits
                }
                FaultKind::Quota { .. } => {
                    let creates = call.verb == Verb::Create && call.resource.plural == "pods";
                    if creates && call.is_stored() {
                        verdict.refusal = Some(Refusal::QUOTA);
                    }
                    creates
                }
                FaultKind::Deny { plural, fails, .. } => {
                    let asks = call.is_stored() && call.resource.plural == *plural;
                    if asks {
                        verdict.refusal = Some(if *fails {
                            Refusal::NO_WEBHOOK
                        } else {
                            Refusal::of(403)
                        });
                    }
                    asks
                }
                FaultKind::LoseRequests { share, .. } => {
                    verdict.loses_request |= random.per_mille(*share);
                    verdict.loses_request
                }
                FaultKind::LoseAnswers { share, .. } => {
                    verdict.loses_answer |= random.per_mille(*share);
                    verdict.loses_answer
                }
                FaultKind::Slow { delay, .. } => {
                    verdict.delay += Duration::from_millis(random.below(delay + 1));
                    true
                }
                FaultKind::Crash {
                    nth,
                    moment,
                    of_all,
                    ..
                } if call.is_stored() && (*of_all || call.decides()) => {
                    active.writes += 1;
                    let is_now = active.writes == *nth;
                    verdict.crash = if is_now { Some(*moment) } else { verdict.crash };
                    is_now
                }
                FaultKind::Stale { .. } => {
                    verdict.is_stale = call.kind == Kind::List;
                    verdict.is_stale
                }
                _ => false,
            };
            if acts {
                self.count(&active.kind);
            }
        }
        verdict
    }

    /// Decides what happens to the next piece of a watch. `seen` are the faults that the watch has
    /// had already.
    pub fn piece(&self, actor: &Actor, api: &Api, kind: &str, seen: &mut Vec<u64>) -> Piece {
        let mut piece = Piece::default();
        for (id, active) in self.active().iter_mut() {
            if !active.kind.concerns(actor, api) || !active.kind.is_about(kind) {
                continue;
            }
            if let FaultKind::Lag { lag, .. } = &active.kind {
                piece.lag += Duration::from_millis(*lag);
            }
            let (share, distortion) = match active.kind {
                FaultKind::Garble { share, .. } if TYPED.contains(&kind) => {
                    (share, &mut piece.garbles)
                }
                FaultKind::Nonsense { share, .. } => (share, &mut piece.is_nonsense),
                _ => (0, &mut piece.garbles),
            };
            if active.random.per_mille(share) {
                *distortion = true;
                self.count(&active.kind);
            }
            if seen.contains(id) {
                continue;
            }
            match &active.kind {
                FaultKind::Lag { .. } => {}
                FaultKind::Break { .. } => piece.breaks = true,
                FaultKind::Miss { pause, .. } => {
                    piece.misses = Some(Duration::from_millis(*pause));
                }
                FaultKind::Repeat { .. } => piece.repeats = true,
                _ => continue,
            }
            seen.push(*id);
            self.count(&active.kind);
        }
        piece
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<u64, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, kind: &FaultKind) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(kind.name()).or_default() += 1;
    }
}

/// Kinds that the product reads with a `spec` of a certain shape. Of all others any is fine, and
/// what a cache has of one version of an object is never read again.
const TYPED: [&str; 12] = [
    "clusters",
    "works",
    "resourcebindings",
    "clusterresourcebindings",
    "propagationpolicies",
    "clusterpropagationpolicies",
    "overridepolicies",
    "clusteroverridepolicies",
    "clustertaintpolicies",
    "workloadrebalancers",
    "nodes",
    "pods",
];

/// Whether a server gives such a code to such a request.
fn fits(code: u16, call: &Call) -> bool {
    match code {
        403 | 409 | 422 => call.kind == Kind::Write,
        410 => matches!(call.kind, Kind::List | Kind::Watch),
        _ => true,
    }
}
