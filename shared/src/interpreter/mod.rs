//! What a resource means: how many replicas it wants, whether it is healthy, which part of its
//! status matters, what it needs beside it.
//!
//! The native rules for the kinds that ship with Kubernetes, one file an operation. Everything here
//! is a pure function of `serde_json::Value`s, so that fields nobody of us knows survive. A
//! function answers `None` for a kind without a rule of that operation; [`hook_enabled`] says the
//! same without computing. The rules are those of Karmada's default interpreter.

mod aggregate;
mod dependencies;
mod health;
mod kind;
mod pod;
mod prune;
mod read;
mod replica;
mod retain;
mod revise;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use aggregate::{MemberStatus, acceptable_status, aggregate_status};
pub use dependencies::{Dependency, MatchLabels, dependencies};
pub use health::health;
pub use kind::{Operation, hook_enabled};
pub use prune::prune;
pub use replica::{Replicas, interpret_replica};
pub use retain::retain;
pub use revise::revise_replica;
pub use status::status;

/// Why an object could not be interpreted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The kind has no rule for the operation; [`hook_enabled`] says so beforehand.
    #[error("{operation} is not supported for {kind}")]
    Unsupported {
        /// What was asked.
        operation: Operation,
        /// Group, version and kind.
        kind: String,
    },
    /// A field that the rule reads holds something else than it must.
    #[error("read {path:?}: expected {expected}, found {found}")]
    WrongType {
        /// Dotted path of the field inside the object.
        path: String,
        /// What the rule can use.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A field without which the rule has no answer is absent.
    #[error("read {path:?}: the field is absent")]
    Missing {
        /// Dotted path of the field inside the object.
        path: String,
    },
    /// The status that one cluster reported cannot be read.
    #[error("aggregate the status reported by cluster {cluster:?}: {source}")]
    Member {
        /// Name of the cluster.
        cluster: String,
        /// What is wrong with it.
        source: Box<Self>,
    },
    /// A quantity cannot be parsed.
    #[error("read {path:?}: {text:?} is not a quantity")]
    Quantity {
        /// Dotted path of the field inside the object.
        path: String,
        /// What is there.
        text: String,
    },
}
