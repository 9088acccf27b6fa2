//! Writes the binding of a template: made once, with its placement where that can be decided, and brought in line afterwards.

use std::time::Duration;

use kube::api::{Api, Patch, PostParams};
use muster_shared::queue::Next;
use serde_json::Value;

use super::build::Wanted;
use super::controller::{Detector, Error, SOON};
use super::template::TemplateKey;
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::scheduler::FirstPlacement;

impl Detector {
    pub(super) async fn write<B: Kept>(
        &self,
        key: &TemplateKey,
        wanted: &Wanted<'_>,
        changed: bool,
    ) -> Result<Next, Error> {
        let binding = BindingKey {
            namespace: key.namespace.clone(),
            name: wanted.name(),
        };
        let api = B::api(&self.fleet.client, &binding);
        let Some(held) = B::cache(&self.fleet).get(binding.namespace.as_deref(), &binding.name)
        else {
            return self
                .create(
                    &api,
                    key,
                    &binding,
                    wanted.create(|spec| self.first.as_ref()?.of(spec)),
                )
                .await;
        };
        if held.meta().deletion_timestamp.is_some() {
            // It is made again when it is gone; its disappearance is heard of.
            return Ok(Next::After(Duration::from_secs(5)));
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
                Ok(Next::After(SOON))
            }
            Err(error) => Err(Error::api("update", &binding)(error)),
        }
    }

    async fn create<B: Kept>(
        &self,
        api: &Api<B>,
        template: &TemplateKey,
        key: &BindingKey,
        object: Value,
    ) -> Result<Next, Error> {
        // Noted before the request, so that the event of the new binding finds it, however early it comes.
        if !self.memory().arriving.insert(template.clone()) {
            return Ok(Next::After(SOON));
        }
        let binding: B = serde_json::from_value(object)
            .map_err(|error| Error::api("compose", key)(kube::Error::SerdeError(error)))?;
        let answer = api.create(&PostParams::default(), &binding).await;
        if answer.is_err() {
            self.memory().arriving.remove(template);
        }
        match answer {
            Ok(created) => {
                if !created.spec().clusters.is_empty() {
                    FirstPlacement::tell(&self.fleet, &created);
                }
                Ok(Next::Done)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Next::After(SOON)),
            Err(error) => Err(Error::api("create", key)(error)),
        }
    }
}
