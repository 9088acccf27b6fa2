//! Replacing objects, and the one way in which every change to an existing object is carried out.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::create;
use super::decode::decode;
use super::write::{draft, options};
use crate::admission::{self, Operation, Written};
use crate::apply;
use crate::auth::authorize;
use crate::context::{Call, Outcome};
use crate::prepare;
use crate::registry::codec;
use crate::registry::kind_facts::Generation;
use crate::store::{Expect, Object};
use crate::subresources::scale;
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
pub async fn replace(call: &Call<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let mut object = decode(call, body, options(call, "UpdateOptions")?)?;
    check_name(call, &mut object)?;
    let resource = &call.served.resource;
    let absent = resource.collection.get(&call.key()).is_none();
    if absent && resource.facts.create_on_update && call.path.subresource.is_empty() {
        authorize::permit(call.server, call.user, Verb::Create, call.path, call.query)?;
        return create::insert(call, object, false).await;
    }
    update_with(call, |old| {
        check_uid(call, old, &object)?;
        Ok(object.clone().into())
    })
    .await
}

/// An identity in a replacement is a precondition.
fn check_uid(call: &Call<'_>, old: &Value, new: &Value) -> Result<(), StatusError> {
    let (uid, old_uid) = (metadata::text(new, "uid"), metadata::text(old, "uid"));
    if uid.is_empty() || uid == old_uid {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
        registry_key(call)
    );
    Err(StatusError::conflict(
        call.served.resource.name(),
        &call.path.name,
        &why,
    ))
}

/// The name in an object must be that in the path.
pub fn check_name(call: &Call<'_>, object: &mut Value) -> Result<(), StatusError> {
    metadata::settle_namespace(object, &call.path.namespace)?;
    let url = call.path.name.as_ref();
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
    call: &Call<'_>,
    change: impl Fn(&Value) -> Result<Prepared, StatusError>,
) -> Result<Outcome, StatusError> {
    let resource = &call.served.resource;
    for _ in 0..ATTEMPTS {
        let stored = call.stored()?;
        let old = codec::to_request(&call.served, stored.value());
        let prepared = change(&old)?;
        check_version(call, &old, &prepared.object)?;
        if let Some(outcome) = commit(call, &stored, &old, prepared).await? {
            return Ok(outcome);
        }
    }
    Err(StatusError::modified(resource.name(), &call.path.name))
}

fn check_version(call: &Call<'_>, old: &Value, new: &Value) -> Result<(), StatusError> {
    let resource = &call.served.resource;
    let name = call.path.name.as_ref();
    let version = metadata::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        if resource.facts.unconditional_update
            || !call.path.subresource.is_empty() && resource.custom.is_none()
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

/// Where etcd would keep the object: some messages say it.
fn registry_key(call: &Call<'_>) -> String {
    let resource = &call.served.resource;
    let place = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group, plural) if resource.custom.is_some() || group.starts_with("api") => {
            format!("{group}/{plural}")
        }
        (_, plural) => plural.to_owned(),
    };
    format!("/registry/{place}/{}", call.key())
}

