//! Changing objects by patches of four forms.

use http::StatusCode;
use serde_json::Value;

use super::super::apply::{self, ApplyError};
use super::super::metadata;
use super::super::patch::{self as forms, PatchError};
use super::super::refusal::{GroupName, Refusal};
use super::super::schema::FieldError;
use super::update::{Prepared, check_name, update_with};
use super::write::decode_tree;
use super::{Call, Outcome, create};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Changes the object of the call as its body says.
pub async fn patch(call: &Call<'_>, body: &[u8]) -> Result<Outcome, Refusal> {
    check_options(call)?;
    if call.content_type == APPLY {
        return server_side(call, body).await;
    }
    let document = parse(call, body)?;
    update_with(call, |old| {
        let new = patched(call, old, &document)?;
        let new = decode_tree(call, new)?;
        check_name(call, &new)?;
        Ok(new.into())
    })
    .await
}

fn parse(call: &Call<'_>, body: &[u8]) -> Result<Value, Refusal> {
    let custom = call.served.resource.custom.is_some();
    let offered: &[&str] = if custom {
        &[JSON, MERGE, APPLY]
    } else {
        &[JSON, MERGE, STRATEGIC, APPLY]
    };
    if !offered.contains(&call.content_type) {
        return Err(Refusal::unsupported_media_type(offered));
    }
    let document: Value = serde_json::from_slice(body)
        .map_err(|e| Refusal::bad_request(format!("error decoding patch: {e}")))?;
    let fits = if call.content_type == JSON {
        document.is_array()
    } else {
        document.is_object()
    };
    if !fits {
        let expected = if call.content_type == JSON {
            "[]jsonpatch.Operation"
        } else {
            "map[string]interface {}"
        };
        return Err(Refusal::bad_request(format!(
            "error decoding patch: json: cannot unmarshal into Go value of type {expected}"
        )));
    }
    Ok(document)
}

/// An object with a patch laid over it, by the form that the content type names.
pub fn patched(call: &Call<'_>, old: &Value, document: &Value) -> Result<Value, Refusal> {
    let result = match call.content_type {
        JSON => forms::json(old, document),
        STRATEGIC => forms::strategic(old, document, &call.served.version().schema),
        _ => Ok(forms::merge(old, document)),
    };
    result.map_err(|error| match error {
        PatchError::Malformed(message) => Refusal::bad_request(message),
        PatchError::Unprocessable(message) => Refusal::unprocessable(message),
    })
}

fn check_options(call: &Call<'_>) -> Result<(), Refusal> {
    let apply = call.content_type == APPLY;
    let mut errors = Vec::new();
    if apply && call.query.get("fieldManager").is_none() {
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
    }
    if !apply && call.query.optional_flag("force").is_some() {
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    if call
        .query
        .get("fieldManager")
        .is_some_and(|m| m.len() > 128)
    {
        errors.push(FieldError::too_long("fieldManager", 128));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let options = GroupName {
        group: "meta.k8s.io",
        name: "PatchOptions",
    };
    Err(Refusal::invalid(options, "", &errors))
}

async fn server_side(call: &Call<'_>, body: &[u8]) -> Result<Outcome, Refusal> {
    // What is applied is not decoded: an applier owns what it wrote, not what a Go type would print for it.
    let mut config: Value = serde_saphyr::from_slice(body)
        .map_err(|e| Refusal::bad_request(format!("error decoding YAML: {e}")))?;
    if !config.is_object() {
        let message = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal into Go value of type map[string]interface {}";
        return Err(Refusal::bad_request(message));
    }
    let name = metadata::text(&config, "name").to_owned();
    if name.is_empty() {
        metadata::of(&mut config).insert("name".to_owned(), call.path.name.as_ref().into());
    }
    check_name(call, &config)?;
    let resource = &call.served.resource;
    let absent = resource.collection.get(&call.key()).is_none();
    if absent && call.path.subresource.is_empty() {
        if !metadata::text(&config, "resourceVersion").is_empty() {
            return Err(Refusal::not_found(resource.name(), &call.path.name));
        }
        if !metadata::text(&config, "uid").is_empty() {
            return Err(Refusal::conflict(
                resource.name(),
                &call.path.name,
                &format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    metadata::text(&config, "uid")
                ),
            ));
        }
        metadata::settle_namespace(&mut config, &call.path.namespace)?;
        let object = merged(call, None, &config)?;
        return create::insert(call, object, true).await;
    }
    let outcome = update_with(call, |old| {
        let mut object = merged(call, Some(old), &config)?;
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

fn merged(call: &Call<'_>, live: Option<&Value>, config: &Value) -> Result<Value, Refusal> {
    let applied = apply::apply(
        live,
        config,
        call.manager(),
        &call.served.api_version(),
        &call.path.subresource,
        call.query.flag("force"),
        &call.served.version().schema,
        call.server.clock.now(),
    )
    .map_err(|error| match error {
        ApplyError::Conflicts { message, conflicts } => {
            Refusal::apply_conflict(message, &conflicts)
        }
        ApplyError::BadRequest(message) => Refusal::bad_request(message),
        ApplyError::Typed(message) => Refusal::unknown(message),
    })?;
    decode_tree(call, applied)
}
