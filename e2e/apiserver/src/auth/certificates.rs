//! Certificate signing requests: what may be asked for, approved and signed, by whom, and what is
//! signed. Pure, but for the questions to RBAC.

use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::authorize;
use crate::auth::rbac::Attributes;
use crate::context::Call;
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::signing_request::{Request, read};
use crate::wire::status_error::StatusError;

/// Signs certificates by which clients of the API are known.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs certificates of kubelets as clients of the API.
pub const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// How long a certificate is good that asks for nothing else, and at most.
const LIFE: Duration = Duration::from_hours(24 * 365);
/// The shortest life, whatever is asked for.
const SHORTEST: Duration = Duration::from_mins(10);

/// What a signer does about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it isn't approved, or is done with, or somebody else's.
    Leave,
    /// It can't be signed, and why.
    Fail(String),
    /// It is to be signed.
    Sign {
        /// Subject and key.
        request: Request,
        /// How long the certificate is good.
        life: Duration,
        /// Whether the key may encipher keys.
        enciphers: bool,
    },
}

/// Decides as the signers in kube-controller-manager do (`pkg/controller/certificates/signer`).
pub fn decide(csr: &Value) -> Decision {
    let (spec, status) = (&csr["spec"], &csr["status"]);
    let is = |kind: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions
            .into_iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let done = status["certificate"].is_string() || is("Failed");
    if !is("Approved") || is("Denied") || done || ![CLIENT, KUBELET].contains(&signer) {
        return Decision::Leave;
    }
    let request = match read(&spec["request"]) {
        Ok(request) => request,
        Err(error) => return Decision::Fail(error),
    };
    let usages = spec["usages"].as_array().into_iter().flatten();
    let usages: Vec<&str> = usages.filter_map(Value::as_str).collect();
    let wrong = if signer == CLIENT {
        wrong_usage(&usages)
    } else {
        wrong_kubelet(&request, &usages)
    };
    if let Some(error) = wrong {
        return Decision::Fail(error);
    }
    let asked = spec["expirationSeconds"].as_u64().map(Duration::from_secs);
    Decision::Sign {
        request,
        life: asked.map_or(LIFE, |asked| asked.clamp(SHORTEST, LIFE)),
        enciphers: usages.contains(&"key encipherment"),
    }
}

fn wrong_usage(usages: &[&str]) -> Option<String> {
    let known = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|u| !known.contains(u)) {
        return Some(format!("invalid usage for client certificate: {other}"));
    }
    let missing = "missing required usage for client certificate: client auth";
    (!usages.contains(&"client auth")).then(|| missing.to_owned())
}

fn wrong_kubelet(request: &Request, usages: &[&str]) -> Option<String> {
    let mut usages = usages.to_vec();
    usages.retain(|u| *u != "key encipherment");
    usages.sort_unstable();
    let wrong = if request.groups != ["system:nodes"] {
        "subject organization is not system:nodes"
    } else if request.alternatives {
        "subjectAltNames are not allowed"
    } else if !request.name.starts_with("system:node:") {
        "subject common name does not begin with system:node: "
    } else if usages != ["client auth", "digital signature"] {
        "usages did not match [client auth,digital signature] or [client auth,digital signature,key encipherment]"
    } else {
        return None;
    };
    Some(wrong.to_owned())
}

/// Stamps a new request with who makes it.
pub fn stamp(call: &Call<'_>, csr: &mut Value) {
    let spec = &mut csr["spec"];
    spec["username"] = call.user.name.as_str().into();
    spec["groups"] = json!(call.user.groups);
    if let Some(spec) = spec.as_object_mut() {
        for (field, value) in [
            ("uid", json!(call.user.uid)),
            ("extra", json!(call.user.extra)),
        ] {
            spec.remove(field);
            let empty = value.as_str() == Some("")
                || value.as_object().is_some_and(serde_json::Map::is_empty);
            if !empty {
                spec.insert(field.to_owned(), value);
            }
        }
    }
}

