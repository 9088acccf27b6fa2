//! What it costs to listen to a large fleet.
//!
//! A real control plane process against an embedded API in which so many clusters renew their
//! leases; some fall silent, and how late that is noticed is measured. Prints figures, judges none:
//! `cargo bench -p muster-e2e --bench lease_monitor -- --clusters 3500`.

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::{Budget, Scratch, Table, megabytes, number, until, usage};
use muster_e2e::apiserver::Running;
use muster_e2e::apiserver::seed::Seeds;
use muster_e2e::harness::heartbeat_fleet::lease;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Seconds after the grace in which a silence is to be noticed.
const LATENESS: f64 = 0.3;

#[derive(Parser)]
struct Arguments {
    /// Clusters that send heartbeats.
    #[arg(long, default_value_t = 3500)]
    clusters: usize,
    /// Clusters that fall silent.
    #[arg(long, default_value_t = 200)]
    silent: usize,
    /// Seconds between two heartbeats of a cluster.
    #[arg(long, default_value_t = 10)]
    interval: u64,
    /// Seconds of silence that make a cluster's condition Unknown.
    #[arg(long, default_value_t = 25)]
    grace: u64,
    /// Seconds over which CPU is measured.
    #[arg(long, default_value_t = 30)]
    window: u64,
    /// A muster-control-plane to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    common::measure("lease monitor", heartbeats)
}

#[tokio::main(worker_threads = 2)]
async fn heartbeats(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("lease_monitor")?;
    let fleet = common::fleet::start().await?;
    let (clusters, leases) = fill(&fleet, arguments.clusters)?;
    let flags = [
        format!("--cluster-monitor-grace-period={}s", arguments.grace),
        "--controllers=cluster,clustertaintpolicy,taintmanager".to_owned(),
        "--feature-gates=Failover=true".to_owned(),
    ];
    let control_plane =
        common::fleet::control_plane(&scratch, &fleet, arguments.binary.as_deref(), flags)?;
    let process = control_plane
        .id()
        .context("the control plane ended at once")?;
    let (silence, falls) = watch::channel(Falls::Beat);
    let interval = Duration::from_secs(arguments.interval);
    let beating = tokio::spawn(beat(leases, arguments.clusters, interval, falls));

    let mut table = Table::new(format!(
        "lease monitor: {} clusters, a heartbeat every {} s, grace {} s",
        arguments.clusters, arguments.interval, arguments.grace
    ));
    listen(&mut table, process, arguments).await?;
    let early = unknown(&clusters);
    let none = Budget::AtMost(0.0);
    table.figure(
        "taken for silent before anyone was",
        number(early),
        "",
        none,
    );
    let noticed = fall_silent(&silence, &clusters, arguments).await;
    let noticed = common::fleet::checked(&scratch, &control_plane, noticed)?;
    let mistaken = unknown(&clusters) - arguments.silent;
    silence.send_replace(Falls::End);
    let last = beating.await??;
    let grace = Duration::from_secs(arguments.grace).as_secs_f64();
    let silences = noticed.iter().zip(&last);
    let mut late: Vec<f64> = silences
        .map(|(noticed, last)| noticed.duration_since(*last).as_secs_f64() - grace)
        .collect();
    late.sort_by(f64::total_cmp);
    let hasty = late.iter().filter(|late| **late < 0.0).count();
    let within = Budget::AtMost(LATENESS);
    table.figure("silences noticed", number(late.len()), "", Budget::None);
    table.figure("noticed before the grace was over", number(hasty), "", none);
    table.figure("lateness, median", late[late.len() / 2], "s", within);
    table.figure("lateness, worst", late[late.len() - 1], "s", within);
    table.figure("others taken for silent", number(mistaken), "", none);
    table.figure("load of the machine", common::load(), "", Budget::None);
    table.print();
    common::fleet::checked(&scratch, &control_plane, Ok(()))
}

/// Makes so many clusters with their namespaces and leases.
fn fill(fleet: &Running, total: usize) -> anyhow::Result<(Seeds, Seeds)> {
    let clusters = fleet.seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
    let leases = fleet.seeds("coordination.k8s.io", "v1", "leases")?;
    let namespaces = fleet.seeds("", "v1", "namespaces")?;
    for name in (0..total).map(name) {
        let namespace = json!({"name": format!("karmada-es-{name}")});
        namespaces.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}))?;
        clusters.put(common::fleet::cluster(&name))?;
        leases.put(lease(&name))?;
    }
    Ok((clusters, leases))
}

