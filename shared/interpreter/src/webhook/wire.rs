//! Checks answers that are JSON from the start: those of interpreter webhooks.

use serde_json::Value;

use crate::lua::{
    answer::{self, Component, Dependency, Requirements},
    convert::Fault,
};

/// Requirements of one replica.
///
/// # Errors
/// A field of another type; the text names its place.
pub fn requirements(value: &Value) -> Result<Requirements, String> {
    answer::requirements("replicaRequirements", value).map_err(text)
}

/// Components of a workload.
///
/// # Errors
/// A field of another type; the text names its place.
pub fn components(value: &Value) -> Result<Vec<Component>, String> {
    answer::components(value).map_err(text)
}

/// Dependencies, in order and without repetitions.
///
/// # Errors
/// A reference without API version, kind, or a name or selector; the text names its place.
pub fn dependencies(value: &Value) -> Result<Vec<Dependency>, String> {
    answer::dependencies(value)
        .map(answer::united)
        .map_err(text)
}

fn text(fault: Fault) -> String {
    let Fault {
        path,
        expected,
        found,
    } = fault;
    format!("{path}: expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_that_cannot_be_used_is_told_with_its_place() {
        let told = [
            requirements(&json!({ "resourceRequest": { "cpu": "much" } })).unwrap_err(),
            components(&json!([{ "replicas": -1 }])).unwrap_err(),
            dependencies(&json!([{ "apiVersion": "v1", "kind": "Secret" }])).unwrap_err(),
        ];
        assert_eq!(
            told.map(|text| text.split(':').next().map(str::to_owned).unwrap()),
            [
                "replicaRequirements.resourceRequest.cpu",
                "result[1].replicas",
                "result[1]"
            ]
        );
    }
}
