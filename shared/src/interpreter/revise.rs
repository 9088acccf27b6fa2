//! The same object with another number of replicas, as it is sent to one cluster.

use serde_json::Value;

use super::{
    Error, Operation,
    kind::{Kind, unsupported},
    read::{integer, set},
};

/// Writes the number of replicas that a cluster gets into its copy of the template.
///
/// Only a field that is already there is rewritten: a template that leaves the number to the API
/// server's default keeps doing so.
///
/// # Errors
/// The field is no number, or the kind has no rule.
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
