//! Reading bodies as objects of the kind that a call is about.

use serde_json::Value;

use super::write::{FieldValidation, WriteOptions};
use crate::context::RequestContext;
use crate::wire::field_error::FieldError;
use crate::wire::media::{self, Unread};
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// Reads a body as an object of the call's kind.
pub fn decode(
    context: &RequestContext<'_>,
    body: &[u8],
    options: WriteOptions,
) -> Result<Value, StatusError> {
    let custom = context.served.resource.custom.is_some();
    let object =
        media::parse(context.content_type, body, !custom).map_err(|unread| match unread {
            Unread::Refused(refusal) => refusal,
            Unread::Json(error) => unrecognized(context, &error),
        })?;
    if !object.is_object() {
        return Err(unrecognized(context, "no object"));
    }
    if custom && object["kind"].as_str().is_none_or(str::is_empty) {
        return Err(unrecognized(context, "Object 'Kind' is missing"));
    }
    decode_tree(context, object, options)
}

fn unrecognized(context: &RequestContext<'_>, error: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {error}",
        context.served.resource.kind
    ))
}

/// Makes a tree an object of the call's kind: the right version and kind, known fields of the right
/// types.
pub fn decode_tree(
    context: &RequestContext<'_>,
    mut object: Value,
    options: WriteOptions,
) -> Result<Value, StatusError> {
    let served = &context.served;
    check_kind(context, &object)?;
    object["apiVersion"] = served.api_version().into();
    object["kind"] = served.resource.kind.as_str().into();
    super::status::forget(context, &mut object);
    let reset = resets_owners(&object);
    let schema = &served.version().schema;
    schema
        .decode(&mut object)
        .map_err(|e| mishandled(context, &served.resource.kind, &served.version().name, &e))?;
    let unknown = schema.prune(&mut object);
    let faults = unknown.iter().map(|p| format!("unknown field {p:?}"));
    let faults: Vec<String> = faults.collect();
    if !faults.is_empty() {
        match options.fields {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => faults.into_iter().for_each(|fault| context.warn(fault)),
            FieldValidation::Strict => {
                let error = format!("strict decoding error: {}", faults.join(", "));
                return Err(mishandled(
                    context,
                    &served.resource.kind,
                    &served.version().name,
                    &error,
                ));
            }
        }
    }
    let fields = metadata::of(&mut object);
    if reset {
        fields.insert("managedFields".to_owned(), Value::Array(Vec::new()));
    }
    Ok(object)
}

/// Returns whether the list of managed fields takes everybody's ownership away: it is empty, or has
/// a single empty entry.
fn resets_owners(object: &Value) -> bool {
    let Some(list) = object["metadata"]["managedFields"].as_array() else {
        return false;
    };
    match list.as_slice() {
        [] => true,
        [Value::Object(entry)] => entry.is_empty(),
        _ => false,
    }
}

fn mishandled(context: &RequestContext<'_>, kind: &str, version: &str, error: &str) -> StatusError {
    let wanted = &context.served.resource.kind;
    StatusError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {wanted}: {error}"
    ))
}

/// Checks that a patch does not make the object something of another kind.
pub fn registered(context: &RequestContext<'_>, object: &Value) -> Result<(), StatusError> {
    check_kind(context, object)
}

/// Checks that the object says that it is of the call's kind and version, or says nothing.
fn check_kind(context: &RequestContext<'_>, object: &Value) -> Result<(), StatusError> {
    let served = &context.served;
    let found = |key: &str| object[key].as_str().unwrap_or_default();
    let (api_version, kind) = (served.api_version(), served.resource.kind.as_str());
    let (found_version, found_kind) = (found("apiVersion"), found("kind"));
    if served.resource.custom.is_some() {
        let right_version = found_version.is_empty() || found_version == api_version;
        if found_kind != kind && right_version {
            let error = FieldError::invalid("kind", &found_kind.into(), format!("must be {kind}"));
            let named = GroupName {
                group: &served.resource.group,
                name: found_kind,
            };
            return Err(StatusError::invalid(
                named,
                metadata::text(object, "name"),
                &[error],
            ));
        }
    } else if !found_kind.is_empty() && found_kind != kind {
        let error = format!("a {found_kind} is no {kind}");
        return Err(mishandled(context, found_kind, found_version, &error));
    }
    if !found_version.is_empty() && found_version != api_version {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        )));
    }
    Ok(())
}
