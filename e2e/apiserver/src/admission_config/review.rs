//! `AdmissionReview`: what a webhook is asked, and what its answer means. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::matching::Resource;
use crate::auth::identity::User;
use crate::wire::status_error::StatusError;

/// A request as admission sees it.
#[derive(Debug)]
pub struct Attributes<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// API version and kind of the object.
    pub kind: (String, String),
    /// The resource of the path.
    pub resource: Resource,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty where it is yet to be generated, and for collections.
    pub name: String,
    /// Empty for cluster-scoped objects; of a namespace its own name.
    pub namespace: String,
    /// The object to be; none for deletions.
    pub object: Option<Value>,
    /// The object as it is; none for creations.
    pub old: Option<Value>,
    /// `CreateOptions` and the like.
    pub options: Value,
    /// Whether it is only a rehearsal.
    pub dry_run: bool,
    /// Who asks.
    pub user: &'a User,
}

/// What a webhook wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// Why not, if not.
    pub refusal: Option<StatusError>,
    /// What to change, as bytes of a JSON patch.
    pub patch: Vec<u8>,
    /// Message for the client.
    pub warnings: Vec<String>,
}

/// Returns the `userInfo` of a user, as reviews show people.
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    if !user.name.is_empty() {
        info.insert("username".to_owned(), user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

/// Returns the `request` of a review.
pub fn request(attributes: &Attributes<'_>, uid: &str) -> Value {
    let (api_version, kind) = &attributes.kind;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let of_object = json!({ "group": group, "version": version, "kind": kind });
    let Resource {
        group,
        version,
        plural,
    } = &attributes.resource;
    let resource = json!({ "group": group, "version": version, "resource": plural });
    let shown = |object: &Option<Value>| {
        let mut object = object.clone().unwrap_or_default();
        if object.is_object() {
            object["apiVersion"] = api_version.as_str().into();
            object["kind"] = kind.as_str().into();
        }
        object
    };
    let mut request = json!({
        "uid": uid,
        "kind": of_object,
        "resource": resource,
        "requestKind": of_object,
        "requestResource": resource,
        "operation": attributes.operation,
        "userInfo": user_info(attributes.user),
        "object": shown(&attributes.object),
        "oldObject": shown(&attributes.old),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, value) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", &attributes.name),
        ("namespace", &attributes.namespace),
    ] {
        if !value.is_empty() {
            request[field] = value.into();
        }
    }
    request
}

/// Returns what an answer means, or why it means nothing; the words follow
/// `received invalid webhook response: `.
pub fn verdict(answer: &Value, uid: &str, mutates: bool, hook: &str) -> Result<Verdict, String> {
    let response = &answer["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let given = text(&response["uid"]);
    if given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let (api_version, kind) = (text(&answer["apiVersion"]), text(&answer["kind"]));
    if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {api_version}, Kind={kind}"
        ));
    }
    let patch = text(&response["patch"]);
    let form = response["patchType"].as_str();
    if mutates {
        match (patch.is_empty(), form) {
            (false, None) => {
                return Err("webhook returned response.patch but not response.patchType".to_owned());
            }
            (true, Some(_)) => {
                return Err("webhook returned response.patchType but not response.patch".to_owned());
            }
            (_, Some("")) => {
                return Err("webhook returned invalid response.patchType of \"\"".to_owned());
            }
            _ => {}
        }
    } else {
        if !patch.is_empty() {
            return Err("validating webhook may not return response.patch".to_owned());
        }
        if form.is_some() {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let allowed = response["allowed"] == true;
    Ok(Verdict {
        refusal: (!allowed).then(|| denied(hook, &response["status"])),
        patch: if mutates {
            STANDARD.decode(patch).unwrap_or_default()
        } else {
            Vec::new()
        },
        warnings: warnings
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

/// Returns the refusal that a webhook's `status` makes.
fn denied(hook: &str, status: &Value) -> StatusError {
    let said = ["message", "reason"]
        .into_iter()
        .filter_map(|field| status[field].as_str())
        .find(|text| !text.is_empty());
    let message = match said {
        Some(said) => format!("admission webhook {hook:?} denied the request: {said}"),
        None => format!("admission webhook {hook:?} denied the request without explanation"),
    };
    // A refusal is never taken for a success.
    let code = status["code"].as_u64().filter(|c| (400..1000).contains(c));
    let code = code.and_then(|c| u16::try_from(c).ok()).unwrap_or(400);
    let reason = status["reason"].as_str().unwrap_or_default();
    StatusError::denied(code, reason, message, status.get("details").cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: impl Into<Value>) -> Value {
        let response: Value = response.into();
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    fn read(answer: &Value, mutates: bool) -> Result<Verdict, String> {
        verdict(answer, "u", mutates, "h.example.com")
    }

    #[test]
    fn answers_that_say_nothing_valid_are_told_apart() {
        let cases = [
            (json!({}), true, "webhook response was absent"),
            (
                answer(json!({"uid": "x"})),
                true,
                r#"expected response.uid="u", got "x""#,
            ),
            (
                json!({"response": {"uid": "u"}}),
                true,
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind=",
            ),
            (
                answer(json!({"uid": "u", "patch": "W10="})),
                true,
                "webhook returned response.patch but not response.patchType",
            ),
            (
                answer(json!({"uid": "u", "patchType": "JSONPatch"})),
                true,
                "webhook returned response.patchType but not response.patch",
            ),
            (
                answer(json!({"uid": "u", "patch": "W10=", "patchType": "JSONPatch"})),
                false,
                "validating webhook may not return response.patch",
            ),
        ];
        for (answer, mutates, expected) in cases {
            assert_eq!(read(&answer, mutates), Err(expected.to_owned()), "{answer}");
        }
    }

    #[test]
    fn a_refusal_carries_what_the_webhook_says_and_never_a_success() {
        let refusal = |status: Value| {
            let answer = answer(json!({"uid": "u", "allowed": false, "status": status}));
            read(&answer, false)
                .expect("a verdict")
                .refusal
                .expect("a refusal")
                .status()
        };
        let said = refusal(
            json!({"message": "no way", "code": 418, "reason": "Teapot", "details": {"name": "a"}}),
        );
        assert_eq!(
            said["message"],
            r#"admission webhook "h.example.com" denied the request: no way"#
        );
        assert_eq!(
            (&said["code"], &said["reason"]),
            (&json!(418), &json!("Teapot"))
        );
        assert_eq!(said["details"]["name"], "a");
        let silent = refusal(Value::Null);
        assert_eq!(
            silent["message"],
            r#"admission webhook "h.example.com" denied the request without explanation"#
        );
        assert_eq!(
            refusal(json!({"reason": "Because", "code": 200}))["code"],
            400
        );
    }
}
