//! How fast one decision of the scheduler is, by fleet size and strategy.
//!
//! A decision is the pure function from a binding and a snapshot; nothing is read or written. The
//! cost of a report is that of taking a cluster's new status into the snapshot and of finding out
//! whom of the bindings that wait it helps. What is counted is processor time, which others on the
//! machine disturb less than the clock. Prints figures, judges none: `cargo bench -p muster-e2e
//! --bench scheduler -- --clusters 100`. How long bindings take through an API is for the benchmark
//! `scale` to say: `cargo bench -p muster-e2e --bench scale -- --clusters 10 --workloads 10000`.

mod common;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::{Budget, Table, number};
use muster_control_plane::scheduler::controller::cluster_change::ClusterChange;
use muster_control_plane::scheduler::controller::waiting::Waiting;
use muster_control_plane::scheduler::controller::waits_for::{Wait, WaitsFor};
use muster_control_plane::scheduler::core::{Options, Snapshot, schedule};
use muster_control_plane::settings::grade_rule::GradeRule;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::cluster::Cluster;
use muster_shared::capacity::default_models;
use serde_json::{Value, json};

/// Microseconds that a decision may take over 100 clusters.
const BUDGET: f64 = 20.0;
/// Microseconds that a report may take, whoever waits.
const REPORT_BUDGET: f64 = 1_000.0;
/// Group versions that a cluster serves, with ten kinds each: a plain cluster with some operators
/// in it.
const GROUPS: usize = 30;

#[derive(Parser)]
struct Arguments {
    /// Sizes of fleets to try.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    clusters: Vec<usize>,
    /// Workloads that wait while clusters report.
    #[arg(long, value_delimiter = ',', default_value = "0,10000")]
    waiting: Vec<usize>,
    /// Clusters that report while workloads wait.
    #[arg(long, default_value_t = 1_000)]
    reporting: usize,
    /// Milliseconds for each figure.
    #[arg(long, default_value_t = 500)]
    time: u64,
}

fn main() -> ExitCode {
    common::measure("scheduler", run)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average: {}", load.trim());
    let time = Duration::from_millis(arguments.time);
    reports(arguments)?;
    for &clusters in &arguments.clusters {
        let budget = if clusters <= 100 {
            Budget::AtMost(BUDGET)
        } else {
            Budget::None
        };
        for graded in [false, true] {
            let capacity = if graded {
                "nodes in 9 grades"
            } else {
                "plain sums"
            };
            let fleet: Result<Vec<_>, _> = (0..clusters).map(|n| cluster(n, graded)).collect();
            let fleet = fleet?;
            let (snapshot, built) = timed(|| Snapshot::new(fleet.iter().cloned()));
            let mut table = Table::new(format!("scheduler: {clusters} clusters, {capacity}"));
            for (name, placement) in strategies(clusters) {
                let fresh = binding(&placement)?;
                let taken = decision(&fresh, &snapshot, time)
                    .with_context(|| format!("{name}, {clusters} clusters"))?;
                row(&mut table, &format!("{name}, new"), taken, budget);
                let mut placed = fresh.clone();
                placed.clusters =
                    schedule(&fresh, &nothing(), &snapshot, &Options::default())?.clusters;
                let taken = decision(&placed, &snapshot, time)?;
                row(&mut table, &format!("{name}, settled"), taken, budget);
                placed.replicas += 7;
                let taken = decision(&placed, &snapshot, time)?;
                row(
                    &mut table,
                    &format!("{name}, 7 replicas more"),
                    taken,
                    budget,
                );
            }
            let mut nowhere = binding(&json!({}))?;
            "Unknown".clone_into(&mut nowhere.resource.kind);
            let taken = decision(&nowhere, &snapshot, time)?;
            row(&mut table, "no cluster fits", taken, budget);
            let ((), put) = timed(|| {
                let mut snapshot = snapshot.clone();
                fleet.iter().cloned().for_each(|it| snapshot.put(it));
            });
            let put = put / number(clusters);
            table.figure("one cluster put anew", put * 1e6, "µs", Budget::None);
            table.figure("snapshot of all clusters", built * 1e6, "µs", Budget::None);
            table.print();
        }
    }
    Ok(())
}

