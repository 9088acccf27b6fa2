//! Services, settings, nodes, leases and signing requests.

use serde_json::{Value, json};

use super::Check;
use crate::wire::field_error::FieldError;
use crate::wire::signing_request;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Checks that a service has ports that can be told apart, and keeps its address.
pub fn service(check: &mut Check<'_>) {
    let spec = check.at("spec");
    let external = spec["type"] == "ExternalName";
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    check.one_of("spec.type", &spec["type"], &kinds);
    let ports = check.each("spec.ports");
    if ports.is_empty() && !external && spec["clusterIP"] != "None" {
        check.push(FieldError::required("spec.ports", ""));
    }
    let mut names: Vec<&Value> = Vec::new();
    for (path, declared) in &ports {
        if ports.len() > 1 || declared["name"].is_string() {
            check.unique_label(&format!("{path}.name"), &declared["name"], &mut names);
        }
        for field in ["port", "targetPort"] {
            check.port(&format!("{path}.{field}"), &declared[field]);
        }
    }
    let old = check.was("spec.clusterIP").and_then(Value::as_str);
    let now = spec["clusterIP"].as_str().unwrap_or_default();
    if !external && old.is_some_and(|old| !old.is_empty() && old != now) {
        check.invalid("spec.clusterIP", &json!(now), "field is immutable");
    }
}

/// Checks a config map.
pub fn config_map(check: &mut Check<'_>) {
    keys(check, "data");
    keys(check, "binaryData");
    frozen(check, &["data", "binaryData"]);
}

/// Checks a secret, whose type demands certain keys.
pub fn secret(check: &mut Check<'_>) {
    keys(check, "data");
    if check.at("type") == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"] {
            if check.at("data").get(key).is_none() {
                check.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
    }
    if check.at("type") == "kubernetes.io/service-account-token" {
        let annotations = &check.at("metadata")["annotations"];
        let path = "metadata.annotations[kubernetes.io/service-account.name]";
        check.required(path, &annotations["kubernetes.io/service-account.name"]);
    }
    check.immutable("type");
    frozen(check, &["data"]);
}

fn keys(check: &mut Check<'_>, path: &str) {
    for (key, _) in check.at(path).as_object().into_iter().flatten() {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if key.is_empty() || !key.chars().all(allowed) {
            check.invalid(&format!("{path}[{key}]"), &json!(key), KEY);
        } else if key.starts_with("..") || key == "." {
            let detail = "must not be '.', and must not start with '..'";
            check.invalid(&format!("{path}[{key}]"), &json!(key), detail);
        }
    }
}

/// Checks that what was made immutable stays so, and stays as it is.
fn frozen(check: &mut Check<'_>, paths: &[&str]) {
    if check.was("immutable").is_none_or(|it| *it != true) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    for path in ["immutable"].iter().chain(paths) {
        if check.was(path) != Some(check.at(path)) {
            check.push(FieldError::forbidden(*path, detail));
        }
    }
}

/// Checks the taints of a node. The real server reports them below `metadata`, and so do we.
pub fn node(check: &mut Check<'_>) {
    let mut seen: Vec<(&Value, &Value)> = Vec::new();
    for (index, (_, taint)) in check.each("spec.taints").into_iter().enumerate() {
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (&taint["key"], &taint["effect"]);
        if key.as_str().is_none_or(str::is_empty) {
            let detail = "name part must be non-empty";
            check.invalid(&format!("{path}.key"), &json!(""), detail);
        }
        if check.required(&format!("{path}.effect"), effect) {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            check.one_of(&format!("{path}.effect"), effect, &effects);
        }
        if seen.contains(&(key, effect)) {
            let shown = json!({"key": key, "effect": effect});
            check.push(FieldError::duplicate(path, &shown));
        }
        seen.push((key, effect));
    }
}

/// Checks a lease.
pub fn lease(check: &mut Check<'_>) {
    check.at_least(1, &["spec.leaseDurationSeconds"]);
    check.at_least(0, &["spec.leaseTransitions"]);
}

/// Checks that a new signing request carries a request, a signer and what the certificate is for.
pub fn signing_request(check: &mut Check<'_>) {
    if check.old.is_some() {
        return;
    }
    let spec = check.at("spec");
    if let Err(detail) = signing_request::read(&spec["request"]) {
        check.invalid("spec.request", &spec["request"], &detail);
    }
    check.filled("spec.usages", &spec["usages"], "");
    let signer = &spec["signerName"];
    if check.required("spec.signerName", signer)
        && signer.as_str().and_then(|it| it.split_once('/')).is_none()
    {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        check.invalid("spec.signerName", signer, detail);
    }
    let seconds = &spec["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        check.invalid("spec.expirationSeconds", seconds, detail);
    }
}
