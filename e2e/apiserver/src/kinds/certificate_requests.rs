//! Certificate signing requests: who asks is noted, what was asked for stays, and approving and
//! signing take rights to the signer.

use serde_json::{Value, json};

use super::Strategy;
use crate::auth::certificates::CLIENT;
use crate::auth::rbac::Attributes;
use crate::context::RequestContext;
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::signing_request::read;
use crate::wire::status_error::StatusError;

/// The strategy of certificate signing requests.
pub(super) struct CertificateRequests;

impl Strategy for CertificateRequests {
    fn keep(&self, context: &RequestContext<'_>, old: &Value, new: &mut Value) {
        let now = metadata::time(context.server.clock.now());
        settle(&context.path.subresource, old, new, &now);
    }

    fn complete(&self, context: &RequestContext<'_>, object: &mut Value) {
        stamp(context, object);
    }

    fn validate_update(
        &self,
        context: &RequestContext<'_>,
        old: &Value,
        new: &Value,
    ) -> Vec<FieldError> {
        conditions(&context.path.subresource, old, new)
    }

    fn may_write(
        &self,
        context: &RequestContext<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), StatusError> {
        admit(context, old, new)
    }
}

/// Stamps a new request with who makes it.
fn stamp(context: &RequestContext<'_>, csr: &mut Value) {
    let spec = &mut csr["spec"];
    spec["username"] = context.user.name.as_str().into();
    spec["groups"] = json!(context.user.groups);
    if let Some(spec) = spec.as_object_mut() {
        for (field, value) in [
            ("uid", json!(context.user.uid)),
            ("extra", json!(context.user.extra)),
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

/// Limits a write to what it may change: the spec never, the certificate through the status alone;
/// times are filled in.
fn settle(subresource: &str, old: &Value, new: &mut Value, now: &str) {
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
fn admit(
    context: &RequestContext<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), StatusError> {
    let resource = context.served.resource.name();
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
    let verb = match context.path.subresource.as_ref() {
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
            context
                .server
                .access
                .decide(context.user, &attributes)
                .is_ok()
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

/// Returns what is wrong with the conditions after a write through `subresource`: decisions are
/// made once, through the approval, and one excludes the other.
fn conditions(subresource: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let find = |csr: &Value, kind: &str| {
        let mut all = csr["status"]["conditions"].as_array().into_iter().flatten();
        all.find(|it| it["type"] == kind).cloned()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        let (before, now) = (find(old, kind), find(new, kind));
        if let Some(wrong) = now.as_ref().filter(|it| it["status"] != "True") {
            let path = "status.conditions[].status";
            errors.push(FieldError::unsupported(path, &wrong["status"], &["True"]));
        }
        let verb = match (before.is_some(), now.is_some()) {
            (true, false) => "remove",
            (false, true) if subresource != "approval" && kind != "Failed" => "add",
            _ => continue,
        };
        let detail = format!("updates may not {verb} a condition of type {kind:?}");
        errors.push(FieldError::forbidden("status.conditions", detail));
    }
    if find(new, "Approved").is_some() && find(new, "Denied").is_some() {
        let detail = "Approved and Denied conditions are mutually exclusive";
        let denied = "Denied".into();
        errors.push(FieldError::invalid("status.conditions", &denied, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let errors = conditions(subresource, &with(old), &with(new));
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected);
        }
    }
}
