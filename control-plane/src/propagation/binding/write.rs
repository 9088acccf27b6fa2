//! Writes and removes the Works of a binding.

use futures::future::join_all;
use kube::Client;
use kube::api::{Api, PostParams};
use muster_shared::api::work::Work;
use muster_shared::client::{Head, is_gone};
use muster_shared::k8s::ObjectMeta;
use muster_shared::names;
use muster_shared::watch::{Doubt, Presence};
use serde_json::json;

use super::compare;
use super::error::Error;
use super::owner::{Owner, owner};
use super::render::{Origin, Rendered};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::last_patches::LastPatches;
use crate::fleet::works::{CachedWork, Doomed, binding_named};
use crate::fleet::write::merge;

/// Result of reconciling one Work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured {
    AsRendered,
    /// The old Work has to be deleted first.
    Leaving,
    /// The Work has to be reconciled again, and nothing shows when: the cluster has no execution
    /// namespace yet, another writer changed the Work at the same time, or the cache is outdated.
    Later,
}

/// Refuses to write for a process that does not lead any more. Works are written under their
/// version, too; this covers what has none, their creation and removal.
pub fn lead(fleet: &Fleet) -> Result<(), Error> {
    if fleet.leadership.is_current() {
        Ok(())
    } else {
        Err(Error::Deposed)
    }
}

/// Makes one Work as it was rendered. A Work of the same name that belongs to somebody else is an
/// error, and stays as it is.
pub async fn ensure(
    fleet: &Fleet,
    client: &Client,
    patches: &LastPatches<String>,
    origin: &Origin,
    resource: Option<&str>,
    rendered: &Rendered,
) -> Result<Ensured, Error> {
    let subject = || format!("work {}/{}", rendered.namespace, rendered.name);
    if is_leaving(fleet, &rendered.namespace) {
        return Ok(Ensured::AsRendered);
    }
    let work = match fleet
        .works
        .presence(Some(&rendered.namespace), &rendered.name)
    {
        Presence::There(work) => work,
        Presence::Unknown(Doubt::Unreadable { .. }) => {
            return Err(Error::Refused(format!(
                "{} is there and cannot be read, so that it is neither updated nor replaced",
                subject()
            )));
        }
        Presence::Gone | Presence::Unknown(_) => {
            return create(fleet, client, origin, rendered).await;
        }
    };
    match owner(&work, origin, resource) {
        Owner::Nobody => return Err(foreign(&subject(), "names no binding")),
        Owner::Other(other) if other.exists(fleet).await? => {
            return Err(foreign(&subject(), &format!("belongs to {other}")));
        }
        // It is ours, or was left behind: nobody else answers for it any more.
        Owner::Own | Owner::Other(_) => {}
    }
    if !fleet.deleted_works.stays(client, &work).await? {
        return Ok(Ensured::Leaving);
    }
    let uid = work.metadata.uid.as_deref().unwrap_or_default();
    let version = work.metadata.resource_version.as_deref();
    let Some(patch) = compare::patch(&work, rendered) else {
        patches.forget(uid);
        return Ok(Ensured::AsRendered);
    };
    if patches.is_repeated(uid, version, &patch) {
        return Ok(Ensured::AsRendered);
    }
    lead(fleet)?;
    let mut guarded = patch.clone();
    guarded["metadata"]["resourceVersion"] = json!(work.metadata.resource_version);
    let api: Api<Head<Work>> = Api::namespaced(client.clone(), &rendered.namespace);
    match merge(&api, &rendered.name, &guarded).await {
        Ok(_) => {
            patches.record(uid.to_owned(), version, &patch);
            // The cache may have shown the deletion before the answer came.
            let namespace = Some(rendered.namespace.as_str());
            let present = fleet.works.get(namespace, &rendered.name);
            if present.is_none_or(|present| present.metadata.uid != work.metadata.uid) {
                patches.forget(uid);
            }
            tracing::debug!(work = %subject(), "updated");
            Ok(Ensured::AsRendered)
        }
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Ensured::Later),
        Err(error) => Err(ApiError::of("update", &subject())(error).into()),
    }
}

/// Returns whether the cluster of an execution namespace is leaving the fleet: its Works are
/// removed, and none are made or changed any more. What they say when they are deleted decides what
/// stays in the member.
pub(super) fn is_leaving(fleet: &Fleet, namespace: &str) -> bool {
    names::cluster_of_execution_namespace(namespace)
        .and_then(|cluster| fleet.clusters.get(None, cluster))
        .is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
}

async fn create(
    fleet: &Fleet,
    client: &Client,
    origin: &Origin,
    rendered: &Rendered,
) -> Result<Ensured, Error> {
    let subject = || format!("work {}/{}", rendered.namespace, rendered.name);
    let work: Work = serde_json::from_value(compare::create(rendered))
        .map_err(kube::Error::SerdeError)
        .map_err(ApiError::of("compose", &subject()))?;
    lead(fleet)?;
    let key = &origin.key;
    fleet
        .unseen_works
        .making(key, &rendered.namespace, &rendered.name);
    let api: Api<Work> = Api::namespaced(client.clone(), &rendered.namespace);
    match api.create(&PostParams::default(), &work).await {
        Ok(_) => return Ok(Ensured::AsRendered),
        Err(error) if is_gone(&error) => return Ok(Ensured::Later),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(ApiError::of("create", &subject())(error).into()),
    }
    // Made a moment ago and not in the cache yet; or made by somebody else.
    let api = Api::namespaced(client.clone(), &rendered.namespace);
    let held = match Head::<Work>::get_opt(&api, &rendered.name).await {
        Ok(held) => held.map(|held| held.metadata).unwrap_or_default(),
        Err(error) => return Err(ApiError::of("read", &subject())(error).into()),
    };
    match other(&held, key) {
        Some(other) => Err(foreign(&subject(), &format!("belongs to {other}"))),
        None => Ok(Ensured::Later),
    }
}

