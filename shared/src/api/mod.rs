//! The typed API of `*.karmada.io`. Each kind has its own file; names are those of Karmada's Go
//! types, fields those of its JSON.
//!
//! Decoding is tolerant: unknown fields and unknown enum values never fail an object, and an absent
//! field has its zero value, as in Go, because one unusual object must not stop a watch. Strictness
//! is the API server's task: [`crds`] carries the enums, defaults and rules.
//!
//! Optional strings, structs and Go pointers are `Option`. Optional numbers and booleans that Go
//! holds by value are plain, because absent means zero or false. Lists and maps are empty when
//! absent, except where absent and empty differ. A required enum that is absent is `Other("")`.
//!
//! An optional field is serialised only if it has a value: `null` would be stored, and owned by the
//! field manager, as a value.
//!
//! Documentation comments on types and fields become the descriptions of the definitions, which
//! `kubectl explain` shows: they are written for operators, and `shared/tests/descriptions.rs`
//! checks that every field has one of its own.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

mod macros;

pub mod any_binding;
pub mod any_policy;
pub mod binding;
pub mod cluster;
pub mod conditions;
pub mod data_replication;
pub mod definition;
mod eviction_task;
pub mod failback;
mod failover;
pub mod failover_record;
pub mod interpreter;
pub mod interpreter_webhook;
pub mod override_policy;
mod placement;
pub mod policy;
mod policy_status;
pub mod rebalancer;
mod requirements;
mod schema;
pub mod scope;
pub mod taint_policy;
pub mod work;

use definition::Defined;

/// A kind, of this API or of Kubernetes, that can be watched, decoded and written.
pub trait Object:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Returns the definitions to install on an API server, in a stable order.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        cluster::Cluster::crd(),
        interpreter::ResourceInterpreterCustomization::crd(),
        interpreter_webhook::ResourceInterpreterWebhookConfiguration::crd(),
        override_policy::ClusterOverridePolicy::crd(),
        policy::ClusterPropagationPolicy::crd(),
        taint_policy::ClusterTaintPolicy::crd(),
        override_policy::OverridePolicy::crd(),
        policy::PropagationPolicy::crd(),
        binding::ClusterResourceBinding::crd(),
        binding::ResourceBinding::crd(),
        work::Work::crd(),
        rebalancer::WorkloadRebalancer::crd(),
        failover_record::Failover::crd(),
    ]
}

/// Returns whether a value is the one that an absent field has; such a value is not serialised.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Deserialises `null` as the zero value: Go writes it for a required list that is empty.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Deserialises a quantity that was written as a number. A custom resource is stored as it was
/// written, whereas Go's types would have made a string of it.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    Value::deserialize(deserializer).map(|value| Quantity(as_text(value)))
}

/// Deserialises quantities by resource name, each written as a number or a string.
pub(crate) fn quantities<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let values: BTreeMap<String, Value> = nullable(deserializer)?;
    Ok(values
        .into_iter()
        .map(|(name, value)| (name, Quantity(as_text(value))))
        .collect())
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => "0".to_owned(),
        other => other.to_string(),
    }
}
