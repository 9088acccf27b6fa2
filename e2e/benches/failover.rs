//! How fast workloads are bound, scheduled, and placed anew when their cluster fails; and how many
//! API requests that takes.
//!
//! A real control plane process against an embedded API: ready clusters, one policy, so many
//! Deployments that each go to one cluster; then one cluster is tainted NoExecute with the eviction
//! rate lifted. Prints figures, judges none: `cargo bench -p muster-e2e --bench failover --
//! --workloads 10000`.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::fleet::{QUIET, load_deployment, load_policy, quiet};
use common::scrape::{METRICS, free_port, scrape};
use common::{Budget, Scratch, Table, megabytes, number, until, usage};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use muster_e2e::apiserver::Running;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use serde::Deserialize;
use serde_json::{Value, json};

/// Deployments that are created at a time.
const CREATORS: usize = 8;

#[derive(Parser)]
struct Arguments {
    /// Clusters.
    #[arg(long, default_value_t = 10)]
    clusters: usize,
    /// Deployments.
    #[arg(long, default_value_t = 1000)]
    workloads: usize,
    /// Which controllers run.
    #[arg(long, default_value = "*")]
    controllers: String,
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
    common::measure("failover", || run(&Arguments::parse()))
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("failover")?;
    let fleet = common::fleet::start().await?;
    let clusters = fleet.seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
    let names: Vec<String> = (0..arguments.clusters)
        .map(|n| format!("bench-{n}"))
        .collect();
    for name in &names {
        clusters.put(common::fleet::cluster(name))?;
    }
    let port = free_port()?;
    let flags = [
        format!("--controllers={}", arguments.controllers),
        "--feature-gates=Failover=true".to_owned(),
        "--resource-eviction-rate=100000".to_owned(),
        format!("--metrics-bind-address={METRICS}:{port}"),
        // Nobody sends heartbeats here.
        "--cluster-monitor-grace-period=1h".to_owned(),
        "--cluster-startup-grace-period=1h".to_owned(),
    ];
    let control_plane =
        common::fleet::control_plane(&scratch, &fleet, arguments.binary.as_deref(), flags)?;
    let process = control_plane
        .id()
        .context("the control plane ended at once")?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let story = Story {
        fleet: &fleet,
        patience: Duration::from_secs(arguments.timeout),
        workloads: arguments.workloads,
        names,
        process,
        port,
    };
    let mut table = Table::new(format!(
        "failover: {} clusters, {} Deployments",
        arguments.clusters, arguments.workloads
    ));
    let result = async {
        story.schedule(&mut table).await?;
        story.fail_over(&mut table).await
    }
    .await;
    table.print();
    common::fleet::checked(&scratch, &control_plane, result)
}

/// A binding, as far as it says where it is placed.
#[derive(Deserialize)]
struct Placed {
    metadata: Named,
    spec: Targets,
}

#[derive(Deserialize)]
struct Targets {
    #[serde(default)]
    clusters: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

struct Story<'a> {
    fleet: &'a Running,
    patience: Duration,
    workloads: usize,
    names: Vec<String>,
    process: u32,
    port: u16,
}

