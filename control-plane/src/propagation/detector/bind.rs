//! Writes the binding of a template: created with its placement if that can be decided, and updated
//! afterwards.

use std::time::Duration;

use kube::api::{Api, Patch, PostParams};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::names;
use muster_shared::queue::Next;
use muster_shared::watch::{Doubt, Presence};

use super::build::Wanted;
use super::controller::Detector;
use super::error::Error;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, patch_params};
use crate::fleet::template::TemplateKey;
use crate::scheduler::controller::InitialPlacement;

/// How long to wait for a binding that is going away; its disappearance is heard of earlier.
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
        let api = binding.api(&self.fleet.client);
        let held = match self.fleet.bindings.presence(&binding) {
            Presence::There(held) => held,
            Presence::Unknown(Doubt::Unreadable { .. }) => {
                return Err(Error::Unreadable { binding });
            }
            Presence::Gone | Presence::Unknown(_) => {
                let held = self.held_by(&binding);
                let made = wanted.create(held, |spec| self.first.as_ref()?.of(spec));
                return self.create(&api, key, &binding, made).await;
            }
        };
        if held.metadata.deletion_timestamp.is_some() {
            return Ok(Next::After(LEAVING));
        }
        let Some(patch) = wanted.patch(held.as_ref(), changed)? else {
            return Ok(Next::Done);
        };
        match api
            .patch(&binding.name, &patch_params(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(Next::Done),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(Next::Again)
            }
            Err(error) => Err(ApiError::of("update", &binding)(error).into()),
        }
    }

    /// Returns the clusters in which there are copies by a former binding of this name, which the
    /// new one takes over.
    fn held_by(&self, key: &BindingKey) -> Vec<TargetCluster> {
        let works = self.fleet.work_index.of(key);
        let stay = works
            .iter()
            .filter(|it| !self.fleet.deleted_works.is_to_go(it));
        let targets = stay.filter_map(|work| {
            let lies_in = work.metadata.namespace.as_deref()?;
            let cluster = names::cluster_of_execution_namespace(lies_in)?;
            let replicas = work.replicas.and_then(|it| it.try_into().ok());
            Some(TargetCluster {
                name: cluster.to_owned(),
                replicas: replicas.unwrap_or_default(),
                ..TargetCluster::default()
            })
        });
        targets.collect()
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