/// Measures what one report costs while so many workloads wait.
fn reports(arguments: &Arguments) -> anyhow::Result<()> {
    for graded in [false, true] {
        let capacity = if graded {
            "nodes in 9 grades"
        } else {
            "plain sums"
        };
        let clusters = arguments.reporting;
        let mut table = Table::new(format!(
            "scheduler: {clusters} clusters that report, {capacity}"
        ));
        let before: Result<Vec<_>, _> = (0..clusters).map(|n| cluster(n, graded)).collect();
        let before = before?;
        // Each has room for a replica or two more.
        let after: Result<Vec<_>, _> = before.iter().map(|cluster| roomier(cluster)).collect();
        let after = after?;
        for &workloads in &arguments.waiting {
            for (what, shapes) in [("of 10 shapes", 10), ("all different", workloads)] {
                let waiting = Waiting::default();
                for number in 0..workloads {
                    let wait = Wait {
                        wish: WaitsFor::Room,
                        lacking: 1_000_000,
                    };
                    waiting.put(&number, Some((&shaped(number % shapes)?, wait)));
                }
                let mut snapshot = Snapshot::new(before.iter().cloned());
                let used = processor_time()?;
                for (old, new) in before.iter().zip(&after) {
                    snapshot.put(Arc::clone(new));
                    let changes = ClusterChange::between(Some(old), Some(new));
                    let changes: Vec<_> = changes.into_iter().collect();
                    black_box(waiting.helped(&changes, GradeRule::Minimums));
                    black_box(waiting.next_round());
                }
                let each = (processor_time()? - used) / number(clusters);
                let what = format!("one report, {workloads} waiting, {what}");
                table.figure(what, each * 1e6, "µs", Budget::AtMost(REPORT_BUDGET));
                if workloads == 0 {
                    break;
                }
            }
        }
        table.print();
    }
    Ok(())
}

/// Returns the cluster with some more free capacity.
fn roomier(cluster: &Cluster) -> anyhow::Result<Arc<Cluster>> {
    let mut object = serde_json::to_value(cluster)?;
    let summary = &mut object["status"]["resourceSummary"];
    summary["allocated"] = json!({"cpu": "1", "memory": "1Gi", "pods": "200"});
    // Indexing would put a null where there is none.
    let counts = summary.get_mut("allocatableModelings");
    if let Some(counts) = counts.and_then(Value::as_array_mut) {
        counts[3]["count"] = json!(7);
    }
    Ok(Arc::new(serde_json::from_value(object)?))
}

/// Returns a workload whose replicas ask for amounts that no other workload asks for.
fn shaped(number: usize) -> anyhow::Result<ResourceBindingSpec> {
    let scheduling =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let affinity = json!({"labelSelector": {"matchLabels": {"tier": "production"}}});
    let mut spec = binding(&json!({"clusterAffinity": affinity, "replicaScheduling": scheduling}))?;
    let requests = json!({"cpu": format!("{}m", 100 + number), "memory": "512Mi"});
    spec.replica_requirements = Some(serde_json::from_value(
        json!({"resourceRequest": requests}),
    )?);
    Ok(spec)
}

fn row(table: &mut Table, what: &str, seconds: f64, budget: Budget) {
    let what = format!("{what} ({:.0}/s)", 1.0 / seconds);
    table.figure(what, seconds * 1e6, "µs", budget);
}

/// Seconds of processor time for one decision.
fn decision(
    spec: &ResourceBindingSpec,
    snapshot: &Snapshot,
    time: Duration,
) -> anyhow::Result<f64> {
    let (options, status) = (Options::default(), nothing());
    // What fits nowhere is a decision, too.
    let decide = || black_box(schedule(black_box(spec), &status, snapshot, &options)).is_ok();
    let mut decisions = 0;
    let (start, used) = (Instant::now(), processor_time()?);
    while start.elapsed() < time {
        for _ in 0..10 {
            decide();
        }
        decisions += 10;
    }
    Ok((processor_time()? - used) / number(decisions))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

/// Seconds that this thread has run, as the kernel's scheduler counts them: to a tick or so, a few
/// milliseconds.
fn processor_time() -> anyhow::Result<f64> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let nanoseconds = text.split_whitespace().next().unwrap_or_default();
    let nanoseconds: f64 = nanoseconds
        .parse()
        .with_context(|| format!("reading {path}"))?;
    Ok(nanoseconds / 1e9)
}

