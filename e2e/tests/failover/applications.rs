//! Applications that fail in clusters that are well, from their pods or their own status to the
//! removal of the old copy.

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::test_bed::{awaited, eventually};
use muster_e2e::sandbox::story::{Failure, Story};
use muster_shared::api::binding::{ResourceBinding, ResourceHealth};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, Client, Node, Pod};
use muster_shared::names;
use serde_json::json;

use crate::failover::support::{Setting, scenario};
use crate::support::kubectl;

/// The worked example of Karmada 1.12's application failover, with a shorter toleration.
const NGINX: &str = r"
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: nginx-propagation
  namespace: default
spec:
  failover:
    application:
      decisionConditions:
        tolerationSeconds: 3
      purgeMode: Never
  propagateDeps: true
  resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      name: nginx
  placement:
    clusterAffinity:
      clusterNames: [member1, member2, member3]
    spreadConstraints:
      - maxGroups: 1
        minGroups: 1
        spreadByField: cluster
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx
  namespace: default
  labels:
    app: nginx
spec:
  replicas: 2
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
        - image: nginx
          name: nginx
";

#[tokio::test(flavor = "multi_thread")]
async fn an_application_whose_pods_fail_moves_and_with_purge_mode_never_its_old_copy_stays() {
    scenario(Setting::named("nginx"), async |story: &Story| {
        let fleet = story.fleet();
        fleet.apply(NGINX).await?;
        let bindings: Api<ResourceBinding> =
            Api::namespaced(fleet.api.watch_client.clone(), "default");
        let healthy_in = |cluster: Option<&str>| {
            let cluster = cluster.map(str::to_owned);
            move |binding: Option<&ResourceBinding>| {
                let Some(binding) = binding else { return false };
                let [target] = &binding.spec.clusters[..] else {
                    return false;
                };
                let is_other = cluster.as_ref().is_none_or(|old| target.name != *old);
                is_other && health(binding, &target.name) == Some(&ResourceHealth::Healthy)
            }
        };
        let name = "nginx-deployment";
        let running = awaited(&bindings, name, "it is healthy", healthy_in(None)).await?;
        let running = running.context("the binding is there")?;
        let old = running.spec.clusters[0].name.clone();
        let member = fleet.member(&old)?.api.client.clone();
        let nodes: Api<Node> = Api::all(member.clone());
        for node in nodes
            .list(&ListParams::default())
            .await
            .context("listing nodes")?
        {
            let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
            nodes
                .patch(&node.name_any(), &PatchParams::default(), &cordon)
                .await
                .context("cordoning a node")?;
        }
        let pods: Api<Pod> = Api::namespaced(member, "default");
        let selected = ListParams::default().labels("app=nginx");
        pods.delete_collection(&DeleteParams::default(), &selected)
            .await
            .context("deleting the pods")?;
        let moved = awaited(
            &bindings,
            name,
            "it is healthy elsewhere",
            healthy_in(Some(&old)),
        );
        let moved = moved.await?.context("the binding is there")?;
        assert_eq!(health(&moved, &old), Some(&ResourceHealth::Unhealthy));
        let [task] = &moved.spec.graceful_eviction_tasks[..] else {
            panic!(
                "expected one task, got {:?}",
                moved.spec.graceful_eviction_tasks
            )
        };
        assert_eq!(task.from_cluster, old);
        assert_eq!(task.reason, "ApplicationFailure");
        assert_eq!(task.suppress_deletion, Some(true));
        assert!(!task.producer.is_empty() && task.creation_timestamp.is_some());
        let works: Api<Work> =
            Api::namespaced(fleet.api.client.clone(), &names::execution_namespace(&old));
        let copy = works
            .get(&names::work("Deployment", "nginx", "default"))
            .await;
        let copy = copy.context("reading the old copy")?;
        assert!(
            copy.metadata.deletion_timestamp.is_none(),
            "the old copy goes"
        );
        Ok(())
    })
    .await;
}

/// Returns the reported health of a workload in a cluster.
fn health<'a>(binding: &'a ResourceBinding, cluster: &str) -> Option<&'a ResourceHealth> {
    let mut reports = binding.status().aggregated_status.iter();
    reports
        .find(|report| report.cluster_name == cluster)?
        .health
        .as_ref()
}

/// A kind whose health a script knows, and a policy that moves it between a member with an agent
/// and one that the control plane manages.
const WIDGETS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
const WIDGET: &str = r"
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata:
  name: widgets
spec:
  target: {apiVersion: example.com/v1, kind: Widget}
  customizations:
    healthInterpretation:
      luaScript: |
        function InterpretHealth(o) return (o.status or {}).phase == 'Running' end
