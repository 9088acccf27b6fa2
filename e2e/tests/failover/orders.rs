//! A person's orders: the commands of `kubectl muster` against real members.

use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use muster_e2e::sandbox::expect;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;
use muster_shared::k8s::{Api, Node};
use serde_json::json;

use super::support::{Setting, scenario};

/// Time within which an agent reports the nodes of its member.
const ROOM: Duration = Duration::from_secs(45);

/// Runs a command of `kubectl muster`, and returns what it prints, whatever its exit code.
async fn muster(story: &Story, words: &[&str]) -> anyhow::Result<String> {
    let kubeconfig = story.fleet().api.kubeconfig.display().to_string();
    let mut line = vec!["kubectl-muster", "--kubeconfig", kubeconfig.as_str()];
    line.extend(words);
    match muster_kubectl::answer(line).await {
        Ok(text) => Ok(text),
        Err(error) => Ok(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_empties_a_cluster_while_failover_is_off_and_each_copy_waits_for_its_successor() {
    let setting = Setting {
        plan: |plan| {
            plan.control_plane
                .retain(|flag| !flag.starts_with("--feature-gates"));
            plan.control_plane
                .push("--feature-gates=Failover=false".to_owned());
        },
        ..Setting::named("drain-gate-off")
    };
    scenario(setting, async |story: &Story| Ok(drain(story).await?)).await;
}

async fn drain(story: &Story) -> anyhow::Result<()> {
    let preview = muster(story, &["drain", VICTIM, "--dry-run"]).await?;
    println!("{preview}");
    let told = muster(story, &["drain", VICTIM, "--wait", "--timeout=90s"]).await?;
    println!("{told}");
    anyhow::ensure!(told.contains(&format!("{VICTIM}: drained")), "{told}");
    let left = told.split(" of ").nth(1).context("a count")?;
    anyhow::ensure!(!left.starts_with("0 "), "nothing was there: {told}");
    let told = muster(story, &["undrain", VICTIM]).await?;
    anyhow::ensure!(told.contains("nothing moves back"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_comes_home_when_a_person_asks_and_each_copy_waits_for_its_successor() {
    let setting = Setting {
        plan: |plan| {
            plan.control_plane
                .retain(|flag| !flag.starts_with("--feature-gates"));
            plan.control_plane
                .push("--feature-gates=Failover=false".to_owned());
        },
        ..Setting::named("rebalance")
    };
    scenario(setting, async |story: &Story| Ok(rebalance(story).await?)).await;
}

async fn rebalance(story: &Story) -> anyhow::Result<()> {
    let told = muster(story, &["drain", VICTIM, "--wait", "--timeout=90s"]).await?;
    anyhow::ensure!(told.contains(&format!("{VICTIM}: drained")), "{told}");
    let told = muster(story, &["undrain", VICTIM]).await?;
    anyhow::ensure!(told.contains("nothing moves back"), "{told}");
    // No pod can start at home for now.
    schedule_pods(story, false).await?;
    let web = "deployment/web";
    let preview = muster(story, &["rebalance", web, "-n=default", "--dry-run"]).await?;
    let expected = "Deployment default/web: member2 (3) -> member1 (1), member2 (2)";
    anyhow::ensure!(preview.contains(expected), "{preview}");
    let words = ["rebalance", web, "-n=default", "--wait", "--timeout=8s"];
    let told = muster(story, &words).await?;
    anyhow::ensure!(told.contains("0 of 1 moved, 1 being replaced"), "{told}");
    // Three are ready elsewhere, and stay until one is ready at home.
    story.no_gaps()?;
    schedule_pods(story, true).await?;
    // The other workload is drawn home by the room that the agent reports there.
    let mut changes = story.fleet().observer.changes();
    let has_room = async {
        while !muster(story, &["rebalance", "--cluster", VICTIM, "--dry-run"])
            .await?
            .contains("shop: ")
        {
            changes.changed().await?;
        }
        anyhow::Ok(())
    };
    let has_room = tokio::time::timeout(ROOM, has_room).await;
    has_room.context("no room is reported at home")??;
    let told = muster(story, &["rebalance", "--all", "--wait", "--timeout=90s"]).await?;
    println!("{told}");
    story
        .until("all are at home", |picture| {
            expect::unmoved(picture, story.before())
        })
        .await?;
    let told = muster(story, &["rebalance", "--cluster", VICTIM]).await?;
    anyhow::ensure!(!told.contains("move"), "{told}");
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