fn nothing() -> ResourceBindingStatus {
    ResourceBindingStatus::default()
}

/// Returns the ways to divide, over a fleet of so many clusters.
fn strategies(clusters: usize) -> Vec<(&'static str, Value)> {
    let divided = |preference: &str, weights: Value| json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference, "weightPreference": weights});
    let weights: Vec<Value> = (0..clusters)
        .map(|n| json!({"targetCluster": {"clusterNames": [name(n)]}, "weight": n % 3 + 1}))
        .collect();
    let dynamic = json!({"dynamicWeight": "AvailableReplicas"});
    let affinity = json!({"labelSelector": {"matchLabels": {"tier": "production"}}});
    let placement = |scheduling: Value, spread: Value| json!({"clusterAffinity": affinity, "spreadConstraints": spread, "replicaScheduling": scheduling});
    let three = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 3}]);
    let regions = json!([
        {"spreadByField": "region", "minGroups": 2, "maxGroups": 3},
        {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 6},
    ]);
    vec![
        (
            "Duplicated",
            placement(json!({"replicaSchedulingType": "Duplicated"}), json!([])),
        ),
        (
            "Duplicated to 3",
            placement(
                json!({"replicaSchedulingType": "Duplicated"}),
                three.clone(),
            ),
        ),
        (
            "static weights",
            placement(
                divided("Weighted", json!({"staticWeightList": weights})),
                json!([]),
            ),
        ),
        (
            "dynamic weights",
            placement(divided("Weighted", dynamic.clone()), json!([])),
        ),
        (
            "dynamic weights, 3",
            placement(divided("Weighted", dynamic.clone()), three.clone()),
        ),
        (
            "Aggregated",
            placement(divided("Aggregated", Value::Null), json!([])),
        ),
        (
            "Aggregated, 3",
            placement(divided("Aggregated", Value::Null), three),
        ),
        (
            "dynamic weights, regions",
            placement(divided("Weighted", dynamic), regions),
        ),
    ]
}

fn binding(placement: &Value) -> anyhow::Result<ResourceBindingSpec> {
    let spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web",
            "uid": "8f1c5a52-6b1e-4b9e-9a0e-0d6f6e1f2a11"},
        "replicas": 20,
        "replicaRequirements": {"resourceRequest": {"cpu": "250m", "memory": "512Mi"}},
        "placement": placement,
    });
    Ok(serde_json::from_value(spec)?)
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

/// Returns a cluster like others: labels, a region, many kinds, some load, and a taint of the mild
/// kind on every tenth.
fn cluster(number: usize, graded: bool) -> anyhow::Result<Arc<Cluster>> {
    let groups: Vec<Value> = (0..GROUPS)
        .map(|group| {
            let kinds: Vec<Value> = (0..10)
                .map(|kind| json!({"name": format!("kind{kind}s"), "kind": format!("Kind{kind}")}))
                .collect();
            json!({"groupVersion": format!("group{group}.example.io/v1"), "resources": kinds})
        })
        .chain([json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]})])
        .collect();
    let taints = if number % 10 == 9 {
        json!([{"key": "maintenance", "effect": "PreferNoSchedule"}])
    } else {
        json!([])
    };
    let cores = 100 + number % 37;
    let mut summary = json!({
        "allocatable": {"cpu": cores.to_string(), "memory": format!("{}Gi", cores * 4), "pods": "1100"},
        "allocated": {"cpu": format!("{}m", cores * 300), "memory": format!("{cores}Gi"), "pods": "300"},
    });
    let mut spec = json!({"syncMode": "Pull", "provider": "example", "region": format!("region-{}", number % 5), "taints": taints});
    if graded {
        let models = default_models();
        let counts: Vec<Value> = models
            .iter()
            .map(|model| json!({"grade": model.grade, "count": (number + 3) % 7}))
            .collect();
        summary["allocatableModelings"] = json!(counts);
        spec["resourceModels"] = serde_json::to_value(models)?;
    }
    let object = json!({
        "metadata": {"name": name(number), "labels": {"tier": "production", "team": format!("team-{}", number % 4)}},
        "spec": spec,
        "status": {"apiEnablements": groups, "resourceSummary": summary},
    });
    Ok(Arc::new(serde_json::from_value(object)?))
}
