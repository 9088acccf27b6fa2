//! `kubectl muster explain`: the scheduler's own steps, told for one binding as it would be decided now.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use kube::api::{Api, ListParams};
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;

use crate::scheduler::{Options, Snapshot, explain};

/// Explains a ResourceBinding.
pub(super) async fn binding(client: Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let api: Api<ResourceBinding> = Api::namespaced(client.clone(), namespace);
    told(
        client,
        api,
        &format!("ResourceBinding {namespace}/{name}"),
        name,
    )
    .await
}

/// Explains a ClusterResourceBinding.
pub(super) async fn cluster_binding(client: Client, name: &str) -> anyhow::Result<String> {
    let api: Api<ClusterResourceBinding> = Api::all(client.clone());
    told(client, api, &format!("ClusterResourceBinding {name}"), name).await
}

async fn told<B: Binding>(
    client: Client,
    api: Api<B>,
    title: &str,
    name: &str,
) -> anyhow::Result<String> {
    let said = |error: kube::Error| anyhow::anyhow!(client::brief(&error));
    let binding = api
        .get(name)
        .await
        .map_err(said)
        .with_context(|| format!("cannot read {title}"))?;
    let clusters: Api<Cluster> = Api::all(client);
    let clusters = clusters
        .list(&ListParams::default())
        .await
        .map_err(said)
        .context("cannot list clusters")?;
    let snapshot = Snapshot::new(clusters.items.into_iter().map(Arc::new));
    Ok(tell(title, &binding, &snapshot))
}

/// The whole answer for one binding.
fn tell(title: &str, binding: &impl Binding, snapshot: &Snapshot) -> String {
    let spec = binding.spec();
    let status = binding.status();
    let mut text = String::new();
    let resource = &spec.resource;
    _ = writeln!(
        text,
        "{title}: {} {}, {} replicas",
        resource.kind, resource.name, spec.replicas
    );
    _ = writeln!(text, "Placed on: {}", placed(binding));
    for task in &spec.graceful_eviction_tasks {
        _ = writeln!(text, "Leaving: {} ({})", task.from_cluster, task.reason);
    }
    for condition in &status.conditions {
        _ = writeln!(
            text,
            "{}={}: {} {}",
            condition.type_, condition.status, condition.reason, condition.message
        );
    }
    let explanations = explain::explain(spec, status, snapshot, &Options::default());
    if explanations.is_empty() {
        _ = writeln!(
            text,
            "\nIt has no placement: no policy has been applied to it yet."
        );
    }
    for explanation in explanations {
        _ = write!(text, "\nIf it were placed now:\n{explanation}");
        if let Some(reason) = &explanation.failure {
            _ = writeln!(text, "Not placed: {reason}");
        }
    }
    text
}

fn placed(binding: &impl Binding) -> String {
    let clusters = &binding.spec().clusters;
    if clusters.is_empty() {
        return "no cluster".to_owned();
    }
    let each = clusters
        .iter()
        .map(|target| format!("{} ({})", target.name, target.replicas));
    each.collect::<Vec<_>>().join(", ")
}
