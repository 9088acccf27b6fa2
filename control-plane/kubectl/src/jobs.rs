//! Jobs that are divided over clusters. A cluster that has a part takes no more of the completions,
//! so that not each cluster that fits takes over the part of one that is drained.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _};
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::completion::{is_divided_job, is_undone};
use muster_control_plane::fleet::works::CachedWork;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::client::get_opt;
use muster_shared::k8s::{Api, Client, Job};
use muster_shared::names;
use serde_json::{Value, json};

/// Number of Jobs that are read at a time.
const AT_ONCE: usize = 8;

/// A divided Job.
pub struct Divided {
    /// Template of the Job.
    pub template: Value,
    /// Works with the parts of the Job.
    pub works: Vec<CachedWork>,
}

/// Divided Jobs by their bindings, without those that cannot be read.
#[derive(Default)]
pub struct Jobs(pub HashMap<BindingKey, Divided>);

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
        let read: Vec<_> = read.collect();
        let read = stream::iter(read).buffer_unordered(AT_ONCE);
        let read: Vec<_> = read.collect().await;
        Self(read.into_iter().flatten().collect())
    }

    /// Returns whether a part of the workload of a binding would run nowhere if the binding said
    /// `after`; `None` if this is not known, because the Job or its Works cannot be read.
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

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::fixtures;

    /// Returns the binding of a Job of which `m1` and `m2` have parts that leave at once, and what
    /// is read of the Job.
    pub fn divided() -> (AnyBinding, Divided) {
        let changes = json!({"spec": {
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "sum"},
            "replicas": 3,
            "clusters": [{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            }},
            "failover": {"cluster": {"purgeMode": "Directly"}},
        }});
        let binding = fixtures::binding("shop", "sum-job", &changes);
        let part = |completions: u64| {
            let spec = json!({"completions": completions, "parallelism": 3});
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec})
        };
        let work = |(cluster, completions): (&str, u64)| -> CachedWork {
            let work = json!({
                "metadata": {"namespace": names::execution_namespace(cluster), "name": "sum"},
                "spec": {"workload": {"manifests": [part(completions)]}},
            });
            fixtures::read(work)
        };
        let read = Divided {
            template: part(40),
            works: [("m1", 27), ("m2", 13)].map(work).into(),
        };
        (Arc::unwrap_or_clone(binding), read)
    }

    #[tokio::test]
    async fn of_many_jobs_a_few_are_read_at_a_time() {
        let bindings = (0..100).map(|number| {
            let name = format!("sum-{number}");
            let changes = json!({ "spec": {
                "resource": { "apiVersion": "batch/v1", "kind": "Job", "name": name },
                "replicas": 1,
                "clusters": [{ "name": "m1", "replicas": 1 }],
                "placement": { "replicaScheduling": { "replicaSchedulingType": "Divided" } },
            } });
            fixtures::binding("shop", &format!("{name}-job"), &changes)
        });
        let bindings: Vec<_> = bindings.collect();
        let [open, all, most] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (asked, peak) = (Arc::clone(&all), Arc::clone(&most));
        let service = service_fn(move |_: Request<Body>| {
            let (open, all, most) = (Arc::clone(&open), Arc::clone(&all), Arc::clone(&most));
            async move {
                all.fetch_add(1, Ordering::SeqCst);
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                open.fetch_sub(1, Ordering::SeqCst);
                let body = Body::from(b"{}".to_vec());
                let answer = Response::builder().status(404).body(body).unwrap();
                Ok::<_, Infallible>(answer)
            }
        });
        let client = Client::new(service, "default");
        let jobs = Jobs::read(&client, &bindings, &["m1".to_owned()]).await;
        assert!(jobs.0.is_empty());
        assert_eq!(asked.load(Ordering::SeqCst), bindings.len());
        let peak = peak.load(Ordering::SeqCst);
        assert!(peak <= AT_ONCE, "{peak} at a time");
    }
}
