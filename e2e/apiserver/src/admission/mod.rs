//! Admission: webhooks and policies that are asked about a write, in what order, and what becomes
//! of their answers.
//!
//! The course is that of kube-apiserver: the mutating webhooks one after another on the way in,
//! then, when the object is complete and valid, the policies, and then the validating webhooks all
//! at once.

mod asking;
mod policies;
mod rounds;

use serde_json::{Value, json};

use crate::admission_config::matching::{self, Resource};
use crate::admission_config::review::Attributes;
pub use crate::admission_config::review::user_info;
use crate::context::RequestContext;
use crate::wire::status_error::StatusError;
use rounds::{mutate_all, validate_all};

/// What is to be done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Make it.
    Create,
    /// Change it.
    Update,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
        }
    }
}

/// An object of a write.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// What is done to it.
    pub operation: Operation,
    /// The object before.
    pub old: Option<&'a Value>,
}

/// Asks the mutating webhooks, and makes of the object what they want; returns whether they wanted
/// anything.
pub async fn mutate(
    context: &RequestContext<'_>,
    written: Written<'_>,
    object: &mut Value,
) -> Result<bool, StatusError> {
    let Some(hooks) = context.server.admission.mutating.hooks() else {
        return Ok(false);
    };
    let mut attributes = attributes(context, written, object);
    if matching::is_exempt(&attributes.resource) {
        return Ok(false);
    }
    mutate_all(context, &hooks, &mut attributes).await?;
    let Some(mut new) = attributes.object.filter(|new| new != object) else {
        return Ok(false);
    };
    keep_owners(context, &object["metadata"]["managedFields"], &mut new);
    *object = new;
    Ok(true)
}

/// Keeps the managed fields as they were if a webhook made them unreadable: what it writes there
/// counts only if it makes sense.
fn keep_owners(context: &RequestContext<'_>, before: &Value, object: &mut Value) {
    let now = &object["metadata"]["managedFields"];
    if now == before || crate::apply::is_readable(object) {
        return;
    }
    let what = "metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests";
    context.warn(what);
    object["metadata"]["managedFields"] = before.clone();
}

/// Asks the policies and the validating webhooks about an object that is ready to be stored.
pub async fn validate(
    context: &RequestContext<'_>,
    written: Written<'_>,
    object: &Value,
) -> Result<(), StatusError> {
    let admission = &context.server.admission;
    let hooks = admission.validating.hooks();
    if hooks.is_none() && admission.policies.is_empty() {
        return Ok(());
    }
    let mut attributes = attributes(context, written, object);
    if attributes.name.is_empty() {
        // It may have been generated meanwhile.
        attributes.name = crate::wire::metadata::text(object, "name").to_owned();
    }
    policies::validate(context, &attributes)?;
    match hooks {
        Some(hooks) => validate_all(context, &hooks, &attributes).await,
        None => Ok(()),
    }
}

/// Asks everybody about a deletion with these options, perhaps only rehearsed.
pub async fn delete(
    context: &RequestContext<'_>,
    old: &Value,
    (options, dry_run): (Value, bool),
) -> Result<(), StatusError> {
    let admission = &context.server.admission;
    let (mutating, validating) = (admission.mutating.hooks(), admission.validating.hooks());
    if mutating.is_none() && validating.is_none() && admission.policies.is_empty() {
        return Ok(());
    }
    let mut attributes = Attributes {
        operation: "DELETE",
        name: context.path.name.to_string(),
        object: None,
        old: Some(old.clone()),
        options,
        dry_run,
        ..of(context, crate::wire::metadata::text(old, "namespace"))
    };
    if let Some(hooks) = mutating
        && !matching::is_exempt(&attributes.resource)
    {
        mutate_all(context, &hooks, &mut attributes).await?;
    }
    policies::validate(context, &attributes)?;
    match validating {
        Some(hooks) => validate_all(context, &hooks, &attributes).await,
        None => Ok(()),
    }
}

fn attributes<'a>(
    context: &'a RequestContext<'_>,
    written: Written<'_>,
    object: &Value,
) -> Attributes<'a> {
    let name = match context.path.name.as_ref() {
        "" => crate::wire::metadata::text(object, "name"),
        name => name,
    };
    let base = of(context, &context.path.namespace);
    let namespace = if matching::is_namespaces(&base.resource) {
        name.to_owned()
    } else {
        base.namespace.clone()
    };
    Attributes {
        operation: written.operation.name(),
        name: name.to_owned(),
        namespace,
        object: Some(object.clone()),
        old: written.old.cloned(),
        options: options(context, written.operation.options()),
        dry_run: context.is_dry_run(),
        ..base
    }
}

/// Returns the attributes that are the same for all operations.
fn of<'a>(context: &'a RequestContext<'_>, namespace: &str) -> Attributes<'a> {
    let served = &context.served;
    let resource = Resource {
        group: served.resource.group.clone(),
        version: served.version().name.clone(),
        plural: served.resource.plural.clone(),
    };
    let subresource = context.path.subresource.as_ref();
    let kind = match served.version().subresource(subresource) {
        Some(s) if !s.speaks.2.is_empty() => {
            let (group, version, kind) = &s.speaks;
            let version = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            (version, kind.clone())
        }
        _ => (served.api_version(), served.resource.kind.clone()),
    };
    let namespace = if matching::is_namespaces(&resource) {
        &context.path.name
    } else {
        namespace
    };
    Attributes {
        operation: "",
        kind,
        resource,
        subresource,
        name: String::new(),
        namespace: namespace.to_owned(),
        object: None,
        old: None,
        options: Value::Null,
        dry_run: false,
        user: context.user,
    }
}

fn options(context: &RequestContext<'_>, kind: &str) -> Value {
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = context.query.get(field) {
            options[field] = value.into();
        }
    }
    if context.is_dry_run() {
        options["dryRun"] = json!(["All"]);
    }
    options
}
