//! A person's orders: the commands of `kubectl muster` against real members.

use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::conditions::is_deleted;
use kube::runtime::wait::{Condition, await_condition};
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::fleet::Plan;
use muster_e2e::sandbox::expect;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, ConfigMap, Namespace, Node};
use muster_shared::names;
use serde_json::json;

use super::support::{Setting, scenario};
use crate::support::kubectl;

/// Time within which an agent reports the nodes of its member.
const ROOM: Duration = Duration::from_secs(45);

/// Runs a command of `kubectl muster`, and returns what it prints, whatever its exit code.
async fn muster(story: &Story, words: &[&str]) -> String {
    kubectl::reported(&story.fleet().api.kubeconfig, words).await
}

/// Switches failover off.
fn without_failover(plan: &mut Plan) {
    let flags = &mut plan.control_plane;
    flags.retain(|flag| !flag.starts_with("--feature-gates"));
    flags.push("--feature-gates=Failover=false".to_owned());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_with_failover_off_and_the_way_home_leave_no_gaps() {
    let setting = Setting {
        plan: without_failover,
        ..Setting::named("rebalance")
    };
    scenario(setting, async |story: &Story| Ok(rebalance(story).await?)).await;
}

async fn rebalance(story: &Story) -> anyhow::Result<()> {
    let reported = muster(story, &["drain", VICTIM, "--wait", "--timeout=90s"]).await;
    anyhow::ensure!(
        reported.contains(&format!("{VICTIM}: drained")),
        "{reported}"
    );
    let left = reported.split(" of ").nth(1).context("a count")?;
    anyhow::ensure!(!left.starts_with("0 "), "nothing was there: {reported}");
    story.no_gaps()?;
    let reported = muster(story, &["undrain", VICTIM]).await;
    anyhow::ensure!(reported.contains("nothing moves back"), "{reported}");
    // No pod can start at home for now.
    schedule_pods(story, false).await?;
    let web = "deployment/web";
    let preview = muster(story, &["rebalance", web, "-n=default", "--dry-run"]).await;
    let expected = "Deployment default/web: member2 (3) -> member1 (1), member2 (2)";
    anyhow::ensure!(preview.contains(expected), "{preview}");
    let words = ["rebalance", web, "-n=default", "--wait", "--timeout=8s"];
    let reported = muster(story, &words).await;
    anyhow::ensure!(
        reported.contains("0 of 1 moved, 1 being replaced"),
        "{reported}"
    );
    // Three are ready elsewhere, and stay until one is ready at home.
    story.no_gaps()?;
    schedule_pods(story, true).await?;
    // The other workload is drawn home by the room that the agent reports there.
    let mut changes = story.fleet().observer.changes();
    let has_room = async {
        while !muster(story, &["rebalance", "--cluster", VICTIM, "--dry-run"])
            .await
            .contains("shop: ")
        {
            changes.changed().await?;
        }
        anyhow::Ok(())
    };
    let has_room = tokio::time::timeout(ROOM, has_room).await;
    has_room.context("no room is reported at home")??;
    let reported = muster(story, &["rebalance", "--all", "--wait", "--timeout=90s"]).await;
    println!("{reported}");
    story
        .until("all are at home", |picture| {
            expect::unmoved(picture, story.before())
        })
        .await?;
    let reported = muster(story, &["rebalance", "--cluster", VICTIM]).await;
    anyhow::ensure!(!reported.contains("move"), "{reported}");
    Ok(story.no_gaps()?)
}

/// Lets new pods onto the nodes of the member that was drained, or keeps them out.
async fn schedule_pods(story: &Story, allowed: bool) -> anyhow::Result<()> {
    let client = story.fleet().member(VICTIM)?.api.client.clone();
    let nodes: Api<Node> = Api::all(client);
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": !allowed } }));
    for node in nodes.list(&ListParams::default()).await? {
        let name = node.name_any();
        nodes.patch(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// A namespace that is placed like a workload: in the first cluster, or else in the second.
const NAMESPACE: &str = r#"
apiVersion: v1
kind: Namespace
metadata:
  name: archive
  labels:
    namespace.karmada.io/skip-auto-propagation: "true"
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata:
  name: archive
spec:
  resourceSelectors:
    - apiVersion: v1
      kind: Namespace
      name: archive
  placement:
    clusterAffinities:
      - affinityName: first
        clusterNames: [member1]
      - affinityName: second
        clusterNames: [member2]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_leaves_a_drained_cluster_stays_there_with_what_lives_in_it() {
    let setting = Setting::named("drain-namespace");
    scenario(setting, async |story: &Story| {
        Ok(drain_namespace(story).await?)
    })
    .await;
}

async fn drain_namespace(story: &Story) -> anyhow::Result<()> {
    let fleet = story.fleet();
    let [here, there] = [VICTIM, "member2"].map(|member| fleet.member(member));
    let [here, there] = [here?, there?].map(|member| member.api.client.clone());
    let is_there = |it: Option<&Namespace>| {
        it.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none())
    };
    apply(&fleet.api.client, NAMESPACE).await?;
    let namespaces: Api<Namespace> = Api::all(here.clone());
    within("it is here", &namespaces, "archive", is_there).await?;
    // It belongs to somebody in the member, of whom the fleet knows nothing.
    let maps: Api<ConfigMap> = Api::namespaced(here, "archive");
    let notes = serde_json::from_value(json!({"metadata": {"name": "notes"}}))?;
    maps.create(&PostParams::default(), &notes).await?;

    let executed = names::execution_namespace(VICTIM);
    let works: Api<Work> = Api::namespaced(fleet.api.client.clone(), &executed);
    let work = names::work("Namespace", "archive", "");
    let uid = works.get(&work).await?.uid().context("a Work has a UID")?;
    let reported = muster(story, &["drain", VICTIM]).await;
    within("its Work is gone", &works, &work, is_deleted(&uid)).await?;
    within("it is there", &Api::all(there), "archive", is_there).await?;
    let kept = namespaces.get("archive").await?;
    anyhow::ensure!(is_there(Some(&kept)), "it is being deleted: {reported}");
    maps.get("notes").await.context("what lived in it")?;
    Ok(())
}

/// Waits until an object is as it is to be.
async fn within<K>(
    what: &'static str,
    api: &Api<K>,
    name: &str,
    condition: impl Condition<K>,
) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let reached = await_condition(api.clone(), name, condition);
    tokio::time::timeout(ROOM, reached).await.context(what)??;
    Ok(())
}
