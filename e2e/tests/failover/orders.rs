//! A person's orders: the commands of `kubectl muster` against real members.

use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use muster_e2e::harness::fleet::Plan;
use muster_e2e::sandbox::expect;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;
use muster_shared::k8s::{Api, Node};
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
