//! Names of objects and namespaces.

use muster_shared::names;
use muster_vectors::Difference;
use serde_json::{Value, json};

use crate::replay;

#[test]
fn names_are_made_as_by_the_reference() {
    replay("names", |case| {
        let list = case.input["args"].as_array().unwrap();
        let args: Vec<&str> = list.iter().map(|arg| arg.as_str().unwrap()).collect();
        let result: Value = match (case.input["function"].as_str().unwrap(), args.as_slice()) {
            ("bindingName", [kind, name]) => names::binding(kind, name).into(),
            ("workName", [kind, name, namespace]) => names::work(kind, name, namespace).into(),
            ("bindingReferenceKey", [namespace, name]) => {
                names::binding_reference_key(namespace, name).into()
            }
            ("namespacedKey", [namespace, name]) => names::namespaced_key(namespace, name).into(),
            ("executionNamespace", [cluster]) => names::execution_namespace(cluster).into(),
            ("clusterOfExecutionNamespace", [namespace]) => {
                match names::cluster_of_execution_namespace(namespace) {
                    Some(cluster) => cluster.into(),
                    None if case.output["error"] == json!(true) => return Ok(()),
                    None => return Err("is no execution namespace".into()),
                }
            }
            ("isReservedNamespace", [namespace]) => names::is_reserved_namespace(namespace).into(),
            ("serviceAccountName", [cluster]) => names::service_account(cluster).into(),
            ("roleName", [account]) => names::role(account).into(),
            ("impersonationSecretName", [cluster]) => names::impersonation_secret(cluster).into(),
            // Muster has no estimator, no services over clusters, and no command that makes
            // policies.
            (
                "estimatorDeploymentName"
                | "estimatorServiceName"
                | "derivedServiceName"
                | "importedEndpointSliceName"
                | "policyName",
                _,
            ) => return Ok(()),
            (function, args) => {
                return Err(format!("unknown function {function} of {}", args.len()).into());
            }
        };
        let expected = &case.output["result"];
        if *expected == result {
            Ok(())
        } else {
            Err(Difference::new(expected, result))
        }
    });
}
