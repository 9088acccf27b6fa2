//! The typed API of `*.karmada.io`: one kind a file, names as in Karmada's Go types, fields as in its JSON.
//!
//! Decoding is tolerant (unknown fields and unknown enum values never fail an object, an absent field is its
//! zero value as in Go), because one odd object must not stop a watch. Strictness is the API server's job:
//! [`crds`] carries the enums, defaults and rules.
//!
//! Optional texts, structs and Go pointers are `Option`; optional numbers and switches that Go holds by value
//! are plain, because absent means zero or off; lists and maps are empty when absent, except where absent and
//! empty differ. A required enum that is absent is `Other("")`.
//!
//! An optional field is written only when it has a value. `null` would be stored, and claimed, as a value.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

mod macros;

pub mod binding;
pub mod cluster;
pub mod definition;
mod eviction_task;
mod failover;
pub mod interpreter;
pub mod interpreter_webhook;
mod placement;
pub mod policy;
mod requirements;
mod schema;
pub mod taint_policy;
pub mod work;

use definition::Defined;

/// A kind of this API (or of Kubernetes) that can be watched, decoded and written.
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

/// The definitions to install on an API server, in a stable order.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        cluster::Cluster::crd(),
        interpreter::ResourceInterpreterCustomization::crd(),
        interpreter_webhook::ResourceInterpreterWebhookConfiguration::crd(),
        policy::ClusterPropagationPolicy::crd(),
        taint_policy::ClusterTaintPolicy::crd(),
        policy::PropagationPolicy::crd(),
        binding::ClusterResourceBinding::crd(),
        binding::ResourceBinding::crd(),
        work::Work::crd(),
    ]
}

/// Whether a value is what its absence means; such a value is not written.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads `null` as the zero value: Go writes it for a required list that is empty.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a quantity that was written as a number. Our definitions store objects as they were written, whereas
/// Go's types would have made a text of it.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    Value::deserialize(deserializer).map(|value| Quantity(as_text(value)))
}

/// The same for amounts by resource name.
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
