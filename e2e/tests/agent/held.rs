//! An agent of which everything but its leases is held up: a poison object, an endless comparison,
//! whatever blocks its thread.

use std::sync::mpsc;

use muster_shared::k8s::{Api, Lease};
use tokio::sync::oneshot;

use crate::agent::bench::{Bench, MEMBER, renewed, until};

/// The group of Karmada's agents, who may hold elections.
const AGENTS: &str = "system:karmada:agents";
/// Lease of the election, as Karmada names it.
const ELECTION: &str = "karmada-agent-m1";
/// How long the rest of the agent is held, in seconds: several lives of either lease.
const HELD: i64 = 6;

/// Waits until a lease was renewed at least [`HELD`] seconds after a moment.
async fn outlives(api: &Api<Lease>, name: &str, since: jiff::Timestamp) {
    until(api, name, "it goes on being renewed", |lease| {
        renewed(lease).is_some_and(|at| at.duration_since(since).as_secs() >= HELD)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_go_on_while_the_rest_of_the_agent_is_held_for_longer_than_their_life() {
    let bench = Bench::start().await;
    crate::agent::survival::grant_karmadactl_role(&bench).await;
    let settings = bench.settings(&[AGENTS], |settings| {
        settings.leader_elect = true;
        settings.leader_elect_lease_duration = "2s".parse().unwrap();
        settings.leader_elect_renew_deadline = "1500ms".parse().unwrap();
        settings.leader_elect_retry_period = "200ms".parse().unwrap();
    });
    let (hold, asked) = oneshot::channel::<()>();
    let (sender, blocked) = oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let ends = shutdown.clone();
    let agent = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async move {
            tokio::spawn(async move {
                asked.await.unwrap();
                sender.send(jiff::Timestamp::now()).unwrap();
                // Blocks the thread, not the task.
                released.recv().unwrap();
            });
            Box::pin(muster_agent::run(settings, ends)).await
        })
    });
    bench.joined().await;
    hold.send(()).unwrap();
    let since = blocked.await.unwrap();
    let leases = |namespace| Api::namespaced(bench.fleet_client.clone(), namespace);
    outlives(&leases("karmada-cluster"), MEMBER, since).await;
    outlives(&leases("karmada-system"), ELECTION, since).await;
    // The rest was held all the while: its last status is from before.
    release.send(()).unwrap();
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    shutdown.cancel();
    tokio::task::spawn_blocking(move || agent.join().unwrap().unwrap())
        .await
        .unwrap();
}
