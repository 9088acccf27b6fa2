//! Interprets resources: number of replicas, health, status and dependencies.
//!
//! These are the native rules for the kinds of Kubernetes, one file per operation; the rules are
//! those of Karmada's default interpreter. Everything is a pure function of `serde_json::Value`s,
//! so that unknown fields survive. A function returns `None` for a kind without a rule for the
//! operation; [`hook_enabled`] tells the same without computing.

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

/// Reason why an object could not be interpreted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The kind has no rule for the operation; [`hook_enabled`] tells so beforehand.
    #[error("{operation} is not supported for {kind}")]
    Unsupported {
        /// The operation.
        operation: Operation,
        /// Group, version and kind of the object.
        kind: String,
    },
    /// A field that the rule reads has another type than expected.
    #[error("read {path:?}: expected {expected}, found {found}")]
    WrongType {
        /// Dotted path of the field inside the object.
        path: String,
        /// Type that the rule expects.
        expected: &'static str,
        /// Value of the field, shortened.
        found: String,
    },
    /// A field that the rule requires is absent.
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
        /// Error in the status.
        source: Box<Self>,
    },
    /// A quantity cannot be parsed.
    #[error("read {path:?}: {text:?} is not a quantity")]
    Quantity {
        /// Dotted path of the field inside the object.
        path: String,
        /// Text of the field.
        text: String,
    },
}