/// Carries a change out; `None` if somebody else was faster.
async fn commit(
    call: &Call<'_>,
    stored: &Arc<Object>,
    old: &Value,
    prepared: Prepared,
) -> Result<Option<Outcome>, StatusError> {
    let served = &call.served;
    let resource = &served.resource;
    let version = served.version();
    let now = call.server.clock.now();
    let Prepared {
        object: mut new,
        owned,
    } = prepared;
    settle(call, old, &mut new)?;
    if !owned && call.path.subresource != "binding" {
        apply::track_update(
            Some(old),
            &mut new,
            call.manager(),
            &served.api_version(),
            &call.path.subresource,
            &version.schema,
            now,
        );
    }
    let asked = (!has_a_kind_of_its_own(call)).then_some(Written {
        operation: Operation::Update,
        old: Some(old),
    });
    if let Some(written) = asked
        && admission::mutate(call, written, &mut new).await?
    {
        settle(call, old, &mut new)?;
    }
    if call.path.subresource == "scale" {
        scale::forget_time(&mut new);
    }
    apply::keep_times(old, &mut new);
    prepare::may_grant(call, Some(old), &new)?;
    let mut errors = metadata::validate(
        &new,
        resource.facts.names,
        resource.namespaced,
        resource.custom.is_none(),
    );
    errors.extend(metadata::validate_update(old, &new));
    // A binding is what may assign a node; every other write finds the assignment immutable.
    if call.path.subresource != "binding" {
        errors.extend(version.schema.validate(&new, Some(old)));
    }
    errors.extend(prepare::check_update(call, old, &new));
    if let Some(scale) = &version.scale {
        errors.extend(scale::check(scale, &new));
    }
    if !errors.is_empty() {
        return Err(call.invalid(&call.path.name, &errors));
    }
    prepare::may_write(call, Some(old), &new)?;
    if let Some(written) = asked {
        admission::validate(call, written, &new).await?;
    }
    if new == *old {
        return Ok(Some(Outcome::Stored(StatusCode::OK, Arc::clone(stored))));
    }
    if call.is_dry_run() {
        return Ok(Some(Outcome::Tree(StatusCode::OK, new)));
    }
    if goes_now(call, &new) {
        // The answer is the object as it was written last; the watch sees the deletion only.
        return Ok(resource
            .collection
            .remove(draft(served, new.clone())?, stored.version)
            .ok()
            .map(|gone| {
                call.server.removed(resource, &gone);
                Outcome::Tree(StatusCode::OK, new)
            }));
    }
    match resource
        .collection
        .put(draft(served, new)?, Expect::Version(stored.version))
    {
        Ok(stored) => {
            call.server.written(resource, &stored);
            Ok(Some(Outcome::Stored(StatusCode::OK, stored)))
        }
        Err(_) => Ok(None),
    }
}

/// Whether the path speaks of something else than the object that it changes: webhooks are asked
/// about that then.
fn has_a_kind_of_its_own(call: &Call<'_>) -> bool {
    matches!(call.path.subresource.as_ref(), "scale" | "binding")
}

/// Puts back what this path doesn't write, and fills in what is the server's to say.
fn settle(call: &Call<'_>, old: &Value, new: &mut Value) -> Result<(), StatusError> {
    metadata::settle_namespace(new, &call.path.namespace)?;
    metadata::carry_over(old, new);
    prepare::update(call, old, new);
    call.served.version().schema.default(new);
    prepare::updated(call, old, new);
    metadata::of(new).insert(
        "resourceVersion".to_owned(),
        old["metadata"]["resourceVersion"].clone(),
    );
    grow_generation(call, old, new);
    Ok(())
}

/// Whether nothing holds an object any longer whose deletion began.
fn goes_now(call: &Call<'_>, new: &Value) -> bool {
    let metadata = &new["metadata"];
    let pending = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|s| s > 0);
    metadata["deletionTimestamp"].is_string()
        && !pending
        && metadata::finalizers(new).is_empty()
        && !prepare::holds(call, new)
}

fn grow_generation(call: &Call<'_>, old: &Value, new: &mut Value) {
    // Writing the status never counts, even where it may touch annotations.
    // Neither does a binding: the node is not what somebody wants of the pod.
    let changed = !["status", "binding"].contains(&call.path.subresource.as_ref())
        && match call.served.resource.facts.generation {
            Generation::None => false,
            Generation::SpecAndAnnotations => {
                old["spec"] != new["spec"]
                    || old["metadata"]["annotations"] != new["metadata"]["annotations"]
            }
            Generation::Of(members) => members.iter().any(|m| old[*m] != new[*m]),
            Generation::Everything => {
                let status = call.served.version().has_status();
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