/// Returns the error about a Work that somebody else answers for, or nobody: two resources share
/// the name of their Works.
fn foreign(work: &str, owner: &str) -> Error {
    Error::Refused(format!(
        "{work} {owner}, and is left as it is: the names of works end in a hash that two namespaces may share; rename the resource, or its namespace"
    ))
}

/// Returns the other binding that a Work names, if it names one, whatever its labels say.
fn other(work: &ObjectMeta, key: &BindingKey) -> Option<BindingKey> {
    binding_named(work).filter(|named| named != key)
}

/// Returns what to delete of a Work, and whether its object stays in the member; `None` where the
/// Work is being deleted already.
pub fn doomed(work: &CachedWork, stays: bool) -> Option<(Doomed, bool)> {
    let is_deleted = work.metadata.deletion_timestamp.is_some();
    (!is_deleted).then(|| (Doomed::of(work), stays))
}

/// Deletes Works, each with whether its objects stay in the member; the agents then remove those
/// that do not. Only Works in execution namespaces are anybody's: a copy that lies elsewhere is
/// not.
pub async fn remove(
    fleet: &Fleet,
    client: &Client,
    works: Vec<(Doomed, bool)>,
) -> Result<(), Error> {
    lead(fleet)?;
    let uids = works.iter().filter_map(|(work, _)| work.uid.clone());
    fleet.deleted_works.add(uids);
    let in_members =
        |work: &Doomed| names::cluster_of_execution_namespace(&work.namespace).is_some();
    let removals = works.into_iter().filter(|(work, _)| in_members(work));
    let removals = removals.map(|(work, stays)| async move {
        // A conflict is an error: another Work has the name, which the cache shows in a moment, and
        // which has to be reconciled as well.
        let removed = work.remove(client, stays).await;
        removed.map_err(|error| Error::from(ApiError::of("remove work", &work.name)(error)))
    });
    join_all(removals).await.into_iter().collect()
}

/// Returns the Works of a binding: those that the cache knows, and those that it does not show,
/// such as one that was made a moment ago. A Work that a former process made just before it ended
/// is removed when the cache shows it and its binding is gone.
pub async fn listed(fleet: &Fleet, key: &BindingKey) -> Result<Vec<Doomed>, Error> {
    let unseen = fleet.unseen_works.read(fleet, key).await?;
    let known = fleet.work_index.of(key);
    let unseen = unseen.iter().map(|work| Doomed::named(&work.metadata));
    let known = known.iter().map(|work| Doomed::of(work));
    // Of what is known twice, the API's version is the later one.
    let mut works: Vec<Doomed> = unseen.chain(known).collect();
    let place = |work: &Doomed| (work.namespace.clone(), work.name.clone(), work.uid.clone());
    works.sort_by_key(place);
    works.dedup_by_key(|work| place(work));
    Ok(works)
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation;

    use super::*;
    use crate::fleet::testing::{Bench, key, work};

    #[test]
    fn a_work_is_of_another_binding_only_if_it_names_one() {
        let key = key("web");
        let by = |namespace: &str, name: &str| {
            json!({
                annotation::RESOURCE_BINDING_NAMESPACE: namespace,
                annotation::RESOURCE_BINDING_NAME: name,
            })
        };
        for (annotations, expected) in [
            (by("shop", "web"), false),
            (by("shop", "other"), true),
            (by("other", "web"), true),
            (
                json!({ annotation::CLUSTER_RESOURCE_BINDING_NAME: "web" }),
                true,
            ),
            (json!({}), false),
            (json!(null), false),
        ] {
            let work = serde_json::from_value(json!({ "annotations": annotations })).unwrap();
            assert_eq!(other(&work, &key).is_some(), expected, "{annotations}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn works_are_removed_whatever_a_member_wrote_into_one_of_them_and_whether_seen_or_not() {
        let bench = Bench::followed([("works", work("m1", "Healthy"))]).await;
        let time = "9999-12-31T23:59:59Z";
        let mut odd = work("m2", "Healthy");
        odd["metadata"]["managedFields"] = json!([{"operation": "Update", "time": time}]);
        odd["status"]["conditions"][0]["lastTransitionTime"] = json!(time);
        let key = key("web-deployment");
        bench
            .fleet
            .unseen_works
            .making(&key, "karmada-es-m2", "web");
        bench.api.put("works", odd);
        let found = listed(&bench.fleet, &key).await.unwrap();
        let places: Vec<_> = found.iter().map(|it| &*it.namespace).collect();
        assert_eq!(places, ["karmada-es-m1", "karmada-es-m2"]);
        let found = found.into_iter().map(|work| (work, false)).collect();
        let removed = remove(&bench.fleet, &bench.fleet.client, found).await;
        assert!(removed.is_ok(), "{removed:?}");
        let writes = bench.api.writes().into_iter();
        let deleted = writes.filter(|it| it.0 == http::Method::DELETE);
        assert_eq!(deleted.count(), 2);
        let asked = bench.api.asked().into_iter();
        let lists = asked.filter(|it| it.path.ends_with("/works"));
        assert_eq!(lists.count(), 0, "no list of the works of all clusters");
    }
}
