//! Changing objects by patches of four forms.

use http::StatusCode;
use serde_json::Value;

use super::create;
use super::decode::{decode_tree, registered};
use super::update::{Prepared, check_name, update_with};
use super::write::{WriteOptions, options};
use crate::apply::{self, ApplyError};
use crate::context::{Outcome, RequestContext};
use crate::patch::{self as forms, PatchError};
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::request::Verb;
use crate::wire::status_error::{GroupName, StatusError};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Changes the object of the call as its body says.
pub async fn patch(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let custom = context.served.resource.custom.is_some();
    let offered: &[&str] = if custom {
        &[JSON, MERGE, APPLY]
    } else {
        &[JSON, MERGE, STRATEGIC, APPLY]
    };
    if !offered.contains(&context.content_type) {
        return Err(if custom {
            StatusError::unsupported_media_type(offered)
        } else {
            StatusError::unsupported_patch()
        });
    }
    let options = options(context, "PatchOptions")?;
    if context.content_type == APPLY {
        return server_side(context, body, options).await;
    }
    // Only an object that is there has the patch read.
    context.stored()?;
    let document = parse(context, body)?;
    update_with(context, |old| {
        let new = patched(context, old, &document)?;
        registered(context, &new).map_err(|refusal| undecodable(&document, refusal))?;
        let decoded = decode_tree(context, new, options);
        let mut new = decoded.map_err(|refusal| undecodable(&document, refusal))?;
        check_name(context, &mut new)?;
        Ok(new.into())
    })
    .await
}

fn parse(context: &RequestContext<'_>, body: &[u8]) -> Result<Value, StatusError> {
    let document: Value = serde_json::from_slice(body)
        .map_err(|e| StatusError::bad_request(format!("error decoding patch: {e}")))?;
    let list = context.content_type == JSON;
    match &document {
        Value::Array(_) if list => return Ok(document),
        Value::Object(_) if !list => return Ok(document),
        _ => {}
    }
    let expected = if list {
        "a list of operations"
    } else {
        "an object"
    };
    let message = format!("error decoding patch: {expected} is expected");
    Err(StatusError::bad_request(message))
}

/// Returns an object with a patch laid over it, by the form that the content type names.
pub fn patched(
    context: &RequestContext<'_>,
    old: &Value,
    document: &Value,
) -> Result<Value, StatusError> {
    let result = match context.content_type {
        JSON => forms::json(old, document),
        STRATEGIC => forms::strategic(old, document, &context.served.version().schema),
        _ => Ok(forms::merge(old, document)),
    };
    let result = result.and_then(|new| {
        let message = "the patched document is no object".to_owned();
        new.is_object()
            .then_some(new)
            .ok_or(PatchError::Malformed(message))
    });
    result.map_err(|error| match (context.content_type, error) {
        // Whatever keeps the operations from being carried out, the real server says no more than
        // this.
        (JSON, _) => StatusError::patch_does_not_fit(),
        (_, PatchError::Malformed(message)) => StatusError::bad_request(message),
        (_, PatchError::Unprocessable(message)) => StatusError::unknown(message),
    })
}

/// Returns the refusal of a patch that fits the document and still leaves something that is no
/// object of the kind.
fn undecodable(document: &Value, refusal: StatusError) -> StatusError {
    let Some((_, error)) = refusal.message().split_once("cannot be handled as a ") else {
        return refusal;
    };
    let error = error.split_once(": ").map_or(error, |(_, error)| error);
    let error = FieldError::invalid("patch", &document.to_string().into(), error);
    StatusError::invalid(
        GroupName {
            group: "",
            name: "",
        },
        "",
        &[error],
    )
}

/// Adds what is wrong with the options that only patches have.
pub fn check_options(context: &RequestContext<'_>, errors: &mut Vec<FieldError>) {
    let apply = context.content_type == APPLY;
    if apply && context.query.get("fieldManager").is_none() {
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
    }
    if !apply && context.query.optional_flag("force").is_some() {
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
}

async fn server_side(
    context: &RequestContext<'_>,
    body: &[u8],
    options: WriteOptions,
) -> Result<Outcome, StatusError> {
    // What is applied is not decoded: an applier owns what it wrote, not what a Go type would print
    // for it.
    let mut config = applied(body)?;
    if !config.is_object() {
        let message = "error decoding YAML: an object is expected";
        return Err(StatusError::bad_request(message));
    }
    check_kind(context, &config)?;
    let resource = &context.served.resource;
    let absent = resource.collection.get(&context.key()).is_none();
    if absent && context.path.subresource.is_empty() {
        check_name(context, &mut config.clone())?;
        if !metadata::text(&config, "uid").is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                metadata::text(&config, "uid")
            );
            return Err(StatusError::conflict(
                resource.name(),
                &context.path.name,
                &why,
            ));
        }
        context
            .server
            .access
            .permit(context.user, Verb::Create, context.path, context.query)?;
        metadata::of(&mut config).remove("resourceVersion");
        let object = merged(context, None, &config, options)?;
        return create::insert(context, object, true).await;
    }
    if !metadata::text(&config, "name").is_empty() {
        check_name(context, &mut config.clone())?;
    }
    let outcome = update_with(context, |old| {
        let mut object = merged(context, Some(old), &config, options)?;
        let version = match metadata::text(&config, "resourceVersion") {
            "" => old["metadata"]["resourceVersion"].clone(),
            given => given.into(),
        };
        metadata::of(&mut object).insert("resourceVersion".to_owned(), version);
        Ok(Prepared {
            object,
            owned: true,
        })
    })
    .await?;
    Ok(match outcome {
        Outcome::Tree(_, value) => Outcome::Tree(StatusCode::OK, value),
        stored @ Outcome::Stored(..) => stored,
    })
}

/// Reads what is applied: YAML, and nearly always JSON, which is read a good deal faster.
fn applied(body: &[u8]) -> Result<Value, StatusError> {
    if body.first() == Some(&b'{')
        && let Ok(object) = serde_json::from_slice(body)
    {
        return Ok(object);
    }
    serde_saphyr::from_slice(body).map_err(|e| {
        StatusError::bad_request(format!(
            "error decoding YAML: error converting YAML to JSON: {e}"
        ))
    })
}

/// Checks that what is applied says that it is of the kind and version of the path.
fn check_kind(context: &RequestContext<'_>, config: &Value) -> Result<(), StatusError> {
    let text = |key: &str| config[key].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == context.served.api_version() && kind == context.served.resource.kind {
        return Ok(());
    }
    let version = if version.contains('/') {
        version.to_owned()
    } else {
        format!("/{version}")
    };
    Err(StatusError::bad_request(format!(
        "invalid object type: {version}, Kind={kind}"
    )))
}

fn merged(
    context: &RequestContext<'_>,
    live: Option<&Value>,
    config: &Value,
    options: WriteOptions,
) -> Result<Value, StatusError> {
    let applied = apply::apply(
        live,
        config,
        context.manager(),
        &context.served.api_version(),
        &context.path.subresource,
        context.query.flag("force"),
        &context.served.version().schema,
        context.server.clock.now(),
    )
    .map_err(|error| match error {
        ApplyError::Conflicts { message, conflicts } => {
            let fields = conflicts.iter().map(|c| (&*c.field, &*c.message));
            StatusError::apply_conflict(message, fields)
        }
        ApplyError::BadRequest(message) => StatusError::bad_request(message),
        ApplyError::Typed(message) => StatusError::unknown(message),
    })?;
    decode_tree(context, applied, options)
}
