//! Objects that hold settings: config maps, secrets, claims, classes, leases, signing requests.

use serde_json::{Value, json};

use super::Check;
use crate::wire::field_error::FieldError;
use crate::wire::names::NameRule;
use crate::wire::signing_request;

/// Bytes that a config map or secret may hold.
const MAX_SIZE: usize = 1024 * 1024;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Checks config maps.
pub fn config_map(check: &mut Check<'_>) {
    keys(check, "data");
    keys(check, "binaryData");
    for key in check
        .at("data")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        if check.at("binaryData").get(key).is_some() {
            let detail = "duplicate of key present in data";
            check.invalid(&format!("data[{key}]"), &json!(key), detail);
        }
    }
    size(check, &["data", "binaryData"], "");
    frozen(check, &["data", "binaryData"]);
}

/// Secrets, whose kinds demand certain keys.
pub fn secret(check: &mut Check<'_>) {
    keys(check, "data");
    size(check, &["data"], "data");
    let demanded: &[&str] = match check.at("type").as_str() {
        Some("kubernetes.io/tls") => &["tls.crt", "tls.key"],
        Some("kubernetes.io/dockerconfigjson") => &[".dockerconfigjson"],
        Some("kubernetes.io/ssh-auth") => &["ssh-privatekey"],
        _ => &[],
    };
    let data = check.at("data");
    for key in demanded.iter().filter(|key| data.get(**key).is_none()) {
        check.push(FieldError::required(format!("data[{key}]"), ""));
    }
    let annotations = &check.at("metadata")["annotations"];
    let account = &annotations["kubernetes.io/service-account.name"];
    if check.at("type") == "kubernetes.io/service-account-token"
        && account.as_str().is_none_or(str::is_empty)
    {
        let path = "metadata.annotations[kubernetes.io/service-account.name]";
        check.push(FieldError::required(path, ""));
    }
    check.immutable("type");
    frozen(check, &["data"]);
}

fn keys(check: &mut Check<'_>, path: &str) {
    for key in check
        .at(path)
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let detail = if key.is_empty() || !key.chars().all(allowed) {
            KEY
        } else if key.len() > 253 {
            "must be no more than 253 bytes"
        } else if key == "." || key == ".." {
            if key == "." {
                "must not be '.'"
            } else {
                "must not be '..'"
            }
        } else if key.starts_with("..") {
            "must not start with '..'"
        } else {
            continue;
        };
        check.invalid(&format!("{path}[{key}]"), &json!(key), detail);
    }
}

fn size(check: &mut Check<'_>, paths: &[&str], field: &str) {
    let total: usize = paths
        .iter()
        .flat_map(|path| check.at(path).as_object().into_iter().flatten())
        .map(|(_, value)| value.as_str().map_or(0, str::len))
        .sum();
    if total > MAX_SIZE {
        check.push(FieldError::too_long(field, MAX_SIZE));
    }
}

