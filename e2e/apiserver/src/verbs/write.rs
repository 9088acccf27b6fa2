//! What all writes share: their options, and drafts for the store.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::RequestContext;
use crate::registry::Served;
use crate::registry::fields;
use crate::store::{Draft, Head};
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// The longest name of a field manager, in bytes.
const MANAGER_LIMIT: usize = 128;

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

/// The options of a write, as its query gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// Only a rehearsal.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub fields: FieldValidation,
}

/// Reads the options of a write; `kind` is what the API calls them (`CreateOptions`).
pub fn options(context: &RequestContext<'_>, kind: &str) -> Result<WriteOptions, StatusError> {
    let mut errors = Vec::new();
    if context
        .query
        .get("fieldManager")
        .is_some_and(|m| m.len() > MANAGER_LIMIT)
    {
        errors.push(FieldError::too_long("fieldManager", MANAGER_LIMIT));
    }
    let rehearsals: Vec<&str> = context
        .query
        .all("dryRun")
        .filter(|v| !v.is_empty())
        .collect();
    if rehearsals.iter().any(|v| *v != "All") {
        errors.push(FieldError::unsupported(
            "dryRun",
            &json!(rehearsals),
            &["All"],
        ));
    }
    let fields = match context.query.get("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Strict") => FieldValidation::Strict,
        Some("Ignore") => FieldValidation::Ignore,
        Some(other) => {
            let allowed = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::unsupported(
                "fieldValidation",
                &other.into(),
                &allowed,
            ));
            FieldValidation::Strict
        }
    };
    if kind == "PatchOptions" {
        super::patch::check_options(context, &mut errors);
    }
    if errors.is_empty() {
        return Ok(WriteOptions {
            dry_run: !rehearsals.is_empty(),
            fields,
        });
    }
    Err(StatusError::invalid(
        GroupName {
            group: "meta.k8s.io",
            name: kind,
        },
        "",
        &errors,
    ))
}

/// Returns an object, ready for the store.
pub fn draft(served: &Served, object: &Value) -> Result<Draft, StatusError> {
    let resource = &served.resource;
    let key = resource.key(
        metadata::text(object, "namespace"),
        metadata::text(object, "name"),
    );
    let head = Head::of(Arc::from(key), object, fields::of(resource, object));
    Draft::new(head, object).map_err(StatusError::internal)
}
