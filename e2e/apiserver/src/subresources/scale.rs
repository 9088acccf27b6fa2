//! The scale subresource of built-in workloads: their replicas, as one small object.

use http::StatusCode;
use serde_json::{Value, json};

use crate::context::{Outcome, RequestContext};
use crate::verbs::{self, Prepared};
use crate::wire::field_error::FieldError;
use crate::wire::media;
use crate::wire::metadata;
use crate::wire::request::Verb;
use crate::wire::status_error::{GroupName, StatusError};

/// Answers a request on the scale of an object.
pub async fn dispatch(
    context: &RequestContext<'_>,
    verb: Verb,
    body: &[u8],
) -> Result<Outcome, StatusError> {
    let stored = context.stored()?;
    let current = of(&stored.value());
    let wanted = match verb {
        Verb::Get => return Ok(Outcome::Tree(StatusCode::OK, current)),
        Verb::Update => media::tree_of(context.content_type, body)?,
        _ if context.content_type == "application/apply-patch+yaml" => {
            crate::patch::merge(&current, &media::tree_of("application/yaml", body)?)
        }
        _ => verbs::patched(
            context,
            &current,
            &media::tree_of("application/json", body)?,
        )?,
    };
    let replicas = replicas(context, &wanted)?;
    let given = metadata::text(&wanted, "resourceVersion").to_owned();
    let name = metadata::text(&wanted, "name");
    if !name.is_empty() && name != context.path.name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            context.path.name
        )));
    }
    let patched_only = verb == Verb::Patch;
    let outcome = verbs::update_with(context, |old| {
        let mut new = old.clone();
        let version = metadata::text(&current, "resourceVersion");
        if !(given.is_empty() || patched_only && given == version) {
            metadata::of(&mut new).insert("resourceVersion".to_owned(), given.as_str().into());
        }
        new["spec"]["replicas"] = replicas.into();
        Ok(Prepared::from(new))
    })
    .await?;
    Ok(Outcome::Tree(StatusCode::OK, of(&outcome.value())))
}

fn replicas(context: &RequestContext<'_>, scale: &Value) -> Result<i64, StatusError> {
    let value = &scale["spec"]["replicas"];
    let count = match value {
        Value::Null => 0,
        other => other.as_i64().ok_or_else(|| {
            StatusError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas: {other} is no whole number"
            ))
        })?,
    };
    if count < 0 {
        let kind = GroupName {
            group: "autoscaling",
            name: "Scale",
        };
        let error =
            FieldError::invalid("spec.replicas", value, "must be greater than or equal to 0");
        return Err(StatusError::invalid(kind, &context.path.name, &[error]));
    }
    Ok(count)
}

/// Returns the scale of an object.
fn of(object: &Value) -> Value {
    let selector = selector_text(&object["spec"]["selector"]);
    let replicas = |of: &str| object[of]["replicas"].as_i64().unwrap_or(0);
    let mut metadata = serde_json::Map::new();
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let mut status = json!({ "replicas": replicas("status") });
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let spec = match replicas("spec") {
        0 => json!({}),
        wanted => json!({ "replicas": wanted }),
    };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// Returns a label selector as one string.
fn selector_text(selector: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", text(value)));
    }
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = text(&expression["key"]);
        let values: Vec<String> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        let values = values.join(",");
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key,
        });
    }
    terms.join(",")
}
