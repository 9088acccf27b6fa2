//! Fencing: of a workload that must not run twice, no second copy is made before the first one is
//! stopped, whatever becomes of network and processes.

mod asked;
mod scene;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use muster_e2e::harness::observer::View;
use muster_shared::names;
use scene::{
    AFTER, MOVED_AFTER, Scene, fenced, ledger, placed, reason, replicas, running, stand_by,
};

/// Cuts the victim off until the workload runs elsewhere, and lets it come back.
async fn whole_story(scene: &Scene) -> anyhow::Result<()> {
    let cut = Instant::now();
    scene.fleet.cut(&scene.victim)?;
    scene.until_unknown().await?;
    scene
        .until("it is told what is waited for", |view| {
            reason(view, "EvictionPending").as_deref() == Some("WaitingForFence")
        })
        .await?;
    scene.until_stopped().await?;
    // The last renewal was sent up to an interval before the cut.
    let stopped = cut.elapsed();
    anyhow::ensure!(
        stopped + Duration::from_secs(2) > AFTER,
        "stopped after {stopped:?}"
    );
    scene.until_moved().await?;
    let moved = cut.elapsed();
    anyhow::ensure!(
        moved + Duration::from_secs(2) > MOVED_AFTER,
        "moved after {moved:?}"
    );
    let gap = scene.gap()?;
    anyhow::ensure!(gap > Duration::from_secs(1), "{gap:?} between the copies");
    scene.fleet.heal(&scene.victim)?;
    scene.until_one_copy().await?;
    scene.never_two()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_longer_than_the_fence_stops_the_copy_before_another_one_exists() {
    fenced("longer", whole_story).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_shorter_than_the_fence_stops_and_moves_nothing() {
    fenced("shorter", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene.until_unknown().await?;
        scene.fleet.heal(&scene.victim)?;
        let only_there = BTreeSet::from([scene.victim.clone()]);
        let as_before = |view: &View| {
            running(view) == only_there
                && ledger(view, &scene.victim).is_some_and(|it| replicas(&it) == (2, 2))
        };
        scene.stays("it runs on", MOVED_AFTER, as_before).await?;
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_back_before_the_move_runs_its_copy_again() {
    fenced("released", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene.until_stopped().await?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        // Beyond the moment at which it would have moved.
        let one = |view: &View| running(view).len() <= 1;
        scene.stays("it runs on", AFTER, one).await?;
        let placed = placed(&scene.fleet.observer.view);
        anyhow::ensure!(
            placed.as_ref() == Some(&scene.victim),
            "placed in {placed:?}"
        );
        let stopped = ledger(&scene.fleet.observer.view, &scene.victim)
            .and_then(|it| it.metadata.annotations.clone())
            .is_some_and(|it| it.contains_key(names::annotation::STOPPED));
        anyhow::ensure!(!stopped, "it is still marked as stopped");
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_restarted_while_it_is_cut_off_goes_on_counting() {
    fenced("restarted", async |scene: &Scene| {
        let cut = Instant::now();
        scene.fleet.cut(&scene.victim)?;
        scene.until_unknown().await?;
        let agent = &scene.fleet.member(&scene.victim)?.agent;
        agent.kill().await;
        agent.resume();
        scene.until_stopped().await?;
        let stopped = cut.elapsed();
        let latest = AFTER + Duration::from_secs(5) * scene.fleet.patience;
        anyhow::ensure!(stopped < latest, "stopped after {stopped:?}");
        // It must not forget what it has stopped.
        agent.kill().await;
        agent.resume();
        scene.until_moved().await?;
        scene.gap()?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        scene.never_two()
    })
    .await;
}

/// Checks that nothing stops the copy of an agent that is dead, as the description of the field
/// says.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_agent_is_dead_goes_on_and_another_one_is_made_after_the_time() {
    fenced("dead", async |scene: &Scene| {
        let cut = Instant::now();
        let agent = &scene.fleet.member(&scene.victim)?.agent;
        agent.kill().await;
        scene.until_moved().await?;
        let moved = cut.elapsed();
        anyhow::ensure!(
            moved + Duration::from_secs(2) > MOVED_AFTER,
            "moved after {moved:?}"
        );
        anyhow::ensure!(
            running(&scene.fleet.observer.view).len() == 2,
            "the old copy goes on"
        );
        agent.resume();
        scene.until_one_copy().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_that_stands_by_stops_the_copy_when_the_leader_is_dead() {
    fenced("standby", async |scene: &Scene| {
        let standby = stand_by(scene)?;
        scene.runs_on(AFTER + Duration::from_secs(5)).await?;
        scene.fleet.cut(&scene.victim)?;
        scene.fleet.member(&scene.victim)?.agent.kill().await;
        scene.until_stopped().await?;
        scene.until_moved().await?;
        scene.gap()?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        standby.kill().await;
        scene.never_two()
    })
    .await;
}
