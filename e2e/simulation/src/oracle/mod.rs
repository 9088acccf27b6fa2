//! Oracles: the promises of the README as code over a [`history`](crate::history).
//!
//! An oracle states a promise independently of the product: it knows the API's kinds and the words
//! of the README, and calls none of the code that it judges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::history::{Entry, Key};

/// A check of one promise.
pub trait Oracle {
    /// The name, for reports and for selecting oracles.
    fn name(&self) -> &'static str;

    /// Takes note of the next entry, and tells which violations it completes.
    fn observe(&mut self, entry: &Entry) -> Vec<Violation>;

    /// Tells what is violated by the end state.
    fn end(&mut self, end: &End) -> Vec<Violation>;
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that tells.
    pub oracle: &'static str,
    /// When.
    pub at: Timestamp,
    /// The object.
    pub subject: String,
    /// What is wrong, for who reads the report.
    pub message: String,
}

/// The end of a simulation.
#[derive(Clone, Debug)]
pub struct End {
    /// Virtual time.
    pub at: Timestamp,
    /// All objects of all API servers.
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// Member clusters that the fleet API can reach and that are up.
    pub reachable: BTreeSet<String>,
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}: {}",
            self.at, self.oracle, self.subject, self.message
        )
    }
}
