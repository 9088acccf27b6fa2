//! What all writes share: reading the body as the kind, field validation, drafts for the store.

use std::sync::Arc;

use serde_json::Value;

use super::super::refusal::Refusal;
use super::super::registry::Served;
use super::super::store::{Draft, Head};
use super::super::{codec, fields, metadata, wire};
use super::Call;

/// What to do about fields that the kind doesn't have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse them.
    Strict,
}

/// Whether the call is only a rehearsal.
pub fn is_dry_run(call: &Call<'_>) -> Result<bool, Refusal> {
    let mut rehearsal = false;
    for value in call.query.all("dryRun").filter(|v| !v.is_empty()) {
        if value != "All" {
            return Err(Refusal::bad_request(format!(
                r#"Invalid value: "{value}": Unsupported value: "{value}": supported values: "All""#
            )));
        }
        rehearsal = true;
    }
    Ok(rehearsal)
}

fn field_validation(call: &Call<'_>) -> Result<FieldValidation, Refusal> {
    match call.query.get("fieldValidation") {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some(other) => Err(Refusal::bad_request(format!(
            r#"fieldValidation: Unsupported value: "{other}": supported values: "Ignore", "Strict", "Warn""#
        ))),
    }
}

/// Reads a body as an object of the call's kind.
pub fn decode(call: &Call<'_>, body: &[u8]) -> Result<Value, Refusal> {
    decode_tree(call, wire::parse(call.content_type, body)?)
}

/// Makes a tree an object of the call's kind: the right version and kind, known fields of the right types.
pub fn decode_tree(call: &Call<'_>, mut object: Value) -> Result<Value, Refusal> {
    let served = &call.served;
    let Some(members) = object.as_object_mut() else {
        return Err(Refusal::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal the body into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ));
    };
    let api_version = served.api_version();
    let kind = &served.resource.kind;
    let found = |members: &serde_json::Map<String, Value>, key: &str| {
        members
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (found_version, found_kind) = (found(members, "apiVersion"), found(members, "kind"));
    if served.resource.custom.is_some() && found_kind.is_empty() {
        return Err(Refusal::bad_request(format!(
            "Object 'Kind' is missing in '{object}'"
        )));
    }
    if !found_version.is_empty() && found_version != api_version {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !found_kind.is_empty() && found_kind != *kind {
        return Err(Refusal::bad_request(format!(
            "{found_kind} in version {version:?} cannot be handled as a {kind}: converting ({found_version}.{found_kind}) to ({api_version}.{kind}): unknown conversion",
            version = served.version().name,
        )));
    }
    members.insert("apiVersion".to_owned(), api_version.into());
    members.insert("kind".to_owned(), kind.as_str().into());
    let handled = |message: String| {
        Refusal::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {message}",
            served.version().name
        ))
    };
    if members
        .get("metadata")
        .is_some_and(|m| !m.is_object() && !m.is_null())
    {
        return Err(handled(
            "json: cannot unmarshal metadata into Go struct field .metadata of type v1.ObjectMeta"
                .to_owned(),
        ));
    }
    let schema = &served.version().schema;
    schema.decode(&mut object).map_err(handled)?;
    let unknown = schema.prune(&mut object);
    if !unknown.is_empty() {
        match field_validation(call)? {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => {
                for path in unknown {
                    call.warn(format!("unknown field {path:?}"));
                }
            }
            FieldValidation::Strict => {
                let list: Vec<String> = unknown
                    .iter()
                    .map(|p| format!("unknown field {p:?}"))
                    .collect();
                return Err(handled(format!(
                    "strict decoding error: {}",
                    list.join(", ")
                )));
            }
        }
    }
    metadata::of(&mut object);
    Ok(object)
}

/// An object of the request's version, ready for the store.
pub fn draft(served: &Served, object: Value) -> Result<Draft, Refusal> {
    let resource = &served.resource;
    let object = codec::to_storage(served, object);
    let key = resource.key(
        metadata::text(&object, "namespace"),
        metadata::text(&object, "name"),
    );
    let head = Head::of(Arc::from(key), &object, fields::of(resource, &object));
    Draft::new(head, &object).map_err(Refusal::internal)
}
