//! Services, ingresses and endpoint slices.

use serde_json::{Value, json};

use super::{Check, each, label, port};
use crate::wire::field_error::FieldError;

/// Services have ports that can be told apart, and keep their address.
pub fn service(check: &mut Check<'_>) {
    let spec = check.at("spec");
    let kind = spec["type"].as_str().unwrap_or_default();
    check.one_of(
        "spec.type",
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    let affinity = &spec["sessionAffinity"];
    check.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    let ports = check.each("spec.ports");
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        check.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        check.required("spec.externalName", &spec["externalName"]);
    }
    let (mut names, mut numbers): (Vec<&Value>, Vec<(&Value, &Value)>) = (Vec::new(), Vec::new());
    for (path, declared) in &ports {
        let name = &declared["name"];
        if ports.len() > 1 && name.as_str().is_none_or(str::is_empty) {
            check.push(FieldError::required(format!("{path}.name"), ""));
        } else if name.is_string() {
            label(check, &format!("{path}.name"), name);
            if names.contains(&name) {
                check.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
        }
        port(check, &format!("{path}.port"), &declared["port"]);
        port(
            check,
            &format!("{path}.targetPort"),
            &declared["targetPort"],
        );
        check.one_of(
            &format!("{path}.protocol"),
            &declared["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        let number = (&declared["port"], &declared["protocol"]);
        if numbers.contains(&number) {
            let shown = json!({"port": number.0, "protocol": number.1});
            check.push(FieldError::duplicate(path.clone(), &shown));
        }
        numbers.push(number);
    }
    let headless = |value: &Value| value.as_str().is_none_or(str::is_empty);
    let keeps = check
        .was("spec.type")
        .is_some_and(|old| old != "ExternalName")
        && kind != "ExternalName";
    let old = check.was("spec.clusterIP").cloned().unwrap_or_default();
    if keeps && !headless(&old) && old != spec["clusterIP"] {
        check.invalid(
            "spec.clusterIP",
            &json!(spec["clusterIP"].as_str().unwrap_or_default()),
            "field is immutable",
        );
    }
}

/// Ingresses lead somewhere.
pub fn ingress(check: &mut Check<'_>) {
    let spec = check.at("spec");
    if spec["defaultBackend"].is_null() && spec["rules"].as_array().is_none_or(Vec::is_empty) {
        let detail = "either `defaultBackend` or `rules` must be specified";
        check.invalid("spec", &Value::Null, detail);
    }
    for (path, rule) in check.each("spec.rules") {
        for (path, route) in each(&rule["http"]["paths"], &format!("{path}.http.paths")) {
            let kind = &route["pathType"];
            if kind.is_null() {
                check.push(FieldError::required(
                    format!("{path}.pathType"),
                    "pathType must be specified",
                ));
            }
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            check.one_of(&format!("{path}.pathType"), kind, &kinds);
            let absolute = route["path"]
                .as_str()
                .is_some_and(|path| path.starts_with('/'));
            if matches!(kind.as_str(), Some("Exact" | "Prefix")) && !absolute {
                let shown = json!(route["path"].as_str().unwrap_or_default());
                check.invalid(&format!("{path}.path"), &shown, "must be an absolute path");
            }
        }
    }
}

/// Checks endpoints: of several ports each has a name.
pub fn endpoints(check: &mut Check<'_>) {
    for (path, subset) in check.each("subsets") {
        let ports = each(&subset["ports"], &format!("{path}.ports"));
        for (path, declared) in &ports {
            if ports.len() > 1 {
                check.required(&format!("{path}.name"), &declared["name"]);
            }
            port(check, &format!("{path}.port"), &declared["port"]);
        }
    }
}

/// Slices hold addresses of one kind, for ever.
pub fn endpoint_slice(check: &mut Check<'_>) {
    let kind = check.at("addressType");
    if check.required("addressType", kind) {
        check.one_of("addressType", kind, &["IPv4", "IPv6", "FQDN"]);
    }
    check.immutable("addressType");
    for (path, endpoint) in check.each("endpoints") {
        if endpoint["addresses"].as_array().is_none_or(Vec::is_empty) {
            let detail = "must contain at least 1 address";
            check.push(FieldError::required(format!("{path}.addresses"), detail));
        }
    }
}
