//! What is asked about an object, and what an interpreter answers.

use muster_shared::api::binding::AggregatedStatusItem;
use serde_json::Value;

use crate::Operation;
use crate::lua::{Component, Dependency, Replicas};

/// A question about an object.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is asked.
    pub operation: Operation,
    /// The object.
    pub object: &'a Value,
    /// The object in the member, for `Retain`.
    pub observed: Option<&'a Value>,
    /// Number of replicas, for `ReviseReplica`.
    pub replicas: i32,
    /// Statuses of the members, for `AggregateStatus`.
    pub items: &'a [AggregatedStatusItem],
}

impl<'a> Question<'a> {
    /// Makes a question about an object alone.
    pub fn new(operation: Operation, object: &'a Value) -> Self {
        Self {
            operation,
            object,
            observed: None,
            replicas: 0,
            items: &[],
        }
    }

    /// Returns the API version and kind of the object.
    pub fn kind(&self) -> (&'a str, &'a str) {
        let text = |key: &str| self.object[key].as_str().unwrap_or_default();
        (text("apiVersion"), text("kind"))
    }
}

/// Answer to a question, by its operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Replicas of a workload.
    Replicas(Replicas),
    /// Components of a workload.
    Components(Vec<Component>),
    /// The object as the operation leaves it.
    Object(Value),
    /// Objects that the object depends on.
    Dependencies(Vec<Dependency>),
    /// Status to report.
    Status(Value),
    /// Whether the object is healthy.
    Health(bool),
}

impl Answer {
    /// Returns the object of an operation that changes it.
    pub(crate) fn object(self) -> Option<Value> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}
