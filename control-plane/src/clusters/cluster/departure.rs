//! Removes a cluster from the fleet, step by step, in Karmada's order.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::client::{self, Head};
use muster_shared::finalizers;
use muster_shared::k8s::{Namespace, ObjectMeta};
use muster_shared::names::{execution_namespace, finalizer};
use muster_shared::queue::Next;
use muster_shared::watch::{Doubt, Presence};
use tokio::time::Instant;

use super::api_call::{failed, is_answered, write};
use super::lifecycle::{DeletionState, DeletionStep};
use super::waiting::{
    DeletionWaits, waits_for_bindings, waits_for_fences, waits_for_list, waits_for_namespace,
    waits_for_works,
};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::fencing::{self, Verdict};
use crate::fleet::protection::preserves_on_deletion;
use crate::fleet::works::{CachedWork, Doomed, Role, binding_of, is_of_namespace};
use crate::fleet::write::{Written, merge};

/// How often a leaving cluster is reconciled again where no watch shows a change.
const DELETION_RETRY: Duration = Duration::from_secs(2);

/// Takes the next step.
pub(super) async fn see_off(
    fleet: &Fleet,
    cluster: &Cluster,
    reported: &DeletionWaits,
) -> Result<Next, ApiError> {
    let name = cluster.name_any();
    let namespace = execution_namespace(&name);
    let works = fleet.works.list_in(&namespace);
    let held = works.iter().filter(|work| is_held(&work.metadata));
    let held: Vec<_> = held.cloned().collect();
    let named = fleet.bindings.index().naming(&name);
    let holds = |key: &BindingKey| {
        let held = fleet.bindings.get(key);
        held.filter(|it| it.spec.target(&name).is_some())
    };
    let deletion = DeletionState {
        cluster,
        namespace: is_deleting(fleet, cluster, &namespace).await?,
        has_works: !works.is_empty(),
        has_held_works: !held.is_empty(),
        is_named: named.iter().any(|key| holds(key).is_some()),
    };
    let next = deletion.next(fleet.settings.connects_to_members());
    tracing::debug!(cluster = name, ?next, "leaving");
    // With the namespace its agent's right goes to read Works, and to remove what they placed.
    let unlisted = if next == DeletionStep::DeleteNamespace {
        let found = unlisted_works(fleet, cluster).await;
        report_failure(fleet, cluster, found)?
    } else {
        Vec::new()
    };
    let runs = |work: &&Arc<CachedWork>| waits_for_fence(fleet, &name, work);
    report_waiting(fleet, cluster, reported, next, || match next {
        DeletionStep::ReleaseWorks => waits_for_fences(held.iter().filter(runs)),
        DeletionStep::DeleteWorks => waits_for_works(works.iter().filter(|work| !stays(work))),
        DeletionStep::AwaitNamespace => Some(waits_for_namespace(&namespace)),
        DeletionStep::DeleteNamespace => (!unlisted.is_empty()).then(|| waits_for_list(&namespace)),
        DeletionStep::AwaitBindings => {
            let holders: Vec<_> = named.iter().filter_map(|key| holds(key)).collect();
            waits_for_bindings(&holders)
        }
        _ => None,
    });
    match next {
        DeletionStep::ReleaseWorks => {
            let free: Vec<_> = held.iter().filter(|work| !runs(work)).cloned().collect();
            let deleted = delete_works(fleet, cluster, &free).await;
            let released = release_works(fleet, cluster, &free).await;
            report_failure(fleet, cluster, deleted.and(released))?;
            if free.len() == held.len() {
                return Ok(Next::Again);
            }
        }
        DeletionStep::DeleteWorks => {
            let deleted = delete_works(fleet, cluster, &works).await;
            report_failure(fleet, cluster, deleted)?;
        }
        DeletionStep::DeleteNamespace if !unlisted.is_empty() => {
            let deleted = delete_works(fleet, cluster, &unlisted).await;
            report_failure(fleet, cluster, deleted)?;
        }
        DeletionStep::DeleteNamespace => {
            let api = Api::<Namespace>::all(fleet.client.clone());
            let deleted = api.delete(&namespace, &DeleteParams::default()).await;
            match Written::of(deleted) {
                Ok(_) => {
                    let note = format!("Removed execution space for cluster({name}).");
                    fleet
                        .events
                        .inform(cluster, "RemoveExecutionSpaceSucceed", note);
                }
                Err(error) => {
                    fleet
                        .events
                        .warn(cluster, "RemoveExecutionSpaceFailed", client::brief(&error));
                    return Err(failed("remove the execution namespace of", cluster)(error));
                }
            }
        }
        DeletionStep::AwaitNamespace | DeletionStep::AwaitBindings => {}
        DeletionStep::Release => {
            let patch = finalizers::release(&cluster.metadata, finalizer::CLUSTER);
            let released = Written::of(write(fleet, cluster, &patch).await);
            let released = released.map_err(failed("take the finalizer off", cluster))?;
            if !released.is_overtaken() {
                tracing::info!(cluster = name, "the cluster has left the fleet");
            }
            return Ok(released.next());
        }
        DeletionStep::Nothing => return Ok(Next::Done),
    }
    Ok(Next::After(DELETION_RETRY))
}