/// Who beats.
#[derive(Clone, Copy, Debug)]
enum Falls {
    /// All.
    Beat,
    /// All but so many.
    Silent(usize),
    /// Nobody; the benchmark is over.
    End,
}

/// Renews every lease once in an interval, evenly spread over it; returns when each was renewed
/// last.
async fn beat(
    leases: Seeds,
    total: usize,
    interval: Duration,
    falls: watch::Receiver<Falls>,
) -> anyhow::Result<Vec<Instant>> {
    const SLOTS: u32 = 100;
    let mut last = vec![Instant::now(); total];
    let mut beats = tokio::time::interval(interval / SLOTS);
    for slot in (0..SLOTS as usize).cycle() {
        beats.tick().await;
        let silent = match *falls.borrow() {
            Falls::Beat => 0,
            Falls::Silent(silent) => silent,
            Falls::End => break,
        };
        let turn = (slot..total).step_by(SLOTS as usize);
        for n in turn.filter(|n| *n >= silent) {
            leases.put(lease(&name(n)))?;
            last[n] = Instant::now();
        }
    }
    Ok(last)
}

/// Measures what listening costs while everybody beats.
async fn listen(table: &mut Table, process: u32, arguments: &Arguments) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_secs(arguments.interval + 5)).await;
    let before = usage(process)?;
    let window = Duration::from_secs(arguments.window);
    tokio::time::sleep(window).await;
    let after = usage(process)?;
    let minute = (after.cpu - before.cpu) / window.as_secs_f64() * 60.0;
    let interval = Duration::from_secs(arguments.interval).as_secs_f64();
    let thousands = number(arguments.clusters) * 60.0 / interval / 1000.0;
    let what = format!("CPU a minute (measured over {} s)", arguments.window);
    table.figure(what, minute, "s", Budget::None);
    table.figure(
        "CPU per 1,000 heartbeats",
        minute / thousands,
        "s",
        Budget::None,
    );
    table.figure("memory", megabytes(after.resident), "MB", Budget::None);
    table.figure(
        "of it not the program's file",
        megabytes(after.anonymous),
        "MB",
        Budget::None,
    );
    table.figure("memory, peak", megabytes(after.peak), "MB", Budget::None);
    Ok(())
}

/// Lets clusters fall silent; returns when that was noticed of each.
async fn fall_silent(
    silence: &watch::Sender<Falls>,
    clusters: &Seeds,
    arguments: &Arguments,
) -> anyhow::Result<Vec<Instant>> {
    silence.send_replace(Falls::Silent(arguments.silent));
    let mut seen = 0;
    let mut noticed: Vec<Option<Instant>> = vec![None; arguments.silent];
    let patience = Duration::from_secs(arguments.grace + arguments.interval + 60);
    let look = || {
        let version = clusters.version();
        if std::mem::replace(&mut seen, version) == version {
            return false;
        }
        // One by one: reading all of a large fleet would keep the API busy that is measured here.
        let now = Instant::now();
        let waiting = noticed.iter_mut().enumerate();
        for (n, noticed) in waiting.filter(|(_, noticed)| noticed.is_none()) {
            let cluster = clusters.get("", &name(n)).unwrap_or_default();
            *noticed = is_unknown(&cluster).then_some(now);
        }
        noticed.iter().all(Option::is_some)
    };
    let pause = Duration::from_millis(10);
    let result = until("all silences are noticed", patience, pause, look).await;
    let noticed: Vec<Instant> = noticed.into_iter().flatten().collect();
    result.with_context(|| format!("noticed {} of {}", noticed.len(), arguments.silent))?;
    Ok(noticed)
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

/// Returns how many clusters have the condition Ready Unknown.
fn unknown(clusters: &Seeds) -> usize {
    let all = clusters.all::<Value>();
    all.iter().filter(|cluster| is_unknown(cluster)).count()
}

fn is_unknown(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "Unknown")
}
