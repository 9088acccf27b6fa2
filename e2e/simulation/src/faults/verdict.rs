//! Verdicts: what faults do to a request, or to a piece of a watch.

use std::time::Duration;

use super::{Moment, Refusal};

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
