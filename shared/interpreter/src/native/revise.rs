//! Changes the number of replicas of an object for one cluster.

use serde_json::Value;

use super::{
    Error, Operation,
    kind::{Kind, unsupported},
};
use crate::read::{integer, set};

/// Writes the number of replicas of a cluster into its copy of the template.
///
/// Only a field that exists is changed: a template that leaves the number to the API server's
/// default keeps doing so.
///
/// # Errors
/// The field is not a number, or the kind has no rule.
pub fn revise_replica(mut object: Value, replicas: i64) -> Result<Value, Error> {
    let path: &[&str] = match Kind::of(&object) {
        Some(Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet) => &["spec", "replicas"],
        Some(Kind::Job) => &["spec", "parallelism"],
        _ => return Err(unsupported(Operation::ReviseReplica, &object)),
    };
    if integer(&object, path)?.is_some() {
        set(&mut object, path, replicas.into())?;
    }
    Ok(object)
}
