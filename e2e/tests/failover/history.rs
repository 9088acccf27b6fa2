//! The record of a failover, whoever leads while it goes on.

use std::collections::BTreeSet;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use muster_e2e::harness::test_bed::awaited;
use muster_e2e::sandbox::expect::Verdict;
use muster_e2e::sandbox::picture::Picture;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;
use muster_shared::api::failover_record::{CauseType, Failover, State};
use serde_json::Value;

use super::support::{Setting, scenario as play};
use super::{leaving, the_rest};
use crate::support::kubectl;

/// Runs `kubectl muster history` with these arguments, and returns what it prints.
async fn muster(story: &Story, words: &[&str]) -> anyhow::Result<String> {
    let words = [&["history"], words].concat();
    kubectl::answer(&story.fleet().api.kubeconfig, &words).await
}

/// Returns the one record of the victim. Those of others do not count: on a busy machine others may
/// have been slow for a moment.
async fn record(story: &Story) -> anyhow::Result<Option<Failover>> {
    let api: Api<Failover> = Api::all(story.fleet().api.client.clone());
    let mut all = api.list(&ListParams::default()).await?.items;
    all.retain(|it| it.spec.cluster == VICTIM);
    anyhow::ensure!(all.len() < 2, "more than one record: {all:?}");
    Ok(all.pop())
}

async fn ended_record(story: &Story) -> anyhow::Result<Failover> {
    let name = record(story).await?.context("no record")?.name_any();
    let api: Api<Failover> = Api::all(story.fleet().api.watch_client.clone());
    let is_ended = |it: Option<&Failover>| {
        let status = it.and_then(|it| it.status.as_ref());
        status.is_some_and(|it| it.state == State::Ended)
    };
    let found = awaited(&api, &name, "the failover ends", is_ended).await?;
    found.context("the record is gone")
}

/// Returns the workloads that are leaving the victim or have left it.
fn gone(picture: &Picture) -> BTreeSet<String> {
    let gone = picture.workloads.iter().filter(|(_, it)| {
        let mut placed = it.placed.iter().filter(|it| !it.is_empty());
        it.leaving.contains(VICTIM) || placed.any(|it| !it.contains_key(VICTIM))
    });
    gone.map(|(name, _)| (*name).to_owned()).collect()
}

/// Returns whether both workloads of the victim are leaving it: the first one may have left by
/// then.
fn all_leaving(picture: &Picture) -> Verdict {
    let gone = gone(picture);
    if gone.len() >= 2 {
        Ok(())
    } else {
        Err(format!("{gone:?} are leaving {VICTIM}"))
    }
}

async fn is_complete(story: &Story, moved: &BTreeSet<String>) -> anyhow::Result<()> {
    let record = ended_record(story).await?;
    let status = record.status.clone().context("no status")?;
    let text = format!("{status:?}");
    let names: BTreeSet<String> = status
        .moves
        .iter()
        .map(|it| it.workload.name.clone())
        .collect();
    let counts = status.workloads;
    let times = &status.times;
    let steps = [
        &times.silent_since,
        &times.not_ready,
        &times.tainted,
        &times.first_move,
        &times.last_move,
        &times.healthy,
        &times.recovered,
    ];
    let steps: Vec<_> = steps.into_iter().flatten().map(|it| it.0).collect();
    let all = u32::try_from(names.len()).unwrap_or_default();
    for (what, holds) in [
        ("the cluster", record.spec.cluster == VICTIM),
        (
            "the cause",
            status.cause.kind == CauseType::ClusterUnreachable,
        ),
        ("the policy", status.cause.policies.len() == 1),
        ("those seen to move", moved.is_subset(&names)),
        (
            "all that moved",
            counts.moved == all && counts.affected == all && all > 1,
        ),
        ("all healthy", counts.healthy == all),
        ("none stranded", counts.stranded == 0),
        ("every step", steps.len() == 7 && steps.is_sorted()),
        ("cleaned", times.cleaned.is_some() && times.ended.is_some()),
        ("the durations", status.time_to_healthy.is_some()),
    ] {
        anyhow::ensure!(holds, "{what}: {text}");
    }
    let list = muster(story, &[]).await?;
    anyhow::ensure!(list.contains("ClusterUnreachable"), "{list}");
    let reported = muster(story, &[&record.name_any()]).await?;
    println!("{list}\n{reported}");
    anyhow::ensure!(reported.contains("last heartbeat"), "{reported}");
    let json: Value = serde_json::from_str(&muster(story, &["-o", "json"]).await?)?;
    let all = json.as_array().context("a list")?;
    let is_reported = all.iter().any(|it| it["spec"]["cluster"] == VICTIM);
    anyhow::ensure!(is_reported, "{json}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_is_killed_twice_in_a_failover_leaves_a_complete_record() {
    play(Setting::named("history"), async |story: &Story| {
        story.cut()?;
        let control_plane = &story.fleet().control_plane;
        // After the first write of a binding, and before the record can have it.
        story
            .until("the first workload is leaving", |it| leaving(it, 1))
            .await?;
        control_plane.kill().await;
        control_plane.resume();
        story.until("more are leaving", all_leaving).await?;
        let moved = gone(&Picture::of(&story.fleet().observer.view));
        control_plane.kill().await;
        control_plane.resume();
        story.until_moved().await?;
        the_rest(story).await?;
        is_complete(story, &moved).await?;
        Ok(())
    })
    .await;
}
