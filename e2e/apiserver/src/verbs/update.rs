//! Replacing objects, and the one way in which every change to an existing object is carried out.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::create;
use super::decode::decode;
use super::write::{draft, options};
use crate::admission::{self, Operation, Written};
use crate::apply;
use crate::context::{Outcome, RequestContext};
use crate::kinds::{scale, strategy};
use crate::registry::kind_facts::Generation;
use crate::store::{Expect, Object};
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::request::Verb;
use crate::wire::status_error::StatusError;

/// Tries after losing a race against other writers. A real server tries as long as the request
/// lives.
const ATTEMPTS: usize = 100;

/// A new state for an object, with who answers for its managed fields.
#[derive(Debug)]
pub struct Prepared {
    /// The new state, in the version of the request.
    pub object: Value,
    /// Managed fields are already right (apply); otherwise the change is tracked as an update.
    pub owned: bool,
}

impl From<Value> for Prepared {
    fn from(object: Value) -> Self {
        Self {
            object,
            owned: false,
        }
    }
}

/// Puts the object in the body in the place of the stored one.
pub async fn replace(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let mut object = decode(context, body, options(context, "UpdateOptions")?)?;
    check_name(context, &mut object)?;
    let resource = &context.served.resource;
    let absent = resource.collection.get(&context.key()).is_none();
    if absent && resource.facts.create_on_update && context.path.subresource.is_empty() {
        context
            .server
            .access
            .permit(context.user, Verb::Create, context.path, context.query)?;
        return create::insert(context, object, false).await;
    }
    update_with(context, |old| {
        check_uid(context, old, &object)?;
        Ok(object.clone().into())
    })
    .await
}

/// Checks the identity in a replacement, which is a precondition.
fn check_uid(context: &RequestContext<'_>, old: &Value, new: &Value) -> Result<(), StatusError> {
    let (uid, old_uid) = (metadata::text(new, "uid"), metadata::text(old, "uid"));
    if uid.is_empty() || uid == old_uid {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
        context.key()
    );
    Err(StatusError::conflict(
        context.served.resource.name(),
        &context.path.name,
        &why,
    ))
}

/// Checks that the name in an object is that in the path.
pub fn check_name(context: &RequestContext<'_>, object: &mut Value) -> Result<(), StatusError> {
    metadata::settle_namespace(object, &context.path.namespace)?;
    let url = context.path.name.as_ref();
    let name = metadata::text(object, "name");
    if name.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    Ok(())
}

/// Changes the stored object to what `change` makes of it; tried again when somebody else was
/// faster, unless the new state names the version that it replaces.
pub async fn update_with(
    context: &RequestContext<'_>,
    change: impl Fn(&Value) -> Result<Prepared, StatusError>,
) -> Result<Outcome, StatusError> {
    let resource = &context.served.resource;
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        let old = stored.value();
        let prepared = change(&old)?;
        check_version(context, &old, &prepared.object)?;
        if let Some(outcome) = commit(context, &stored, &old, prepared).await? {
            return Ok(outcome);
        }
    }
    Err(StatusError::modified(resource.name(), &context.path.name))
}

fn check_version(
    context: &RequestContext<'_>,
    old: &Value,
    new: &Value,
) -> Result<(), StatusError> {
    let resource = &context.served.resource;
    let name = context.path.name.as_ref();
    let version = metadata::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        if resource.facts.unconditional_update
            || !context.path.subresource.is_empty() && resource.custom.is_none()
        {
            return Ok(());
        }
        let detail = "must be specified for an update";
        let error = FieldError::invalid("metadata.resourceVersion", &0.into(), detail);
        // Here the real server names the resource, not the kind.
        return Err(StatusError::invalid(resource.name(), name, &[error]));
    }
    if version.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        return Err(StatusError::unknown(message));
    }
    if version != metadata::text(old, "resourceVersion") {
        return Err(StatusError::modified(resource.name(), name));
    }
    Ok(())
}

