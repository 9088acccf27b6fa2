//! Inputs and outputs of the eviction queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::PurgeMode;
use muster_shared::clock::Clock;
use muster_shared::events::EventType;
use tokio::time::Instant;

use super::Key;
use crate::fleet::budget::pace::Paid;
use crate::movement::eviction::backlog::Rank;
use crate::movement::eviction::explain::Note;
use crate::movement::eviction::judge::Cause;
use crate::movement::eviction::room::Kept;

/// One moment on both clocks: the calendar that objects are dated by, and the monotonic one that
/// waiting is done by.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Calendar.
    pub wall: Timestamp,
    /// Monotonic.
    pub tick: Instant,
}

impl Now {
    /// Returns the present moment, by the clock that decisions are dated by.
    pub fn by(clock: &Clock) -> Self {
        Self {
            wall: clock.now(),
            tick: Instant::now(),
        }
    }

    pub(super) fn instant_of(self, moment: Timestamp) -> Instant {
        self.tick + Duration::try_from(moment.duration_since(self.wall)).unwrap_or_default()
    }
}

/// Reason why a workload is in the queue. Planned, it has an `EvictionReason` (`reason.rs`).
#[derive(Clone, Debug, PartialEq)]
pub enum QueueReason {
    /// The cluster has a taint.
    Taint(Cause),
    /// The application has been unhealthy in the cluster for too long. How it leaves, the
    /// controller that follows applications says.
    Failure,
}

impl fmt::Display for QueueReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint(cause) => cause.fmt(f),
            Self::Failure => f.write_str("an application that stays unhealthy"),
        }
    }
}

/// A workload that the rate lets leave, with all that is needed to move it.
#[derive(Debug)]
pub struct Eviction {
    /// The cluster it leaves.
    pub cluster: Arc<str>,
    /// Its binding.
    pub binding: Arc<AnyBinding>,
    /// Reason why the workload leaves.
    pub reason: QueueReason,
    /// Room that is kept for workloads of a higher priority.
    pub kept: Arc<Kept>,
    /// Payment for its move.
    pub paid: Paid,
    pub(super) rank: Rank,
    /// How often the stranded workloads had been woken before it was planned.
    pub(super) wakes: u64,
}

impl Eviction {
    /// Returns since when the workload was to leave.
    pub fn since(&self) -> Timestamp {
        self.rank.since()
    }
}

/// Next step of the evictor.
#[derive(Debug)]
pub enum Step {
    /// Move a workload, then call `Evictor::done`.
    Evict(Box<Eviction>),
    /// Do nothing before this instant, unless something changes.
    Wait(Option<Instant>),
}

/// Result of an eviction.
#[derive(Debug)]
pub enum Outcome {
    /// The workload left.
    Evicted {
        /// Its binding as it is now.
        binding: Arc<AnyBinding>,
        /// The clusters in which it is placed.
        to: String,
        /// Treatment of the old copy.
        mode: PurgeMode,
    },
    /// No other cluster could take the workload, in words.
    Nowhere(String),
    /// The new copy could not be given what its policy asks for, in words.
    Unpreserved(String),
    /// Movement is paused out of another cluster that it would leave as well, in words.
    Paused(String),
    /// Another client wrote the binding first, another replica leads by now, movement out of the
    /// cluster was paused meanwhile, or the application does not have to leave it any more.
    Conflict,
    /// The binding is gone.
    Gone,
    /// The API refused the write, or did not show what it is decided by, in words: nothing was
    /// evicted.
    Failed(String),
    /// Nobody knows whether the write was carried out (no answer in time, an error within the
    /// server, a connection that was lost), in words. What was paid for it stays paid: the rate
    /// holds when the API is in trouble, too.
    Unclear(String),
}

/// Event about a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterNote {
    /// The cluster.
    pub cluster: Arc<str>,
    /// The reason, in one word.
    pub reason: &'static str,
    /// The message, a sentence.
    pub message: String,
}

impl ClusterNote {
    /// Returns the type of the event: a warning or a normal one.
    pub fn severity(&self) -> EventType {
        match self.reason {
            "EvictionStopped" | "EvictionNowhereToGo" | "DrainRateUnreadable" => EventType::Warning,
            _ => EventType::Normal,
        }
    }
}

/// Reports that are to be written: events and conditions.
#[derive(Debug, Default)]
pub struct Reports {
    /// Bindings that are gone: there is nothing more to report of them.
    pub gone: Vec<Key>,
    /// About bindings.
    pub bindings: Vec<(Key, Note)>,
    /// Failing applications that left, or of which there is something else to report.
    pub applications: Vec<Key>,
    /// About clusters.
    pub clusters: Vec<ClusterNote>,
}
