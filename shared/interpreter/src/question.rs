//! What is asked about an object, and what an interpreter answers.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_shared::api::binding::{AggregatedStatusItem, Component, ReplicaRequirements};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Operation;

/// A question about an object.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Operation that is asked for.
    pub operation: Operation,
    /// The object.
    pub object: Cow<'a, Value>,
    /// The object in the member, for `Retain`.
    pub observed: Option<&'a Value>,
    /// Number of replicas, for `ReviseReplica`.
    pub replicas: i32,
    /// Statuses of the members, for `AggregateStatus`.
    pub items: &'a [AggregatedStatusItem],
    /// Time of the conditions that an aggregated status gets.
    pub now: Timestamp,
}

impl<'a> Question<'a> {
    /// Makes a question about an object alone.
    pub fn new(operation: Operation, object: &'a Value) -> Self {
        Self::of(operation, Cow::Borrowed(object))
    }

    /// Makes a question about an object alone, which may be given away with it.
    pub fn of(operation: Operation, object: Cow<'a, Value>) -> Self {
        Self {
            operation,
            object,
            observed: None,
            replicas: 0,
            items: &[],
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// Returns the API version and kind of the object.
    pub fn kind(&self) -> (&str, &str) {
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
    /// Status to report; `None` if there is none, or the template's is to stay as it is.
    Status(Option<Value>),
    /// Whether the object is healthy.
    Health(bool),
}

/// Replicas that a workload asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas {
    /// Number of replicas.
    pub replicas: i32,
    /// Requirements of one replica; `None` if it has none.
    pub requirements: Option<ReplicaRequirements>,
}

/// Dependency on one object, or on all objects of a kind with certain labels. Serialised as
/// Karmada's `DependentObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dependency {
    /// API group and version.
    pub api_version: String,
    /// Kind of the dependency.
    pub kind: String,
    /// Namespace of the dependency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name; absent if `label_selector` selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of all objects that are meant; absent if `name` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
