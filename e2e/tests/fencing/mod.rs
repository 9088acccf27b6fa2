//! Fencing: of a workload that must not run twice, no second copy is made before the first one is
//! stopped, whatever becomes of network, processes and clocks.

mod asked;
mod scene;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use muster_e2e::harness::observer::View;
use muster_e2e::harness::route::Condition;
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::k8s::{Api, CronJob, Job, Lease, PostParams, Resource as _};
use muster_shared::names;
use scene::{
    AFTER, JOB, MOVED_AFTER, Scene, fenced, fenced_in, ledger, placed, policy, reason, replicas,
    running, stand_by,
};

/// Cuts the victim off until the workload runs elsewhere, and lets it come back.
async fn whole_story(scene: &Scene) -> anyhow::Result<()> {
    let cut = Instant::now();
    scene.fleet.cut(&scene.victim)?;
    scene.until_unknown().await?;
    scene
        .until("it is reported what is waited for", |view| {
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
        scene.stays("it runs on", 2 * AFTER, as_before).await?;
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
async fn a_member_that_is_back_in_the_middle_of_the_move_does_not_start_its_copy() {
    fenced("middle", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene
            .until("it is placed elsewhere", |view| {
                placed(view).is_some_and(|placed| placed != scene.victim)
            })
            .await?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
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

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_of_agent_and_control_plane_change_nothing() {
    fenced("clocks", async |scene: &Scene| {
        let (ahead, behind) = (
            SignedDuration::from_mins(10),
            SignedDuration::from_mins(-10),
        );
        let member = scene.fleet.member(&scene.victim)?;
        member.to_fleet.set_clock(ahead);
        member.to_member.set_clock(ahead);
        scene.fleet.to_api.set_clock(behind);
        scene.runs_on(Duration::from_secs(10)).await?;
        // The clock is wrong in what the agent writes.
        let client = scene.fleet.api.watch_client.clone();
        let leases: Api<Lease> = Api::namespaced(client, names::CLUSTER_NAMESPACE);
        let lease = leases.get(&scene.victim).await?;
        let renewed = lease.spec.and_then(|spec| spec.renew_time);
        let renewed = renewed.context("the lease was renewed")?.0;
        let now = Timestamp::now();
        anyhow::ensure!(
            renewed > now + ahead / 2,
            "renewed at {renewed}, it is {now}"
        );
        whole_story(scene).await
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
        scene.runs_on(2 * AFTER).await?;
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

#[tokio::test(flavor = "multi_thread")]
async fn agents_whose_member_does_not_answer_for_longer_than_the_fence_stop_nothing() {
    fenced("member", async |scene: &Scene| {
        let standby = stand_by(scene)?;
        let member = scene.fleet.member(&scene.victim)?;
        let settled = Duration::from_secs(5);
        scene.runs_on(settled).await?;
        // Its agents renew the lease all the time, and cannot record it.
        member.to_member.set(Condition::Silent);
        scene.runs_on(AFTER + settled).await?;
        member.to_member.heal();
        scene.runs_on(AFTER).await?;
        standby.kill().await;
        scene.never_two()
    })
    .await;
}

/// Returns the pods of a Job that run.
fn active(job: &Job) -> i32 {
    let active = job.status.as_ref().and_then(|status| status.active);
    active.unwrap_or(0)
}

fn suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

fn is_suspended(job: &Job) -> bool {
    suspended(job) && active(job) == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_suspended_before_another_cluster_runs_it() {
    fenced("job", async |scene: &Scene| {
        let fleet = &scene.fleet;
        let policy = policy("batch/v1", "Job", "sum");
        fleet.apply(&format!("{JOB}---{policy}")).await?;
        let victim = &fenced_in(fleet, "sum-job").await?;
        let job = |member: &str| -> anyhow::Result<Api<Job>> {
            let client = fleet.member(member)?.api.watch_client.clone();
            Ok(Api::namespaced(client, "default"))
        };
        let old = job(victim)?;
        let runs = |job: &Job| active(job) == 1;
        until(&old, "sum", "it runs", runs).await;
        fleet.cut(victim)?;
        until(&old, "sum", "it is suspended", is_suspended).await;
        let others = fleet.members.keys().find(|name| *name != victim);
        let new = job(others.context("there is another member")?)?;
        until(&new, "sum", "it runs elsewhere", runs).await;
        anyhow::ensure!(is_suspended(&old.get("sum").await?), "it runs twice");
        fleet.heal(victim)?;
        gone(&old, "sum").await;
        until(&new, "sum", "it runs on", runs).await;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_cron_job_are_suspended_with_it_and_go_on_when_their_cluster_is_back() {
    fenced("cron", async |scene: &Scene| {
        Box::pin(jobs_of_a_cron_job(scene)).await
    })
    .await;
}

async fn jobs_of_a_cron_job(scene: &Scene) -> anyhow::Result<()> {
    let fleet = &scene.fleet;
    fleet.apply(&cron_job()).await?;
    let cluster = fenced_in(fleet, "sum-cronjob").await?;
    let client = fleet.member(&cluster)?.api.watch_client.clone();
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), "default");
    let jobs: Api<Job> = Api::namespaced(client, "default");
    let owner = cron_jobs.get("sum").await?;
    // Nothing plays the controller of CronJobs in the member.
    let mut job = Job::default();
    job.metadata.name = Some("sum-1".to_owned());
    job.metadata.owner_references = owner.controller_owner_ref(&()).map(|it| vec![it]);
    job.spec = owner.spec.and_then(|spec| spec.job_template.spec);
    jobs.create(&PostParams::default(), &job).await?;
    let runs = |job: &Job| !suspended(job) && active(job) == 1;
    until(&jobs, "sum-1", "it runs", runs).await;
    fleet.cut(&cluster)?;
    until(&jobs, "sum-1", "it is suspended", is_suspended).await;
    fleet.heal(&cluster)?;
    until(&jobs, "sum-1", "it goes on", runs).await;
    Ok(())
}

/// Returns a CronJob that starts the Job of [`JOB`].
fn cron_job() -> String {
    let (_, template) = JOB.split_once("spec:\n").unwrap_or_default();
    let lines: Vec<_> = template
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    let template = lines.concat();
    let policy = policy("batch/v1", "CronJob", "sum");
    format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: sum\n  namespace: default\nspec:\n  schedule: \"0 0 1 1 *\"\n  \
         jobTemplate:\n    spec:\n{template}---{policy}"
    )
}
