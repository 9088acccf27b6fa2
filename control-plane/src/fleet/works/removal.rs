//! Removes Works.

use kube::Client;
use kube::api::Api;
use kube::core::ObjectMeta;
use muster_shared::api::work::Work;
use muster_shared::client::{Head, is_gone};
use muster_shared::write::delete_params;
use serde_json::json;

use super::CachedWork;
use crate::fleet::write::merge;

/// A Work that is to go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doomed {
    /// Namespace of the Work.
    pub namespace: String,
    /// Name of the Work.
    pub name: String,
    /// UID of the Work: another one of the same name is not meant.
    pub uid: Option<String>,
    /// Version of the Work that was decided about.
    version: Option<String>,
    /// Whether its objects stay, as that version says; `None` where that is not known.
    said: Option<bool>,
}

impl Doomed {
    /// Returns a Work as it was decided about.
    pub fn of(work: &CachedWork) -> Self {
        let said = work.preserve_resources_on_deletion.unwrap_or(false);
        Self {
            said: Some(said),
            ..Self::named(&work.metadata)
        }
    }

    /// Returns the Work that has this metadata.
    pub fn named(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            said: None,
        }
    }

    /// Deletes the Work. The agent then removes its objects from the member, or leaves them there
    /// where they are to stay: that is written into the Work before it is deleted. What another
    /// client has said since counts, since the agent may have read it.
    ///
    /// # Errors
    /// Errors of the API; a conflict where another Work has the name by now, or the Work was
    /// changed at the same time.
    pub async fn remove(&self, client: &Client, stays: bool) -> Result<(), kube::Error> {
        let unless_gone = |error: kube::Error| {
            if is_gone(&error) { Ok(()) } else { Err(error) }
        };
        let api: Api<Head<Work>> = Api::namespaced(client.clone(), &self.namespace);
        // Objects that may go may stay as well, where somebody says so meanwhile.
        let mut version = self.version.clone().filter(|_| stays);
        if self.said != Some(stays) {
            let mut patch = json!({ "spec": { "preserveResourcesOnDeletion": stays } });
            if let Some(uid) = &self.uid {
                patch["metadata"]["uid"] = json!(uid);
            }
            if let Some(version) = &self.version {
                patch["metadata"]["resourceVersion"] = json!(version);
            }
            match merge(&api, &self.name, &patch).await {
                Ok(work) => version = work.metadata.resource_version,
                Err(error) => return unless_gone(error),
            }
        }
        let this_one = delete_params(self.uid.clone(), version);
        tracing::info!(
            namespace = self.namespace,
            work = self.name,
            objects_stay = stays,
            "removing a work that is not wanted any more"
        );
        let deleted = api.delete(&self.name, &this_one).await;
        deleted.map_or_else(unless_gone, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{Bench, deleting, work};

    #[tokio::test(start_paused = true)]
    async fn a_work_that_was_deleted_a_moment_ago_says_nothing_else_afterwards() {
        let mut placed = work("m1", "Healthy");
        placed["metadata"]["uid"] = json!("w");
        placed["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
        let bench = Bench::followed([("works", placed.clone())]).await;
        let held = bench.fleet.works.list_in("karmada-es-m1");
        let doomed = Doomed::of(&held[0]);
        // The cache does not show it yet.
        bench.api.put("works", deleting(placed));
        let removed = doomed.remove(&bench.fleet.client, true).await;
        assert!(matches!(removed, Err(kube::Error::Api(status)) if status.is_conflict()));
        let works = bench.api.all("works");
        let said = &works[0]["spec"]["preserveResourcesOnDeletion"];
        assert_eq!(*said, serde_json::Value::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_lagging_cache_says_of_a_work_does_not_decide_what_stays() {
        let mut placed = work("m1", "Healthy");
        placed["metadata"]["uid"] = json!("w");
        placed["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
        placed["spec"]["preserveResourcesOnDeletion"] = json!(true);
        let bench = Bench::followed([("works", placed.clone())]).await;
        let held = bench.fleet.works.list_in("karmada-es-m1");
        let doomed = Doomed::of(&held[0]);
        // The policy was edited a moment ago, and the cache does not show the Work yet that was
        // written for that.
        placed["spec"]["preserveResourcesOnDeletion"] = json!(false);
        bench.api.put("works", placed);
        // It holds storage, which stays in the member whatever the policy says.
        _ = doomed.remove(&bench.fleet.client, true).await;
        let works = bench.api.all("works");
        let is_deleted = !works[0]["metadata"]["deletionTimestamp"].is_null();
        let says = &works[0]["spec"]["preserveResourcesOnDeletion"];
        assert!(
            !is_deleted || *says == json!(true),
            "{says}: the agent deletes the data"
        );
    }
}
