//! Writes to referrers and to the bindings attached to them.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::PostParams;
use muster_interpreter::Dependency;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::client::{is_conflict, is_gone};
use muster_shared::finalizers;
use muster_shared::names::{annotation, finalizer};
use muster_shared::queue::Next;
use serde_json::{Value, json};

use super::attach::Write;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::template::TemplateKey;
use crate::fleet::works::{CachedWork, cluster_of};
use crate::fleet::write::merge;
use crate::propagation::binding::namespaces::keep_objects;
use crate::propagation::binding::render::expects;
use crate::propagation::detector::controller::LATER;
use crate::propagation::detector::error::Error;

/// Bytes of the longest list of dependencies that is shown on a referrer: half of what an object
/// may have of annotations. A longer one is not shown, and attached all the same.
const LONGEST_RECORD: usize = 128 * 1024;

pub(super) async fn send(fleet: &Fleet, key: &BindingKey, write: Write) -> Result<Next, Error> {
    let api = key.api(&fleet.client);
    let outcome = match write {
        Write::Create(object) => {
            let binding = serde_json::from_value(object)
                .map_err(|error| ApiError::of("compose", key)(kube::Error::SerdeError(error)))?;
            api.create(&PostParams::default(), &binding).await
        }
        Write::Patch(patch) => merge(&api, &key.name, &patch).await,
    };
    match outcome {
        Ok(_) => Ok(Next::Done),
        // The cache lags behind. What is there already is seen when it arrives.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Next::After(LATER)),
        Err(error) if is_conflict(&error) || is_gone(&error) => Ok(Next::Again),
        Err(error) => Err(ApiError::of("attach", key)(error).into()),
    }
}

/// Shows on the binding what it refers to, for people and for other programs; `false` when the
/// binding is not as it was known.
pub(super) async fn record(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    needs: &[Dependency],
) -> Result<bool, Error> {
    let held = shown(binding);
    let text = (!needs.is_empty()).then(|| json!(needs).to_string());
    let wanted = text.filter(|text| text.len() <= LONGEST_RECORD);
    if held == wanted.as_ref() {
        return Ok(true);
    }
    let patch = json!({ "metadata": {
        "annotations": { annotation::DEPENDENCIES: wanted.map_or(Value::Null, Value::from) },
        "resourceVersion": binding.metadata.resource_version,
    } });
    let written = key.merge(&fleet.client, "record the dependencies of", &patch);
    Ok(!written.await?.is_overtaken())
}

/// Returns what a binding shows that it refers to.
pub(super) fn recorded(binding: &AnyBinding) -> Vec<Dependency> {
    let needs = shown(binding).and_then(|text| serde_json::from_str(text).ok());
    needs.unwrap_or_default()
}

fn shown(binding: &AnyBinding) -> Option<&String> {
    let annotations = binding.metadata.annotations.as_ref()?;
    annotations.get(annotation::DEPENDENCIES)
}

/// Has what a binding without a policy of its own places stay in the members beside a workload that
/// needed it and stays there itself, whoever else needs it; `false` when the binding is not as it
/// was known.
pub(super) async fn preserve(
    fleet: &Fleet,
    template: &TemplateKey,
    workload: &ResourceBindingSpec,
) -> Result<bool, Error> {
    let key = BindingKey::for_template(template);
    let held = fleet.bindings.get(&key);
    let Some(held) = held.filter(|held| held.spec.placement.is_none()) else {
        return Ok(true);
    };
    let works = fleet.work_index.of(&key);
    let is_beside = |it: &&Arc<CachedWork>| cluster_of(it).is_some_and(|it| expects(workload, it));
    for work in works.iter().filter(is_beside) {
        let member = work.metadata.namespace.as_deref();
        keep_objects(fleet, &work.name_any(), member.into_iter()).await?;
    }
    if held.spec.is_preserved_on_deletion() {
        return Ok(true);
    }
    let patch = json!({
        "metadata": { "resourceVersion": held.metadata.resource_version },
        "spec": { "preserveResourcesOnDeletion": true },
    });
    let written = key.merge(&fleet.client, "preserve", &patch).await?;
    Ok(!written.is_overtaken())
}

/// Takes off the finalizer that Karmada's distributor leaves on referrers. We need none: what a
/// vanished referrer was attached to is found from the other side.
pub(super) async fn release(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
) -> Result<Next, Error> {
    if !finalizers::has(&binding.metadata, finalizer::DEPENDENCIES) {
        return Ok(Next::Done);
    }
    let patch = finalizers::release(&binding.metadata, finalizer::DEPENDENCIES);
    Ok(key.merge(&fleet.client, "release", &patch).await?.next())
}