---
apiVersion: example.com/v1
kind: Widget
metadata:
  name: w
  namespace: default
spec: {}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: w
  namespace: default
spec:
  propagateDeps: true
  failover:
    application:
      decisionConditions: {tolerationSeconds: 3}
      purgeMode: Gracefully
  resourceSelectors:
    - {apiVersion: example.com/v1, kind: Widget, name: w}
  placement:
    clusterAffinity:
      clusterNames: [member2, pushed]
    spreadConstraints:
      - {maxGroups: 1, minGroups: 1, spreadByField: cluster}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_that_a_script_finds_unhealthy_moves_to_or_from_a_member_that_is_pushed_to()
 {
    scenario(Setting::named("widgets"), async |story: &Story| {
        let fleet = story.fleet();
        let member3 = fleet.member("member3")?;
        leave(story, "member3").await?;
        let member = member3.api.kubeconfig.display();
        let member = format!("--member-kubeconfig={member}");
        let join = ["join", "pushed", &member, "--rights=everything"];
        let joined = kubectl::answer(&fleet.api.kubeconfig, &join).await;
        joined.context("joining")?;
        let apis = [
            ("member2", &fleet.member("member2")?.api.watch_client),
            ("pushed", &member3.api.watch_client),
        ];
        for client in [&fleet.api.client, apis[0].1, apis[1].1] {
            apply(client, WIDGETS).await?;
            served(client).await;
        }
        fleet.apply(WIDGET).await?;
        let bindings: Api<ResourceBinding> =
            Api::namespaced(fleet.api.watch_client.clone(), "default");
        let placed = awaited(&bindings, "w-widget", "it is placed", |binding| {
            binding.is_some_and(|it| it.spec.clusters.len() == 1)
        });
        let placed = placed.await?.context("the binding is there")?;
        let old = placed.spec.clusters[0].name.clone();
        let (here, there) = if old == apis[0].0 {
            (apis[0], apis[1])
        } else {
            (apis[1], apis[0])
        };
        assert_eq!(old, here.0);
        phase(here.1, "Running").await?;
        let is = |binding: Option<&ResourceBinding>, cluster: &str, expected: ResourceHealth| {
            binding.is_some_and(|it| health(it, cluster) == Some(&expected))
        };
        awaited(&bindings, "w-widget", "it is healthy", |it| {
            is(it, here.0, ResourceHealth::Healthy)
        })
        .await?;
        phase(here.1, "Failed").await?;
        awaited(&bindings, "w-widget", "it is placed in the other", |it| {
            it.is_some_and(|it| matches!(&it.spec.clusters[..], [one] if one.name == there.0))
        })
        .await?;
        // The copy that was created in the other member is not healthy before it says so.
        phase(there.1, "Running").await?;
        awaited(
            &bindings,
            "w-widget",
            "it is healthy there, and the task has ended",
            |it| {
                is(it, there.0, ResourceHealth::Healthy)
                    && it.is_some_and(|it| it.spec.graceful_eviction_tasks.is_empty())
            },
        )
        .await?;
        awaited(&widgets(here.1), "w", "the old copy is gone", |it| {
            it.is_none()
        })
        .await?;
        Ok(())
    })
    .await;
}

/// Removes a member from the fleet, and ends its agent.
async fn leave(story: &Story, name: &str) -> Result<(), Failure> {
    let fleet = story.fleet();
    let clusters: Api<Cluster> = Api::all(fleet.api.watch_client.clone());
    let member = fleet.member(name)?;
    let deleted = clusters.delete(name, &DeleteParams::default()).await;
    deleted.context("deleting the Cluster")?;
    awaited(&clusters, name, "it has left", |it| it.is_none()).await?;
    member.agent.kill().await;
    // The agent may have registered the member again before it ended.
    if clusters
        .get_opt(name)
        .await
        .context("reading the Cluster")?
        .is_some()
    {
        let deleted = clusters.delete(name, &DeleteParams::default()).await;
        deleted.context("deleting the Cluster")?;
        awaited(&clusters, name, "it has left", |it| it.is_none()).await?;
    }
    Ok(())
}

fn widgets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

/// Waits until an API serves Widgets.
async fn served(client: &Client) {
    eventually("the API serves widgets", async || {
        let listed = widgets(client).list(&ListParams::default()).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Lets the copy in a member say this of itself, as soon as it is there.
async fn phase(client: &Client, phase: &str) -> Result<(), Failure> {
    let api = widgets(client);
    awaited(&api, "w", "it is there", |it| it.is_some()).await?;
    let status = Patch::Merge(json!({ "status": { "phase": phase } }));
    let patched = api.patch("w", &PatchParams::default(), &status).await;
    patched.context("writing the phase")?;
    Ok(())
}
