//! Making objects.

use http::StatusCode;
use serde_json::Value;

use super::decode::decode;
use super::write::{draft, options};
use crate::admission::{self, Operation, Written};
use crate::apply;
use crate::context::{Outcome, RequestContext};
use crate::kinds::strategy;
use crate::registry::Served;
use crate::registry::kind_facts::Generation;
use crate::store::Expect;
use crate::wire::clock;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// How often another name is generated when one is taken, as in a real server.
const NAME_ATTEMPTS: usize = 8;

/// Makes the object in the body.
pub async fn create(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let object = decoded(context, body)?;
    insert(context, object, false).await
}

/// Reads the body of a creation as an object of the kind asked for.
pub fn decoded(context: &RequestContext<'_>, body: &[u8]) -> Result<Value, StatusError> {
    decode(context, body, options(context, "CreateOptions")?)
}

/// Makes a decoded object.
///
/// `owned` says that its managed fields are already right, as after an apply.
pub async fn insert(
    context: &RequestContext<'_>,
    mut object: Value,
    owned: bool,
) -> Result<Outcome, StatusError> {
    let served = &context.served;
    let resource = &served.resource;
    let facts = resource.facts;
    metadata::wipe_system_fields(&mut object);
    metadata::settle_namespace(&mut object, &context.path.namespace)?;
    admit_namespace(context, metadata::text(&object, "name"))?;
    let now = context.server.clock.now();
    let version_given = !matches!(metadata::text(&object, "resourceVersion"), "" | "0");
    metadata::of(&mut object).remove("resourceVersion");
    let strategy = strategy(resource);
    strategy.prepare_for_create(&mut object);
    served.version().schema.default(&mut object);
    if !owned {
        let schema = &served.version().schema;
        let (manager, api_version) = (context.manager(), served.api_version());
        apply::track_update(None, &mut object, manager, &api_version, "", schema, now);
    }
    if context.path.subresource.is_empty() {
        strategy.admit(&mut object);
    }
    let written = Written {
        operation: Operation::Create,
        old: None,
    };
    admission::mutate(context, written, &mut object).await?;
    let fields = metadata::of(&mut object);
    fields.insert("uid".to_owned(), clock::uid().into());
    fields.insert("creationTimestamp".to_owned(), metadata::time(now).into());
    if facts.generation != Generation::None {
        fields.insert("generation".to_owned(), 1.into());
    }
    strategy.complete(context, &mut object);
    let generate = metadata::text(&object, "name").is_empty()
        && !metadata::text(&object, "generateName").is_empty();
    let attempts = if generate { NAME_ATTEMPTS } else { 1 };
    for attempt in 1..=attempts {
        if generate {
            // The prefix gives way so that the whole stays a legal name.
            let prefix: String = metadata::text(&object, "generateName")
                .chars()
                .take(58)
                .collect();
            let name = format!("{prefix}{}", clock::suffix());
            metadata::of(&mut object).insert("name".to_owned(), name.into());
        }
        strategy.may_grant(context, None, &object)?;
        validate(context, served, &object)?;
        strategy.may_write(context, None, &object)?;
        admission::validate(context, written, &object).await?;
        if version_given {
            return Err(StatusError::unknown(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let name = metadata::text(&object, "name").to_owned();
        let taken = || StatusError::already_exists(resource.name(), &name);
        if context.is_dry_run() {
            if resource
                .collection
                .get(&resource.key(&context.path.namespace, &name))
                .is_some()
            {
                return Err(taken());
            }
            return Ok(Outcome::Tree(StatusCode::CREATED, object));
        }
        // Only a generated name gets another chance.
        match resource
            .collection
            .put(draft(served, &object)?, Expect::Absent)
        {
            Ok(stored) => {
                // A namespace may have begun to go since it was read; what came late goes with
                // it.
                context.server.written(resource, &stored);
                return Ok(Outcome::Stored(StatusCode::CREATED, stored));
            }
            Err(_) if attempt < attempts => {}
            Err(_) => return Err(taken()),
        }
    }
    Err(StatusError::internal("no attempt at a name was made"))
}

fn validate(
    context: &RequestContext<'_>,
    served: &Served,
    object: &Value,
) -> Result<(), StatusError> {
    let resource = &served.resource;
    let mut errors = served.version().schema.validate(object, None);
    errors.splice(
        0..0,
        metadata::validate(
            object,
            resource.facts.names,
            resource.namespaced,
            resource.custom.is_none(),
        ),
    );
    if errors.is_empty() {
        return Ok(());
    }
    Err(context.invalid(metadata::text(object, "name"), &errors))
}

/// Refuses what is to be made in a namespace that is absent or going.
pub fn admit_namespace(context: &RequestContext<'_>, name: &str) -> Result<(), StatusError> {
    let resource = &context.served.resource;
    let namespace = context.path.namespace.as_ref();
    if !resource.namespaced {
        return Ok(());
    }
    let namespaces = GroupName {
        group: "",
        name: "namespaces",
    };
    let Some(found) = context
        .server
        .store
        .collection("/namespaces")
        .get(namespace)
    else {
        return Err(StatusError::not_found(namespaces, namespace));
    };
    if found.head.deleting {
        return Err(StatusError::namespace_terminating(
            resource.name(),
            name,
            namespace,
        ));
    }
    Ok(())
}
