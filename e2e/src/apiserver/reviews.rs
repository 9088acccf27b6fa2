//! Questions that are answered and never stored: who am I, may I.

use serde_json::{Value, json};

use super::authorize::{self, Attributes};
use super::identity::User;
use super::refusal::Refusal;
use super::verbs::Call;
use super::{admission, apply, metadata};

/// Answers a review.
pub async fn answer(call: &Call<'_>, mut review: Value) -> Result<Value, Refusal> {
    let version = call.served.version();
    let (manager, api_version, now) = (
        call.manager(),
        call.served.api_version(),
        call.server.clock.now(),
    );
    apply::track_update(
        None,
        &mut review,
        manager,
        &api_version,
        "",
        &version.schema,
        now,
    );
    admission::answerable(call, &mut review).await?;
    let status = match call.served.resource.plural.as_str() {
        "selfsubjectreviews" => json!({ "userInfo": user_info(call.user) }),
        "selfsubjectaccessreviews" => access(call, call.user, &review["spec"]),
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let spec = &review["spec"];
            let name = spec["user"].as_str().unwrap_or_default();
            let groups = spec["groups"].as_array().into_iter().flatten();
            let groups = groups
                .filter_map(|g| g.as_str().map(str::to_owned))
                .collect();
            access(
                call,
                &User {
                    name: name.to_owned(),
                    groups,
                    ..User::default()
                },
                spec,
            )
        }
        "selfsubjectrulesreviews" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
            authorize::rules(call.server, call.user, namespace)
        }
        "tokenreviews" => {
            let token = review["spec"]["token"].as_str().unwrap_or_default();
            match call.server.user_of_token(token) {
                Some(user) => json!({ "authenticated": true, "user": user_info(&user) }),
                None => json!({ "user": {}, "error": "invalid bearer token" }),
            }
        }
        _ => return Err(Refusal::method_not_allowed()),
    };
    review["status"] = status;
    // The real server answers with empty metadata, whatever came in.
    if let Some(fields) = review["metadata"].as_object_mut() {
        fields.retain(|key, _| key == "namespace" || key == "managedFields");
        if call.served.resource.plural == "selfsubjectreviews" {
            fields.insert("creationTimestamp".to_owned(), metadata::time(now).into());
        }
    }
    Ok(review)
}

fn user_info(user: &User) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    info
}

fn access(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let resource = &spec["resourceAttributes"];
    let attributes = if resource.is_object() {
        Attributes {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            path: None,
        }
    } else {
        let asked = &spec["nonResourceAttributes"];
        Attributes {
            verb: text(&asked["verb"]),
            path: Some(text(&asked["path"])),
            ..Attributes::default()
        }
    };
    match authorize::decide(call.server, user, &attributes) {
        Ok(reason) if reason.is_empty() => json!({ "allowed": true }),
        Ok(reason) => json!({ "allowed": true, "reason": reason }),
        Err(_) => json!({ "allowed": false }),
    }
}