/// Says what a cluster waits for that should have happened by now. It is put in words only then.
fn report_waiting(
    fleet: &Fleet,
    cluster: &Cluster,
    reported: &DeletionWaits,
    step: DeletionStep,
    note: impl FnOnce() -> Option<String>,
) {
    let (name, now) = (cluster.name_any(), Instant::now());
    if reported.is_due(&name, step, now)
        && let Some(note) = note()
    {
        reported.has_reported(&name, now);
        tracing::warn!(cluster = name, "{note}");
        fleet.events.warn(cluster, "RemoveClusterWaiting", note);
    }
}

/// Returns whether the namespace of a cluster is being deleted; `None` if it is gone. The API is
/// asked for one that the cache lacks: a list may have left it out, or it was made a moment ago.
async fn is_deleting(
    fleet: &Fleet,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Option<bool>, ApiError> {
    let is_deleting = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_some();
    if let Some(cached) = fleet.namespaces.get(None, namespace) {
        return Ok(Some(is_deleting(&cached.metadata)));
    }
    let api = Api::all(fleet.client.clone());
    let found = Head::<Namespace>::get_opt(&api, namespace).await;
    let found = found.map_err(failed("look for the namespace of", cluster))?;
    Ok(found.map(|it| is_deleting(&it.metadata)))
}

/// Returns the Works of a cluster that the API has and the cache does not show: a list may have
/// lacked them, and where this one lacks all, they are asked for by name. What the API has many of,
/// it returns in several rounds.
async fn unlisted_works(
    fleet: &Fleet,
    cluster: &Cluster,
) -> Result<Vec<Arc<CachedWork>>, ApiError> {
    const SOME: u32 = 100;
    let namespace = execution_namespace(&cluster.name_any());
    let api = Api::<CachedWork>::namespaced(fleet.client.clone(), &namespace);
    let listed = api.list(&ListParams::default().limit(SOME)).await;
    let mut found = listed.map_err(failed("list the Works of", cluster))?.items;
    if found.is_empty() {
        for name in fleet.works.departed().missing_in(&namespace) {
            let work = client::get_opt(&api, &name).await;
            found.extend(work.map_err(failed("look for the Works of", cluster))?);
            if found.len() >= SOME as usize {
                break;
            }
        }
    }
    Ok(found.into_iter().map(Arc::new).collect())
}

/// Returns whether an agent has still to remove what a Work placed.
fn is_held(work: &ObjectMeta) -> bool {
    finalizers::has(work, finalizer::WORK)
}

/// Returns an outcome, and reports that the Works of a cluster cannot be removed if it is an error.
fn report_failure<T>(
    fleet: &Fleet,
    cluster: &Cluster,
    outcome: Result<T, ApiError>,
) -> Result<T, ApiError> {
    if let Err(error) = &outcome {
        let (reason, note) = ("RemoveExecutionSpaceFailed", error.to_string());
        fleet.events.warn(cluster, reason, note);
    }
    outcome
}

/// Returns whether what a Work placed may still run, and is stopped by its agent: nothing but the
/// Work keeps a second copy from being made. Where the binding cannot be seen, the agent stops what
/// it has confirmed.
fn waits_for_fence(fleet: &Fleet, cluster: &str, work: &CachedWork) -> bool {
    let binding = binding_of(work).map(|key| fleet.bindings.presence(&key));
    let after = binding.and_then(|it| match it {
        Presence::There(binding) => fencing::asked(&binding.spec),
        Presence::Unknown(_) => Some(Duration::ZERO),
        Presence::Gone => None,
    });
    after.is_some_and(|after| {
        let (verdict, _) = fencing::of_work(fleet, cluster, Some(work), after, Instant::now());
        matches!(verdict, Verdict::Waits { .. })
    })
}

/// Acts on several Works, one after the other. A Work about which nothing can be decided, or whose
/// change is refused, does not keep the others; returns the first error.
async fn for_each<'a, F: Future<Output = Result<(), ApiError>>>(
    works: impl Iterator<Item = &'a Arc<CachedWork>>,
    act: impl Fn(&'a CachedWork) -> F,
) -> Result<(), ApiError> {
    let mut outcome = Ok(());
    for work in works {
        let done = act(work).await;
        // Where the API gives no answer to one request, the other Works are not tried either.
        if done.as_ref().is_err_and(|error| !is_answered(error)) {
            return done;
        }
        outcome = outcome.and(done);
    }
    outcome
}

/// Lets go of Works that are being deleted, of which no agent may remove the objects any more. An
/// agent that lives while its cluster is not ready would take hold of any other Work again.
async fn release_works(
    fleet: &Fleet,
    cluster: &Cluster,
    held: &[Arc<CachedWork>],
) -> Result<(), ApiError> {
    let deleted = held.iter().filter(|work| !stays(work));
    for_each(deleted, |work| release_work(fleet, cluster, work)).await
}

async fn release_work(fleet: &Fleet, cluster: &Cluster, work: &CachedWork) -> Result<(), ApiError> {
    let patch = finalizers::release(&work.metadata, finalizer::WORK);
    let api = works_of(fleet, cluster);
    let released = Written::of(merge(&api, &work.name_any(), &patch).await);
    released.map_err(failed("release the Works of", cluster))?;
    Ok(())
}

/// Deletes Works, for the agent to see to.
async fn delete_works(
    fleet: &Fleet,
    cluster: &Cluster,
    works: &[Arc<CachedWork>],
) -> Result<(), ApiError> {
    let works = works.iter().filter(|work| stays(work));
    for_each(works, |work| delete_work(fleet, cluster, work)).await
}

/// Deletes a Work, once it says that what it placed stays in the member where that is to stay. A
/// Work that its binding removes already is left to the binding, which has decided whether the
/// object stays.
async fn delete_work(fleet: &Fleet, cluster: &Cluster, work: &CachedWork) -> Result<(), ApiError> {
    let stays = has_to_preserve(fleet, work).await?;
    // The binding may have removed the Work while the policy was read.
    if fleet.deleted_works.is_to_go(work) {
        return Ok(());
    }
    let doomed = Doomed::of(work);
    let removed = doomed.remove(&fleet.client, stays).await;
    let removed = Written::of(removed);
    removed.map_err(failed("delete the Works of", cluster))?;
    Ok(())
}

fn works_of(fleet: &Fleet, cluster: &Cluster) -> Api<Head<Work>> {
    Api::namespaced(
        fleet.client.clone(),
        &execution_namespace(&cluster.name_any()),
    )
}

/// Returns whether what a Work placed stays in the member. Containers and storage do: they may hold
/// what the fleet did not place, and what workloads left that moved away. Of other objects their
/// policy says so, from the moment at which it does; the API is asked for a binding that the cache
/// lacks.
async fn has_to_preserve(fleet: &Fleet, work: &CachedWork) -> Result<bool, ApiError> {
    let preserves = work.preserve_resources_on_deletion == Some(true);
    if preserves || work.role != Role::Plain || is_of_namespace(&work.metadata) {
        return Ok(true);
    }
    let Some(key) = binding_of(work) else {
        return Ok(false);
    };
    let binding = match fleet.bindings.presence(&key) {
        Presence::There(binding) => Some(binding),
        // The policy of a binding that cannot be read is not known, so that the copy stays.
        Presence::Unknown(Doubt::Unreadable { .. }) => return Ok(true),
        Presence::Gone | Presence::Unknown(_) => {
            let read = client::get_opt(&key.api(&fleet.client), &key.name).await;
            read.map_err(ApiError::of("read", &key))?.map(Arc::new)
        }
    };
    match binding {
        Some(binding) => Ok(preserves_on_deletion(fleet, &binding).await?),
        None => Ok(false),
    }
}

/// Returns whether a Work is still to be deleted.
fn stays(work: &CachedWork) -> bool {
    work.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod written_tests;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn namespaces_stay_in_a_member_that_leaves_and_other_objects_go() {
        let bench = crate::fleet::testing::Bench::followed([]).await;
        let namespace =
            json!([{"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": "u"}]);
        for (owners, preserves, deletion, (preserve, expected)) in [
            (namespace.clone(), json!(null), json!(null), (true, true)),
            (namespace.clone(), json!(false), json!(null), (true, true)),
            (namespace.clone(), json!(true), json!(null), (true, true)),
            (json!(null), json!(null), json!(null), (false, true)),
            (json!(null), json!(true), json!(null), (true, true)),
            (
                namespace,
                json!(null),
                json!("2024-01-01T00:00:00Z"),
                (true, false),
            ),
        ] {
            let work: CachedWork = serde_json::from_value(json!({
                "metadata": {"name": "w", "ownerReferences": owners, "deletionTimestamp": deletion},
                "spec": {"preserveResourcesOnDeletion": preserves},
            }))
            .unwrap();
            let what = format!("{owners} {preserves} {deletion}");
            let found = has_to_preserve(&bench.fleet, &work).await.unwrap();
            assert_eq!(found, preserve, "{what}");
            assert_eq!(stays(&work), expected, "{what}");
        }
    }
}
