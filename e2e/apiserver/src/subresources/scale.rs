//! The scale subresource: replicas of any kind that has them, as one small object.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::{self, Operation, Written};
use crate::context::{Call, Outcome};
use crate::registry::Scale;
use crate::verbs::{self, Prepared};
use crate::wire::field_error::FieldError;
use crate::wire::media;
use crate::wire::metadata;
use crate::wire::request::Verb;
use crate::wire::status_error::{GroupName, StatusError};

/// Where built-in kinds keep their replicas.
fn paths(call: &Call<'_>) -> Scale {
    call.served
        .version()
        .scale
        .clone()
        .unwrap_or_else(|| Scale {
            spec: ".spec.replicas".to_owned(),
            status: ".status.replicas".to_owned(),
            selector: None,
        })
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// Answers a request on the scale of an object.
pub async fn dispatch(call: &Call<'_>, verb: Verb, body: &[u8]) -> Result<Outcome, StatusError> {
    let stored = call.stored()?;
    let current = of(
        call,
        &crate::registry::codec::to_request(&call.served, stored.value()),
    );
    let wanted = match verb {
        Verb::Get => return Ok(Outcome::Tree(StatusCode::OK, current)),
        Verb::Update => media::tree_of(call.content_type, body)?,
        _ if call.content_type == "application/apply-patch+yaml" => {
            crate::patch::merge(&current, &media::tree_of("application/yaml", body)?)
        }
        _ => verbs::patched(call, &current, &media::tree_of("application/json", body)?)?,
    };
    let written = Written {
        operation: Operation::Update,
        old: Some(&current),
    };
    let mut wanted = wanted;
    if wanted.is_object() {
        admission::mutate(call, written, &mut wanted).await?;
        admission::validate(call, written, &wanted).await?;
    }
    let replicas = replicas(call, &wanted)?;
    let given = metadata::text(&wanted, "resourceVersion").to_owned();
    let name = metadata::text(&wanted, "name");
    if !name.is_empty() && name != call.path.name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.path.name
        )));
    }
    let patched_only = verb == Verb::Patch;
    let outcome = verbs::update_with(call, |old| {
        let mut new = old.clone();
        let version = metadata::text(&current, "resourceVersion");
        if !(given.is_empty() || patched_only && given == version) {
            metadata::of(&mut new).insert("resourceVersion".to_owned(), given.as_str().into());
        }
        set(&mut new, &pointer(&paths(call).spec), replicas.into());
        Ok(Prepared::from(new))
    })
    .await?;
    Ok(Outcome::Tree(
        StatusCode::OK,
        of(call, &outcome.value(&call.served)),
    ))
}

/// The real server notes no time with what is owned through the scale, and lists it first.
pub fn forget_time(object: &mut Value) {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        for entry in entries.iter_mut().filter(|e| e["subresource"] == "scale") {
            entry.as_object_mut().map(|e| e.remove("time"));
        }
        entries.sort_by_key(|e| e.get("time").is_some());
    }
}

/// What is wrong with the values in a custom resource that its scale subresource shows.
pub fn check(scale: &Scale, object: &Value) -> Vec<FieldError> {
    let mut at = object;
    let mut errors = Vec::new();
    let mut wrong = |value: &Value, expected: &str| {
        let detail = format!(
            "{} accessor error: {} is of the type {}, expected {expected}",
            scale.spec,
            crate::patch::in_go(value),
            go_type(value)
        );
        errors.push(FieldError::invalid(scale.spec.as_str(), &0.into(), detail));
    };
    for part in scale.spec.split('.').filter(|p| !p.is_empty()) {
        if !at.is_object() {
            wrong(at, "map[string]interface{}");
            return errors;
        }
        match at.get(part) {
            Some(next) => at = next,
            None => return errors,
        }
    }
    match at.as_i64() {
        None => wrong(at, "int64"),
        Some(count) if count < 0 => errors.push(FieldError::invalid(
            scale.spec.as_str(),
            at,
            "should be a non-negative integer",
        )),
        Some(_) => {}
    }
    errors
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn replicas(call: &Call<'_>, scale: &Value) -> Result<i64, StatusError> {
    let value = &scale["spec"]["replicas"];
    let count = match value {
        Value::Null => 0,
        other => other.as_i64().ok_or_else(|| {
            StatusError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {other} into Go struct field ScaleSpec.spec.replicas of type int32"
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
        return Err(StatusError::invalid(kind, &call.path.name, &[error]));
    }
    Ok(count)
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').filter(|p| !p.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

/// The scale of an object.
fn of(call: &Call<'_>, object: &Value) -> Value {
    let paths = paths(call);
    let number = |path: &str| {
        object
            .pointer(&pointer(path))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let selector = match &paths.selector {
        Some(path) => object
            .pointer(&pointer(path))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        None => selector_text(&object["spec"]["selector"]),
    };
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
    let mut status = json!({ "replicas": number(&paths.status) });
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let replicas = number(&paths.spec);
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({ "replicas": replicas })
    };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// A label selector as one string.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_as_queries_write_them() {
        let selector = json!({
            "matchLabels": { "a": "1" },
            "matchExpressions": [
                { "key": "b", "operator": "In", "values": ["x", "y"] },
                { "key": "c", "operator": "DoesNotExist" },
            ],
        });
        assert_eq!(selector_text(&selector), "a=1,b in (x,y),!c");
    }

    #[test]
    fn replicas_are_set_where_the_path_says() {
        let mut object = json!({ "spec": { "pool": { "size": 1 } } });
        set(&mut object, "/spec/pool/size", 3.into());
        assert_eq!(object, json!({ "spec": { "pool": { "size": 3 } } }));
    }
}
