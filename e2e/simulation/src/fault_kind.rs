//! Kinds of faults: what can go wrong, and whom it concerns.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clock::Skew;
use crate::history::{Actor, Api, Process};

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
    /// Each watch sends nothing for a while and then ends as one that is too old: what happened
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
    /// Each watch sends one piece twice.
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
    /// Numbers that an API returns in the status of objects and of the room of nodes are nonsense.
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
        /// The plural of the kind; none for all kinds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plural: Option<String>,
    },
    /// The quota of a cluster is used up: pods are not created. Some that run are evicted when it
    /// begins, as by the pressure on a node, so that their controllers need new ones.
    Quota {
        /// The server.
        api: Api,
        /// How many pods are evicted.
        #[serde(default)]
        evicted: usize,
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
    /// The calendar of one process jumps, and then drifts, until somebody sets it right.
    Skew {
        /// Whose.
        process: Process,
        /// Seconds ahead; negative for behind.
        jump: i64,
        /// Seconds in thousand by which it is faster; negative for slower.
        drift: i64,
    },
    /// The calendar of a server jumps: the times that it writes into objects are wrong.
    ServerClock {
        /// The server.
        api: Api,
        /// Seconds ahead; negative for behind.
        jump: i64,
    },
    /// The host of the fleet API dies with its control plane, and comes back with its old store
    /// when the fault ends. A standby has a store of before, and is promoted by a person.
    HostLoss {
        /// Age of the standby's store at the loss.
        snapshot: u64,
        /// Time after the loss at which the standby is promoted.
        promotion: u64,
        /// For how long movement is paused then (`--grace`).
        grace: String,
        /// Whether requests to the host wait, instead of failing at once.
        silent: bool,
    },
    /// The agent of a member lies about all of its peers.
    Lie {
        /// The member.
        member: String,
        /// Whether it says that it reaches them.
        reaches: bool,
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

impl FaultKind {
    /// Names of the kinds that every plan may have, in the order in which they are drawn.
    pub const NAMES: [&str; 21] = [
        "partition",
        "down",
        "refuse",
        "loseRequests",
        "loseAnswers",
        "slow",
        "crash",
        "lag",
        "break",
        "miss",
        "repeat",
        "stale",
        "garble",
        "nonsense",
        "short",
        "quota",
        "deny",
        "nodes",
        "clock",
        "skew",
        "serverClock",
    ];

    /// Returns the name of the fault's kind, as in the plan.
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["kind"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns whether the fault concerns watches and lists of a kind.
    pub(crate) fn is_about(&self, kind: &str) -> bool {
        match self {
            Self::Lag { plural, .. } | Self::Miss { plural, .. } | Self::Short { plural, .. } => {
                plural.as_ref().is_none_or(|plural| plural == kind)
            }
            _ => true,
        }
    }

    /// Returns whether the fault concerns the requests of a party to a server.
    pub(crate) fn concerns(&self, who: &Actor, server: &Api) -> bool {
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
            Self::Quota { api, .. } | Self::Deny { api, .. } => {
                api == server && matches!(who, Actor::Process(_) | Actor::Workloads)
            }
            Self::Clock { .. }
            | Self::Skew { .. }
            | Self::ServerClock { .. }
            | Self::HostLoss { .. }
            | Self::Lie { .. }
            | Self::Nodes { .. } => false,
        }
    }

    /// Returns whether objects that are read may be others than there are.
    pub(crate) const fn distorts(&self) -> bool {
        matches!(
            self,
            Self::Garble { .. } | Self::Nonsense { .. } | Self::Short { .. }
        )
    }

    /// Returns how the fault makes calendars of processes wrong from a time on.
    pub fn skew(&self, since: Timestamp) -> Option<Skew> {
        let (process, jump, drift) = match self {
            Self::Clock { offset } => (None, *offset, 0),
            Self::Skew {
                process,
                jump,
                drift,
            } => (Some(process.clone()), *jump, *drift),
            _ => return None,
        };
        let jump = SignedDuration::from_secs(jump);
        Some(Skew {
            process,
            since,
            jump,
            drift,
        })
    }

    /// Returns whether the fault acts by its beginning alone, whatever is asked meanwhile.
    pub(crate) const fn acts_at_once(&self) -> bool {
        matches!(
            self,
            Self::Partition { .. }
                | Self::Down { .. }
                | Self::Nodes { .. }
                | Self::Clock { .. }
                | Self::Skew { .. }
                | Self::ServerClock { .. }
                | Self::HostLoss { .. }
                | Self::Lie { .. }
        )
    }
}
