//! What it costs to evict from a failed cluster on which very much runs.
//!
//! First the eviction queue alone, in this process; then a real control plane process against an
//! embedded API with so many bindings on one cluster that is tainted with the rate lifted: how long
//! until all are queued, what that takes of memory, and how many leave a second. Prints figures,
//! judges none: `cargo bench -p muster-e2e --bench eviction -- --bindings 100000`.

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::scrape::{METRICS, free_port, scrape, sum};
use common::{Budget, Scratch, Table, megabytes, number, until, usage};
use muster_control_plane::fleet::budget::rate::Rates;
use muster_control_plane::movement::eviction::evictor::{Evictor, Now, Step};
use muster_control_plane::movement::eviction::judge::Switches;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::Running;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::clock::Clock;
use serde_json::{Value, json};

/// Workloads placed anew in a second, at least.
const RATE: f64 = 200.0;
/// Clusters of the fleet, one of which fails.
const CLUSTERS: usize = 20;

#[derive(Parser)]
struct Arguments {
    /// Workloads on the cluster that fails.
    #[arg(long, default_value_t = 100_000)]
    bindings: usize,
    /// How many of them are to leave before the benchmark ends.
    #[arg(long, default_value_t = 10_000)]
    evictions: usize,
    /// Seconds after which the benchmark gives up.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// A muster-control-plane to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    common::measure("eviction", || {
        let arguments = Arguments::parse();
        // The queue first: memory that was freed before would hide what it takes.
        queue(arguments.bindings)?;
        whole(&arguments)
    })
}

/// Measures the whole way, from the taint to the writes.
#[tokio::main(worker_threads = 2)]
async fn whole(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("eviction")?;
    let fleet = common::fleet::start().await?;
    fill(&fleet, arguments.bindings)?;
    let port = free_port()?;
    let flags = [
        "--controllers=taintmanager,scheduler,gracefulEviction".to_owned(),
        "--feature-gates=Failover=true".to_owned(),
        "--resource-eviction-rate=100000".to_owned(),
        format!("--metrics-bind-address={METRICS}:{port}"),
    ];
    let control_plane =
        common::fleet::control_plane(&scratch, &fleet, arguments.binary.as_deref(), flags)?;
    let process = control_plane
        .id()
        .context("the control plane ended at once")?;
    let mut table = Table::new(format!(
        "eviction: {} workloads on one failed cluster of {CLUSTERS}, rate lifted",
        arguments.bindings
    ));
    let story = Story {
        fleet: &fleet,
        process,
        port,
        arguments,
    };
    let result = story.tell(&mut table).await;
    table.figure("load of the machine", common::load(), "", Budget::None);
    table.print();
    common::fleet::checked(&scratch, &control_plane, result)
}

/// Creates the clusters, and the workloads as the scheduler has left them.
fn fill(fleet: &Running, count: usize) -> anyhow::Result<()> {
    let clusters = fleet.seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
    for n in 0..CLUSTERS {
        clusters.put(common::fleet::cluster(&name(n)))?;
    }
    let bindings = fleet.seeds("work.karmada.io", "v1alpha2", "resourcebindings")?;
    for n in 0..count {
        bindings.put(object(n))?;
    }
    Ok(())
}

struct Story<'a> {
    fleet: &'a Running,
    process: u32,
    port: u16,
    arguments: &'a Arguments,
}