/// Checks that what was made immutable stays so, and stays as it is.
fn frozen(check: &mut Check<'_>, paths: &[&str]) {
    if check
        .was("immutable")
        .is_none_or(|immutable| *immutable != true)
    {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if *check.at("immutable") != true {
        check.push(FieldError::forbidden("immutable", detail));
    }
    for path in paths {
        if check.was(path) != Some(check.at(path)) {
            check.push(FieldError::forbidden(*path, detail));
        }
    }
}

/// Claims say how much and how they want it, and do not change their mind.
pub fn claim(check: &mut Check<'_>) {
    let spec = check.at("spec");
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        check.push(FieldError::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    if spec["resources"]["requests"]["storage"].is_null() {
        check.push(FieldError::required("spec.resources[storage]", ""));
    }
    let fixed = |spec: &Value| {
        let mut fixed = spec.clone();
        if let Some(fields) = fixed.as_object_mut() {
            // Binding fills in the volume; growing and reclassifying are allowed.
            fields.retain(|name, _| {
                !matches!(name.as_str(), "resources" | "volumeAttributesClassName")
            });
            if spec["volumeName"].is_null() {
                fields.remove("volumeName");
            }
        }
        fixed
    };
    if let Some(old) = check.was("spec") {
        let mut new = fixed(spec);
        if old["volumeName"].is_null() {
            new.as_object_mut()
                .map(|fields| fields.remove("volumeName"));
        }
        if fixed(old) != new {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            check.push(FieldError::forbidden("spec", detail));
        }
    }
}

/// Checks storage classes.
pub fn storage_class(check: &mut Check<'_>) {
    check.required("provisioner", check.at("provisioner"));
    check.one_of(
        "reclaimPolicy",
        check.at("reclaimPolicy"),
        &["Delete", "Retain"],
    );
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if check.was(field).is_some_and(|old| old != check.at(field)) {
            check.push(FieldError::forbidden(
                field,
                format!("updates to {field} are forbidden."),
            ));
        }
    }
    check.immutable("volumeBindingMode");
}

/// Checks priority classes.
pub fn priority_class(check: &mut Check<'_>) {
    let (name, value) = (&check.at("metadata")["name"], check.at("value"));
    let system = name
        .as_str()
        .is_some_and(|name| name.starts_with("system-"));
    if system
        && !matches!(
            name.as_str(),
            Some("system-cluster-critical" | "system-node-critical")
        )
    {
        let detail = "priority class names with 'system-' prefix are reserved for system use only";
        check.push(FieldError::forbidden("metadata.name", detail));
    } else if !system && value.as_i64().is_some_and(|value| value > 1_000_000_000) {
        let detail = "maximum allowed value of a user defined priority is 1000000000";
        check.push(FieldError::forbidden("value", detail));
    }
    if check.was("value").is_some_and(|old| old != value) {
        check.push(FieldError::forbidden(
            "value",
            "may not be changed in an update.",
        ));
    }
    check.immutable("preemptionPolicy");
}

/// Leases.
pub fn lease(check: &mut Check<'_>) {
    let spec = check.at("spec");
    check.at_least(
        "spec.leaseDurationSeconds",
        &spec["leaseDurationSeconds"],
        1,
    );
    check.at_least("spec.leaseTransitions", &spec["leaseTransitions"], 0);
}

/// Events of the newer group say who reports what.
pub fn event(check: &mut Check<'_>) {
    if check.old.is_some() {
        return;
    }
    if check.at("eventTime").is_null() {
        check.push(FieldError::required("eventTime", ""));
    }
    for field in [
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        check.required(field, check.at(field));
    }
    let kind = check.at("type");
    if !matches!(kind.as_str(), Some("Normal" | "Warning")) {
        let shown = json!(kind.as_str().unwrap_or_default());
        check.invalid(
            "type",
            &shown,
            &format!("has invalid value: {}", shown.as_str().unwrap_or_default()),
        );
    }
}

/// What keys may be for (`certificates.k8s.io/v1`).
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Checks that signing requests carry a request, a signer and what the certificate is for.
pub fn signing_request(check: &mut Check<'_>) {
    if check.old.is_some() {
        certificate(check);
        return;
    }
    let spec = check.at("spec");
    if let Err(detail) = signing_request::read(&spec["request"]) {
        check.invalid("spec.request", &spec["request"], &detail);
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        check.push(FieldError::required("spec.usages", ""));
    }
    let usages = check.each("spec.usages");
    for (index, (path, usage)) in usages.iter().enumerate() {
        check.one_of(path, usage, &USAGES);
        if usages[..index].iter().any(|(_, u)| u == usage) {
            check.push(FieldError::duplicate(path, usage));
        }
    }
    if check.required("spec.signerName", &spec["signerName"]) {
        signer(check, spec["signerName"].as_str().unwrap_or_default());
    }
    let seconds = &spec["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        check.invalid("spec.expirationSeconds", seconds, detail);
    }
}

/// Checks that the name of a signer has the form `example.com/name`.
fn signer(check: &mut Check<'_>, name: &str) {
    let path = "spec.signerName";
    if name == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        check.invalid(path, &json!(name), detail);
        return;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let &[domain, rest] = parts.as_slice() else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        check.invalid(path, &json!(name), detail);
        return;
    };
    for label in domain.split('.') {
        for wrong in NameRule::Label.check(label, false) {
            let detail = format!("validating label {label:?}: {wrong}");
            check.invalid(path, &json!(domain), &detail);
        }
    }
    for label in rest.split('.') {
        for wrong in NameRule::Subdomain.check(label, false) {
            let detail = format!("validating label {label:?}: {wrong}");
            check.invalid(path, &json!(rest), &detail);
        }
    }
    if domain.split('.').count() < 2 {
        let detail = "should be a domain with at least two segments separated by dots";
        check.invalid(path, &json!(domain), detail);
    }
}

/// Checks that what a signer writes is a certificate.
fn certificate(check: &mut Check<'_>) {
    use base64::Engine as _;
    let written = check.at("status.certificate");
    if written.is_null() || check.was("status.certificate") == Some(written) {
        return;
    }
    let pem = base64::engine::general_purpose::STANDARD
        .decode(written.as_str().unwrap_or_default())
        .unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
        let detail = "must contain at least one CERTIFICATE PEM block";
        check.invalid("status.certificate", &json!("<certificate data>"), detail);
    }
}