/// Carries a change out; `None` if somebody else was faster.
async fn commit(
    context: &RequestContext<'_>,
    stored: &Arc<Object>,
    old: &Value,
    prepared: Prepared,
) -> Result<Option<Outcome>, StatusError> {
    let served = &context.served;
    let resource = &served.resource;
    let version = served.version();
    let now = context.server.clock.now();
    let Prepared {
        object: mut new,
        owned,
    } = prepared;
    settle(context, old, &mut new)?;
    if !owned {
        apply::track_update(
            Some(old),
            &mut new,
            context.manager(),
            &served.api_version(),
            &context.path.subresource,
            &version.schema,
            now,
        );
    }
    let asked = (!["scale", "binding"].contains(&&*context.path.subresource)).then_some(Written {
        operation: Operation::Update,
        old: Some(old),
    });
    if let Some(written) = asked
        && admission::mutate(context, written, &mut new).await?
    {
        settle(context, old, &mut new)?;
    }
    if context.path.subresource == "scale" {
        scale::forget_time(&mut new);
    }
    apply::keep_times(old, &mut new);
    strategy(resource).may_grant(context, Some(old), &new)?;
    let mut errors = metadata::validate(
        &new,
        resource.facts.names,
        resource.namespaced,
        resource.custom.is_none(),
    );
    errors.extend(metadata::validate_update(old, &new));
    // A binding is what may assign a node; every other write finds the assignment immutable.
    if context.path.subresource != "binding" {
        errors.extend(version.schema.validate(&new, Some(old)));
    }
    errors.extend(strategy(resource).validate_update(context, old, &new));
    if !errors.is_empty() {
        return Err(context.invalid(&context.path.name, &errors));
    }
    strategy(resource).may_write(context, Some(old), &new)?;
    if let Some(written) = asked {
        admission::validate(context, written, &new).await?;
    }
    if new == *old {
        return Ok(Some(Outcome::Stored(StatusCode::OK, Arc::clone(stored))));
    }
    if context.is_dry_run() {
        return Ok(Some(Outcome::Tree(StatusCode::OK, new)));
    }
    if goes_now(context, &new) {
        // The answer is the object as it was written last; the watch sees the deletion only.
        return Ok(resource
            .collection
            .remove(draft(served, &new)?, stored.version)
            .ok()
            .map(|gone| {
                context.server.removed(resource, &gone);
                Outcome::Tree(StatusCode::OK, new)
            }));
    }
    match resource
        .collection
        .put(draft(served, &new)?, Expect::Version(stored.version))
    {
        Ok(stored) => {
            context.server.written(resource, &stored);
            Ok(Some(Outcome::Stored(StatusCode::OK, stored)))
        }
        Err(_) => Ok(None),
    }
}

/// Puts back what this path doesn't write, and fills in what is the server's to say.
fn settle(context: &RequestContext<'_>, old: &Value, new: &mut Value) -> Result<(), StatusError> {
    metadata::settle_namespace(new, &context.path.namespace)?;
    metadata::carry_over(old, new);
    super::status::keep(context, old, new);
    context.served.version().schema.default(new);
    strategy(&context.served.resource).complete_update(old, new);
    metadata::of(new).insert(
        "resourceVersion".to_owned(),
        old["metadata"]["resourceVersion"].clone(),
    );
    grow_generation(context, old, new);
    Ok(())
}

/// Returns whether nothing holds an object any longer whose deletion began.
fn goes_now(context: &RequestContext<'_>, new: &Value) -> bool {
    let metadata = &new["metadata"];
    let pending = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|s| s > 0);
    metadata["deletionTimestamp"].is_string()
        && !pending
        && metadata::finalizers(new).is_empty()
        && !strategy(&context.served.resource).holds(new)
}

fn grow_generation(context: &RequestContext<'_>, old: &Value, new: &mut Value) {
    // Writing the status never counts, even where it may touch annotations.
    // Neither does a binding: the node is not what somebody wants of the pod.
    let changed = !["status", "binding"].contains(&&*context.path.subresource)
        && match context.served.resource.facts.generation {
            Generation::None => false,
            Generation::SpecAndAnnotations => {
                old["spec"] != new["spec"]
                    || old["metadata"]["annotations"] != new["metadata"]["annotations"]
            }
            Generation::Of(members) => members.iter().any(|m| old[*m] != new[*m]),
            Generation::Everything => {
                let status = context.served.version().has_status();
                let counts = |key: &String| key != "metadata" && !(status && key == "status");
                let members = |object: &'_ Value| {
                    object
                        .as_object()
                        .map_or(0, |o| o.keys().filter(|k| counts(k)).count())
                };
                let same =
                    |(key, value): (&String, &Value)| !counts(key) || new.get(key) == Some(value);
                members(old) != members(new) || !old.as_object().into_iter().flatten().all(same)
            }
        };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        metadata::of(new).insert("generation".to_owned(), generation.into());
    }
}
