//! What it costs to listen to a large fleet, and to hold a large queue of evictions.
//!
//! A real control plane process against an embedded API in which so many clusters renew their leases; some fall silent, and
//! how late that is noticed is measured. Then the eviction queue alone, in this process. Prints figures, judges none:
//! `cargo bench -p muster-e2e --bench rollcall -- --clusters 3500`.

mod common;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::{Budget, Scratch, Table, megabytes, number, until, usage};
use jiff::Timestamp;
use muster_control_plane::eviction::desk::{Desk, Now, Step};
use muster_control_plane::eviction::judge::Switches;
use muster_control_plane::eviction::rate::Rates;
use muster_control_plane::eviction::subject::Subject;
use muster_e2e::apiserver::Running;
use muster_e2e::apiserver::seed::Seeds;
use muster_e2e::harness::process::{become_program, last_lines};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use serde::Deserialize;
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
    /// Evictions that wait.
    #[arg(long, default_value_t = 100_000)]
    evictions: usize,
    /// A muster-control-plane to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = become_program(&arguments) {
        return code;
    }
    let arguments = Arguments::parse();
    // The queue first: memory that was freed before would hide what it takes.
    match queue(arguments.evictions).and_then(|()| heartbeats(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roll call benchmark: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn heartbeats(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("rollcall")?;
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
        "roll call: {} clusters, a heartbeat every {} s, grace {} s",
        arguments.clusters, arguments.interval, arguments.grace
    ));
    listen(&mut table, process, arguments).await?;
    let early = unknown(&clusters).len();
    let none = Budget::AtMost(0.0);
    table.figure(
        "taken for silent before anyone was",
        number(early),
        "",
        none,
    );
    let noticed = fall_silent(&silence, &clusters, arguments).await;
    let noticed = match noticed {
        Ok(noticed) => noticed,
        Err(error) => {
            let lines = last_lines(&scratch.path().join("control-plane.log"), 20).join("\n");
            anyhow::bail!("{error}\n{lines}");
        }
    };
    let mistaken = unknown(&clusters).len() - arguments.silent;
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
    table.print();
    let ended = control_plane.lost();
    anyhow::ensure!(
        ended.is_empty(),
        "the control plane ended by itself: {ended:?}"
    );
    Ok(())
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

/// Renews every lease once in an interval, evenly spread over it; returns when each was renewed last.
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
        let (unknown, now) = (unknown(clusters), Instant::now());
        for (n, noticed) in noticed.iter_mut().enumerate() {
            if unknown.contains(&name(n)) {
                noticed.get_or_insert(now);
            }
        }
        noticed.iter().all(Option::is_some)
    };
    let pause = Duration::from_millis(20);
    let result = until("all silences are noticed", patience, pause, look).await;
    let noticed: Vec<Instant> = noticed.into_iter().flatten().collect();
    result.with_context(|| format!("noticed {} of {}", noticed.len(), arguments.silent))?;
    Ok(noticed)
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

/// The clusters whose condition Ready is Unknown.
fn unknown(clusters: &Seeds) -> HashSet<String> {
    #[derive(Deserialize)]
    struct Seen {
        metadata: Named,
        status: Conditions,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    #[derive(Deserialize)]
    struct Conditions {
        conditions: Vec<Condition>,
    }
    #[derive(Deserialize)]
    struct Condition {
        #[serde(rename = "type")]
        kind: String,
        status: String,
    }
    let is_unknown = |seen: &Seen| {
        let mut conditions = seen.status.conditions.iter();
        conditions.any(|condition| condition.kind == "Ready" && condition.status == "Unknown")
    };
    let all = clusters.all::<Seen>();
    let unknown = all.into_iter().filter(is_unknown);
    unknown.map(|seen| seen.metadata.name).collect()
}

fn lease(cluster: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "karmada-cluster", "name": cluster},
        "spec": {"holderIdentity": cluster, "leaseDurationSeconds": 40, "renewTime": format!("{:.6}", Timestamp::now())},
    })
}

/// Tells an eviction desk of so many workloads on one cluster that fails, and takes them out again.
fn queue(evictions: usize) -> anyhow::Result<()> {
    let mut table = Table::new(format!(
        "eviction queue: {evictions} workloads on one failed cluster of 20"
    ));
    let switches = Switches {
        failover: true,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
    };
    let rates = Rates {
        primary: f64::INFINITY,
        ..Rates::default()
    };
    let mut desk = Desk::new(switches, rates, Now::read());
    for n in 0..20 {
        desk.cluster(&member(n, false)?, Now::read());
    }
    let bindings: Result<Vec<Subject>, serde_json::Error> = (0..evictions).map(binding).collect();
    let bindings = bindings?;
    let own = std::process::id();
    let memory =
        || usage(own).map(|usage| number(usize::try_from(usage.anonymous).unwrap_or(usize::MAX)));

    let empty = memory()?;
    let told = Instant::now();
    for binding in &bindings {
        desk.binding(binding, Now::read());
    }
    desk.open(Now::read());
    let known = memory()?;
    table.figure(
        "telling it of the bindings",
        told.elapsed().as_secs_f64(),
        "s",
        Budget::None,
    );
    table.figure(
        "memory of the index",
        (known - empty) / number(evictions),
        "bytes an item",
        Budget::None,
    );

    let filling = Instant::now();
    desk.cluster(&member(0, true)?, Now::read());
    let filled = filling.elapsed();
    let told = desk.take_news().bindings.len();
    let full = memory()?;
    table.figure("filling the queue", filled.as_secs_f64(), "s", Budget::None);
    table.figure(
        "memory of the queue and its notes",
        (full - known) / number(evictions),
        "bytes an item",
        Budget::None,
    );
    table.figure("notes about bindings", number(told), "", Budget::None);

    // As many as are in flight at a time in the controller are in hand; each errand is dropped, which costs nothing.
    let taking = Instant::now();
    let mut taken = 0;
    let mut now = Now::read();
    while taken < evictions {
        match desk.next(now) {
            Step::Evict(errand) => {
                std::hint::black_box(errand);
                taken += 1;
            }
            Step::Wait(None) => break,
            Step::Wait(Some(at)) => now.tick = now.tick.max(at),
        }
    }
    table.figure("taken out again", number(taken), "", Budget::None);
    table.figure(
        "taken a second",
        number(taken) / taking.elapsed().as_secs_f64(),
        "/s",
        Budget::None,
    );
    table.print();
    Ok(())
}

fn member(number: usize, failed: bool) -> anyhow::Result<Arc<Cluster>> {
    let mut cluster = common::fleet::cluster(&name(number));
    if failed {
        cluster["spec"]["taints"] =
            json!([{"key": "down", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    }
    Ok(Arc::new(serde_json::from_value(cluster)?))
}

fn binding(number: usize) -> Result<Subject, serde_json::Error> {
    let binding: ResourceBinding = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": format!("web-{number}-deployment"), "resourceVersion": "1"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": format!("web-{number}")},
            "replicas": 2, "clusters": [{"name": "member-0", "replicas": 2}], "placement": {},
        },
    }))?;
    Ok(Arc::new(binding).into())
}