/// What a write may change: the spec never, the certificate through the status alone; times are
/// filled in.
pub fn settle(subresource: &str, old: &Value, new: &mut Value, now: &str) {
    if subresource == "approval" {
        let conditions = new["status"].get("conditions").cloned();
        new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(status) = new["status"].as_object_mut() {
            match conditions {
                Some(conditions) => status.insert("conditions".to_owned(), conditions),
                None => status.remove("conditions"),
            };
        }
    }
    new["spec"] = old["spec"].clone();
    let before = old["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let conditions = new["status"]
        .get_mut("conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|c| c.is_object()) {
        let unset = |v: &Value| v.as_str().is_none_or(str::is_empty);
        if unset(&condition["lastUpdateTime"]) {
            condition["lastUpdateTime"] = now.into();
        }
        if unset(&condition["lastTransitionTime"]) {
            let same = before
                .iter()
                .find(|b| b["type"] == condition["type"] && b["status"] == condition["status"]);
            let time = same
                .map(|b| b["lastTransitionTime"].clone())
                .filter(|t| !unset(t));
            condition["lastTransitionTime"] = time.unwrap_or_else(|| now.into());
        }
    }
}

/// Refuses what may not be asked for, approved or signed by this user (the plugins
/// CertificateSubjectRestriction, CertificateApproval and CertificateSigning).
pub fn admit(call: &Call<'_>, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    let resource = call.served.resource.name();
    let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
    let name = metadata::text(new, "name");
    let forbidden = |why: String| Err(StatusError::forbidden(resource, name, &why));
    let Some(old) = old else {
        let masters = read(&new["spec"]["request"])
            .is_ok_and(|r| r.groups.iter().any(|g| g == "system:masters"));
        if signer == CLIENT && masters {
            return forbidden(format!(
                "use of {signer} signer with system:masters group is not allowed"
            ));
        }
        return Ok(());
    };
    let signs = || {
        old["status"]["certificate"] != new["status"]["certificate"]
            || failures(old) != failures(new)
    };
    let verb = match call.path.subresource.as_ref() {
        "approval" => "approve",
        "status" if signs() => "sign",
        _ => return Ok(()),
    };
    let domain = signer.split('/').next().unwrap_or_default();
    let allowed = [signer.to_owned(), format!("{domain}/*")]
        .into_iter()
        .any(|name| {
            let attributes = Attributes {
                verb: verb.to_owned(),
                group: "certificates.k8s.io".to_owned(),
                resource: "signers".to_owned(),
                name,
                ..Attributes::default()
            };
            authorize::decide(call.server, call.user, &attributes).is_ok()
        });
    if allowed {
        return Ok(());
    }
    forbidden(format!(
        "user not permitted to {verb} requests with signerName {signer:?}"
    ))
}

fn failures(csr: &Value) -> Vec<&Value> {
    let conditions = csr["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["type"] == "Failed").collect()
}

/// What is wrong with the conditions after a write through `subresource`.
pub fn conditions(subresource: &str, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = |csr: &Value| {
        csr["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let conditions = list(new);
    let mut seen: Vec<&Value> = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let (kind, status) = (
            &condition["type"],
            condition["status"].as_str().unwrap_or_default(),
        );
        if kind.as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.type"), ""));
        }
        let final_ = matches!(kind.as_str(), Some("Approved" | "Denied" | "Failed"));
        let allowed: &[&str] = if final_ {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.push(FieldError::required(format!("{path}.status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::unsupported(
                format!("{path}.status"),
                &status.into(),
                allowed,
            ));
        }
        let other = match kind.as_str() {
            Some("Approved") => "Denied",
            Some("Denied") => "Approved",
            _ => "",
        };
        if seen.iter().any(|s| **s == other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid("status.conditions", kind, detail));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), kind));
        }
        seen.push(kind);
    }
    let Some(old) = old else {
        return errors;
    };
    let has = |list: &[Value], kind: &str| list.iter().any(|c| c["type"] == kind);
    let before = list(old);
    for kind in ["Approved", "Denied", "Failed"] {
        let verb = match (has(&before, kind), has(&conditions, kind)) {
            (true, false) => "remove",
            (false, true) if subresource != "approval" && kind != "Failed" => "add",
            _ => continue,
        };
        let detail = format!("updates may not {verb} a condition of type {kind:?}");
        errors.push(FieldError::forbidden("status.conditions", detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn csr(name: &str, group: &str) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        let key = KeyPair::generate().expect("a key");
        let pem = params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("pem");
        STANDARD.encode(pem).into()
    }

    fn approved(signer: &str, request: &Value, usages: &[&str], seconds: Option<u64>) -> Value {
        let mut csr = json!({
            "spec": { "signerName": signer, "request": request, "usages": usages },
            "status": { "conditions": [{ "type": "Approved", "status": "True" }] },
        });
        if let Some(seconds) = seconds {
            csr["spec"]["expirationSeconds"] = seconds.into();
        }
        csr
    }

    #[test]
    fn approved_requests_for_clients_are_signed() {
        let jane = csr("jane", "dev");
        let life = |csr: &Value| match decide(csr) {
            Decision::Sign { life, .. } => Some(life),
            _ => None,
        };
        let usual = ["client auth"];
        assert_eq!(life(&approved(CLIENT, &jane, &usual, None)), Some(LIFE));
        assert_eq!(
            life(&approved(CLIENT, &jane, &usual, Some(3600))),
            Some(Duration::from_hours(1))
        );
        assert_eq!(
            life(&approved(CLIENT, &jane, &usual, Some(u64::MAX))),
            Some(LIFE)
        );
        let mut denied = approved(CLIENT, &jane, &usual, None);
        denied["status"]["conditions"] = json!([{ "type": "Denied", "status": "True" }]);
        assert_eq!(decide(&denied), Decision::Leave);
        let mut done = approved(CLIENT, &jane, &usual, None);
        done["status"]["certificate"] = "x".into();
        assert_eq!(decide(&done), Decision::Leave);
        assert_eq!(
            decide(&approved("example.com/x", &jane, &usual, None)),
            Decision::Leave
        );
    }

    #[test]
    fn what_a_signer_does_not_sign_fails_and_says_why() {
        let (jane, node) = (csr("jane", "dev"), csr("system:node:a", "system:nodes"));
        let both = ["client auth", "digital signature"];
        let cases: [(&str, &Value, &[&str], &str); 4] = [
            (
                CLIENT,
                &jane,
                &["server auth"],
                "invalid usage for client certificate: server auth",
            ),
            (
                CLIENT,
                &jane,
                &["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
            (
                KUBELET,
                &jane,
                &both,
                "subject organization is not system:nodes",
            ),
            (
                KUBELET,
                &node,
                &["client auth"],
                "usages did not match [client auth,digital signature] or [client auth,digital signature,key encipherment]",
            ),
        ];
        for (signer, request, usages, expected) in cases {
            let decision = decide(&approved(signer, request, usages, None));
            assert_eq!(decision, Decision::Fail(expected.to_owned()));
        }
        assert!(matches!(
            decide(&approved(KUBELET, &node, &both, None)),
            Decision::Sign { .. }
        ));
    }

    /// Where the update goes, the types of the conditions before and after it, and what is refused.
    type Update<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

    #[test]
    fn an_approval_stays() {
        let with = |kinds: &[&str]| {
            let conditions: Vec<Value> = kinds
                .iter()
                .map(|k| json!({"type": k, "status": "True"}))
                .collect();
            json!({ "status": { "conditions": conditions } })
        };
        let cases: [Update<'_>; 4] = [
            ("approval", &[], &["Approved"], &[]),
            (
                "status",
                &[],
                &["Approved"],
                &[
                    r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#,
                ],
            ),
            (
                "approval",
                &["Approved"],
                &[],
                &[
                    r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#,
                ],
            ),
            (
                "approval",
                &[],
                &["Approved", "Denied"],
                &[
                    r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
                ],
            ),
        ];
        for (subresource, old, new, expected) in cases {
            let errors = conditions(subresource, Some(&with(old)), &with(new));
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected);
        }
    }
}