impl Story<'_> {
    async fn tell(&self, table: &mut Table) -> anyhow::Result<()> {
        self.settle().await?;
        let before = usage(self.process)?;
        let items = number(self.arguments.bindings);
        table.figure(
            "memory before, all workloads known",
            megabytes(before.resident),
            "MB",
            Budget::None,
        );
        let tainted = Instant::now();
        let clusters = self
            .fleet
            .seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
        let mut victim = clusters.get("", &name(0)).context("the cluster")?;
        victim["spec"]["taints"] =
            json!([{"key": "down", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
        clusters.put(victim)?;
        self.wait("the first leaves", || self.evicted() > 0.0)
            .await?;
        table.figure(
            "taint until the first has left",
            tainted.elapsed().as_secs_f64(),
            "s",
            Budget::None,
        );
        let (begun, first) = (Instant::now(), self.evicted());
        let enough = number(self.arguments.evictions.min(self.arguments.bindings));
        let mut most = before;
        self.wait("enough have left", || {
            if let Ok(now) = usage(self.process)
                && now.anonymous > most.anonymous
            {
                most = now;
            }
            self.evicted() >= enough
        })
        .await?;
        let (gone, seconds) = (self.evicted() - first, begun.elapsed().as_secs_f64());
        table.figure("left meanwhile", gone, "", Budget::None);
        table.figure("left a second", gone / seconds, "/s", Budget::AtLeast(RATE));
        let used = usage(self.process)?;
        table.figure(
            "CPU of the control plane for each",
            (used.cpu - before.cpu) / (gone + first) * 1e3,
            "ms",
            Budget::None,
        );
        #[expect(clippy::cast_precision_loss)] // bytes
        let more = most.anonymous.saturating_sub(before.anonymous) as f64 / items;
        table.figure(
            "memory for each that waits, notes and writes included",
            more,
            "bytes",
            Budget::None,
        );
        table.figure(
            "memory at most",
            megabytes(most.resident),
            "MB",
            Budget::None,
        );
        Ok(())
    }

    fn evicted(&self) -> f64 {
        scrape(self.port).map_or(0.0, |text| {
            sum(&text, "eviction_processing_total", "result=\"success\"")
        })
    }

    /// Waits until the control plane knows everything and has nothing to say about it.
    async fn settle(&self) -> anyhow::Result<()> {
        let mut last = (u64::MAX, f64::NAN, Instant::now());
        self.wait("the control plane has come to rest", || {
            let version = self.fleet.store().version();
            let cpu = usage(self.process).map_or(f64::NAN, |usage| usage.cpu);
            // Rest is less than a twentieth of a core.
            if version != last.0 || cpu - last.1 > 0.15 || last.1.is_nan() {
                last = (version, cpu, Instant::now());
            }
            last.2.elapsed() >= Duration::from_secs(3)
        })
        .await
    }

    async fn wait(&self, what: &str, holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        let patience = Duration::from_secs(self.arguments.timeout);
        until(what, patience, Duration::from_millis(50), holds).await?;
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

/// Returns a binding for which the scheduler has nothing to do.
fn object(number: usize) -> Value {
    let placement = json!({
        "clusterAffinity": {},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        },
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    });
    let text = serde_json::to_string(&placement).unwrap_or_default();
    let name = format!("web-{number}");
    let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name});
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "namespace": "default", "name": format!("{name}-deployment"), "generation": 2,
            "annotations": {"policy.karmada.io/applied-placement": text},
        },
        "spec": {
            "resource": resource, "replicas": 2, "schedulerName": "default-scheduler",
            "replicaRequirements": {"resourceRequest": {"cpu": "100m", "memory": "128Mi"}},
            "clusters": [{"name": self::name(0), "replicas": 2}], "placement": placement,
        },
        "status": {
            "schedulerObservedGeneration": 2, "lastScheduledTime": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Scheduled", "status": "True", "reason": "Success",
                "message": "Binding has been scheduled successfully.", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// Tells an eviction evictor of so many workloads on one cluster that fails, and takes them out
/// again.
fn queue(evictions: usize) -> anyhow::Result<()> {
    let mut table = Table::new(format!(
        "eviction queue: {evictions} workloads on one failed cluster of {CLUSTERS}"
    ));
    let switches = Switches {
        failover: true,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
        ..Switches::of(&Settings::default())
    };
    let rates = Rates {
        primary: f64::INFINITY,
        ..Rates::default()
    };
    let clock = Clock::default();
    let mut evictor = Evictor::new(switches, rates, Now::by(&clock));
    for n in 0..CLUSTERS {
        evictor.cluster(&member(n, false)?, Now::by(&clock));
    }
    let bindings: Result<Vec<Arc<AnyBinding>>, serde_json::Error> =
        (0..evictions).map(binding).collect();
    let bindings = bindings?;
    let own = std::process::id();
    let memory =
        || usage(own).map(|usage| number(usize::try_from(usage.anonymous).unwrap_or(usize::MAX)));

    let empty = memory()?;
    let told = Instant::now();
    for binding in &bindings {
        evictor.binding(binding, Now::by(&clock));
    }
    evictor.open(Now::by(&clock));
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
    evictor.cluster(&member(0, true)?, Now::by(&clock));
    let filled = filling.elapsed();
    let told = evictor.take_reports().bindings.len();
    let full = memory()?;
    table.figure("filling the queue", filled.as_secs_f64(), "s", Budget::None);
    table.figure(
        "memory of the queue and its notes",
        (full - known) / number(evictions),
        "bytes an item",
        Budget::None,
    );
    table.figure("notes about bindings", number(told), "", Budget::None);

    // None is ever done: all that were taken stay in hand.
    let taking = Instant::now();
    let mut taken = 0;
    let mut now = Now::by(&clock);
    while taken < evictions {
        match evictor.next(now) {
            Step::Evict(eviction) => {
                std::hint::black_box(eviction);
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

fn binding(number: usize) -> Result<Arc<AnyBinding>, serde_json::Error> {
    Ok(Arc::new(serde_json::from_value(object(number))?))
}
