//! Jobs that are divided over clusters. A cluster that has a part takes no more of the completions,
//! so that not each cluster that fits takes over the part of one that is drained.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::completion::{is_divided_job, is_undone};
use muster_control_plane::fleet::works::CachedWork;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::client::get_opt;
use muster_shared::k8s::{Api, Client, Job};
use muster_shared::names;
use serde_json::{Value, json};

/// A divided Job.
pub(super) struct Divided {
    /// Its template.
    pub template: Value,
    /// The Works with its parts.
    pub works: Vec<CachedWork>,
}

/// Divided Jobs by their bindings, without those that cannot be read.
#[derive(Default)]
pub(super) struct Jobs(pub HashMap<BindingKey, Divided>);

impl Jobs {
    /// Reads the divided Jobs that are placed in one of some clusters.
    pub async fn read(client: &Client, bindings: &[Arc<AnyBinding>], clusters: &[String]) -> Self {
        let is_there = |spec: &ResourceBindingSpec| {
            let mut clusters = clusters.iter();
            clusters.any(|name| spec.target(name).is_some())
        };
        let specs = bindings.iter().map(|it| (BindingKey::of(it), &it.spec));
        let specs = specs.filter(|(_, spec)| is_divided_job(spec) && is_there(spec));
        let read = specs.map(async |(key, spec)| Some((key, Divided::read(client, spec).await?)));
        Self(join_all(read).await.into_iter().flatten().collect())
    }

    /// Returns whether a part of the workload of a binding would run nowhere if that were so;
    /// `None` if this is not known, because the Job or its Works cannot be read.
    pub fn leaves_undone(&self, binding: &AnyBinding, after: &ResourceBindingSpec) -> Option<bool> {
        if !is_divided_job(after) {
            return Some(false);
        }
        let job = self.0.get(&BindingKey::of(binding))?;
        let reports = &binding.status().aggregated_status;
        Some(is_undone(after, &job.template, &job.works, reports))
    }
}

impl Divided {
    async fn read(client: &Client, spec: &ResourceBindingSpec) -> Option<Self> {
        let resource = &spec.resource;
        let namespace = resource.namespace.as_deref()?;
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let template = json!(jobs.get(&resource.name).await.ok()?);
        let work = names::work(&resource.kind, &resource.name, namespace);
        let targets = spec.clusters.iter().map(|it| &it.name);
        let left = spec.graceful_eviction_tasks.iter();
        let clusters = targets.chain(left.map(|it| &it.from_cluster));
        let works = clusters.map(async |cluster| {
            let lies_in = names::execution_namespace(cluster);
            let works: Api<CachedWork> = Api::namespaced(client.clone(), &lies_in);
            get_opt(&works, &work).await
        });
        let works = try_join_all(works).await.ok()?.into_iter().flatten();
        let stay = works.filter(|it| it.metadata.deletion_timestamp.is_none());
        Some(Self {
            template,
            works: stay.collect(),
        })
    }
}