impl Story<'_> {
    /// Creates policy and Deployments, and waits until every binding has a cluster.
    async fn schedule(&self, table: &mut Table) -> anyhow::Result<()> {
        let client = self.fleet.client().await?;
        let policies: Api<PropagationPolicy> = Api::namespaced(client.clone(), "default");
        let policy = load_policy("load", ("load", "yes"), &self.names);
        let policy = serde_json::from_value(policy)?;
        policies.create(&PostParams::default(), &policy).await?;
        let (before, used) = (self.requests()?, usage(self.process)?);
        let start = Instant::now();
        let next = Arc::new(AtomicUsize::new(0));
        let mut creators = tokio::task::JoinSet::new();
        for _ in 0..CREATORS {
            let (next, total) = (Arc::clone(&next), self.workloads);
            let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
            creators.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= total {
                        return anyhow::Ok(());
                    }
                    let deployment = load_deployment(&format!("load-{n}"), ("load", "yes"));
                    let deployment = serde_json::from_value(deployment)?;
                    api.create(&PostParams::default(), &deployment).await?;
                }
            });
        }
        while let Some(created) = creators.join_next().await {
            created??;
        }
        let created = start.elapsed().as_secs_f64();
        self.wait("all bindings have a cluster", || {
            let placed = self.placements();
            placed.len() >= self.workloads && placed.values().all(Option::is_some)
        })
        .await?;
        let scheduled = start.elapsed().as_secs_f64();
        table.figure(
            "created by the benchmark",
            number(self.workloads) / created,
            "/s",
            Budget::None,
        );
        table.figure(
            "bound and scheduled",
            number(self.workloads) / scheduled,
            "/s",
            Budget::AtLeast(300.0),
        );
        quiet(self.fleet, self.patience).await?;
        let settled = start.elapsed().as_secs_f64() - QUIET.as_secs_f64();
        table.figure(
            "everything written, Works and status included",
            number(self.workloads) / settled,
            "/s",
            Budget::None,
        );
        let grown = usage(self.process)?
            .anonymous
            .saturating_sub(used.anonymous);
        // Of few workloads most is what the first of them brings with it: connections, their
        // buffers.
        let budget = if self.workloads >= 1000 {
            Budget::AtMost(20.0)
        } else {
            Budget::None
        };
        table.figure(
            "memory of a workload",
            megabytes(grown) * 1e3 / number(self.workloads),
            "KB",
            budget,
        );
        self.tell(
            table,
            "per workload",
            number(self.workloads),
            &before,
            used.cpu,
        )
    }

    /// Taints the cluster with most workloads and waits until all of them are placed elsewhere.
    async fn fail_over(&self, table: &mut Table) -> anyhow::Result<()> {
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        for cluster in self.placements().into_values().flatten() {
            *held.entry(cluster).or_default() += 1;
        }
        let (victim, hit) = held
            .iter()
            .max_by_key(|(_, held)| **held)
            .context("nothing is placed")?;
        let (before, used) = (self.requests()?, usage(self.process)?);
        let clusters: Api<Cluster> = Api::all(self.fleet.client().await?);
        let taints: Vec<Value> = ["NoExecute", "NoSchedule"]
            .iter()
            .map(|effect| json!({"key": "bench/down", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}))
            .collect();
        let start = Instant::now();
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        clusters
            .patch(victim, &PatchParams::default(), &patch)
            .await?;
        self.wait("all workloads are placed anew", || {
            self.placements()
                .values()
                .all(|placed| placed.as_ref().is_some_and(|cluster| cluster != victim))
        })
        .await?;
        let moved = start.elapsed().as_secs_f64();
        table.figure(
            format!("placed anew, of {hit} on the failed cluster"),
            number(*hit) / moved,
            "/s",
            Budget::AtLeast(200.0),
        );
        quiet(self.fleet, self.patience).await?;
        self.tell(table, "per move", number(*hit), &before, used.cpu)
    }

    fn tell(
        &self,
        table: &mut Table,
        per: &str,
        items: f64,
        before: &BTreeMap<String, f64>,
        cpu: f64,
    ) -> anyhow::Result<()> {
        for (kind, count) in self.requests()? {
            let more = count - before.get(&kind).copied().unwrap_or_default();
            if more > 0.0 {
                table.figure(
                    format!("requests {per}: {kind}"),
                    more / items,
                    "",
                    Budget::None,
                );
            }
        }
        let used = usage(self.process)?;
        table.figure(
            format!("CPU {per}"),
            (used.cpu - cpu) / items * 1e3,
            "ms",
            Budget::None,
        );
        let budget = if self.workloads == 1000 {
            Budget::AtMost(40.0)
        } else {
            Budget::None
        };
        table.figure(
            "memory of the control plane",
            megabytes(used.resident),
            "MB",
            budget,
        );
        table.figure(
            "of it not the program's file",
            megabytes(used.anonymous),
            "MB",
            Budget::None,
        );
        table.figure("memory, peak", megabytes(used.peak), "MB", Budget::None);
        Ok(())
    }

    /// Returns each binding's cluster, by the name of the binding.
    fn placements(&self) -> BTreeMap<String, Option<String>> {
        let Ok(bindings) = self
            .fleet
            .seeds("work.karmada.io", "v1alpha2", "resourcebindings")
        else {
            return BTreeMap::new();
        };
        bindings
            .all::<Placed>()
            .into_iter()
            .map(|binding| {
                let cluster = binding.spec.clusters.into_iter().next();
                (binding.metadata.name, cluster.map(|cluster| cluster.name))
            })
            .collect()
    }

    async fn wait(&self, what: &str, holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        until(what, self.patience, Duration::from_millis(200), holds).await?;
        Ok(())
    }

    /// Requests so far, by method and code, as the control plane counts them.
    fn requests(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let text = scrape(self.port)?;
        let mut counts = BTreeMap::new();
        for line in text
            .lines()
            .filter(|line| line.starts_with("muster_api_requests_total{"))
        {
            let (labels, value) = line.rsplit_once(' ').unwrap_or((line, "0"));
            let label = |key: &str| {
                let from = labels.split_once(&format!("{key}=\""))?.1;
                from.split_once('"').map(|(value, _)| value)
            };
            let (method, code) = (label("method").unwrap_or("?"), label("code").unwrap_or("?"));
            let value: f64 = value.parse().context("a metric that is no number")?;
            *counts.entry(format!("{method} {code}")).or_default() += value;
        }
        Ok(counts)
    }
}
