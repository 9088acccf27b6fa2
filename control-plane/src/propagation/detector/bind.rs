//! Writes the binding of a template: created with its placement if that can be decided, and updated
//! afterwards.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, PostParams};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::api::work::Work;
use muster_shared::queue::Next;
use muster_shared::watch::{Doubt, Presence};
use muster_shared::{client, names};
use serde_json::json;

use super::build::{self, Wanted};
use super::controller::Detector;
use super::error::Error;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::template::TemplateKey;
use crate::fleet::write::Written;
use crate::scheduler::controller::InitialPlacement;

/// How long to wait for a binding that is going away; its disappearance is seen earlier.
const LEAVING: Duration = Duration::from_secs(5);

impl Detector {
    pub(super) async fn write(
        &self,
        key: &TemplateKey,
        wanted: &Wanted<'_>,
        changed: bool,
    ) -> Result<Next, Error> {
        let binding = BindingKey {
            namespace: key.namespace.clone(),
            name: wanted.name().to_owned(),
        };
        let held = match self.fleet.bindings.presence(&binding) {
            Presence::There(held) => held,
            Presence::Unknown(Doubt::Unreadable { .. }) => {
                return Err(Error::Unreadable { binding });
            }
            Presence::Gone | Presence::Unknown(_) => {
                let client = self.fleet.work_writer.when_idle().await;
                let held = self.held_by(&binding, wanted.counts_replicas()).await?;
                let made = wanted.create(held, |spec| self.first.as_ref()?.of(&self.fleet, spec));
                let api = binding.api(&client);
                return self.create(&api, key, &binding, made).await;
            }
        };
        if held.metadata.deletion_timestamp.is_some() {
            return Ok(Next::After(LEAVING));
        }
        let Some(patch) = wanted.patch(held.as_ref(), changed)? else {
            return Ok(Next::Done);
        };
        let client = self.fleet.work_writer.when_idle().await;
        match binding.merge(&client, "update", &patch).await? {
            Written::Done(_) => Ok(Next::Done),
            Written::Overtaken | Written::Gone => Ok(Next::Again),
        }
    }

    /// Returns whether there are copies by a binding of this name.
    pub(super) fn has_copies(&self, key: &BindingKey) -> bool {
        let works = self.fleet.work_index.of(key);
        works
            .iter()
            .any(|it| !self.fleet.deleted_works.is_to_go(it))
    }

    /// Returns the clusters in which there are copies by a former binding of this name, which the
    /// new one takes over. `counts` says whether the template has replicas.
    async fn held_by(&self, key: &BindingKey, counts: bool) -> Result<Vec<TargetCluster>, Error> {
        let mut targets = Vec::new();
        for work in &self.fleet.work_index.of(key) {
            // A Work whose deletion came to nothing is a copy again.
            if !self
                .fleet
                .deleted_works
                .stays(&self.fleet.client, work)
                .await?
            {
                continue;
            }
            let lies_in = work.metadata.namespace.as_deref().unwrap_or_default();
            let Some(cluster) = names::cluster_of_execution_namespace(lies_in) else {
                continue;
            };
            let replicas = match work.replicas {
                Some(replicas) => replicas.try_into().unwrap_or_default(),
                None if counts => self.replicas_in(lies_in, &work.name_any()).await?,
                None => 0,
            };
            targets.push(TargetCluster {
                name: cluster.to_owned(),
                replicas,
                ..TargetCluster::default()
            });
        }
        Ok(targets)
    }

    /// Returns the replicas that a Work asks for, of a kind that has another field for them than
    /// `spec.replicas`, which is all that the cache has.
    async fn replicas_in(&self, lies_in: &str, name: &str) -> Result<i32, Error> {
        let works: Api<Work> = Api::namespaced(self.fleet.client.clone(), lies_in);
        let work = client::get_opt(&works, name).await;
        let work = work.map_err(ApiError::of("read work", &name))?;
        let mut manifests = work.into_iter().flat_map(|it| it.spec.workload.manifests);
        let Some(manifest) = manifests.next() else {
            return Ok(0);
        };
        let interpreters = &self.fleet.interpreters;
        let replicas = interpreters.replicas(&json!(manifest));
        let replicas = replicas.map_err(build::Error::from)?;
        Ok(replicas.map_or(0, |it| it.replicas))
    }

    async fn create(
        &self,
        api: &Api<AnyBinding>,
        template: &TemplateKey,
        key: &BindingKey,
        binding: Result<AnyBinding, serde_json::Error>,
    ) -> Result<Next, Error> {
        // Noted before the request, so that the event of the new binding finds it, however early it
        // comes.
        let arriving = self.memory().arriving.begin(template);
        if let Some(wait) = arriving {
            return Ok(Next::After(wait));
        }
        let binding = binding
            .map_err(|error| ApiError::of("compose", key)(kube::Error::SerdeError(error)))?;
        match api.create(&PostParams::default(), &binding).await {
            Ok(created) => {
                if created.applied_placement().is_some() {
                    InitialPlacement::report(&self.fleet, &created);
                }
                Ok(Next::Done)
            }
            // It is there, and the cache lags behind: its arrival brings the template back.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let wait = self.memory().arriving.begin(template);
                Ok(wait.map_or(Next::Again, Next::After))
            }
            Err(error) => {
                self.memory().arriving.end(template);
                Err(ApiError::of("create", key)(error).into())
            }
        }
    }
}
