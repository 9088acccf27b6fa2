//! What the whole control plane costs as a fleet grows: memory, rates, a restart, a report, the
//! loss of one cluster and of a tenth of them, an edit that concerns every workload, and the end of
//! many workloads at once.
//!
//! A real control plane process against an embedded API: so many clusters and Deployments, a policy
//! for each cluster that names it and the next one, and agents that are played: they answer each
//! new Work as healthy. Prints a table, one row a size, and draws it where `--svg` names a file;
//! judges nothing: `cargo bench -p muster-e2e --bench scale -- --clusters 10,100 --workloads
//! 1000,10000`.

#[path = "../common/mod.rs"]
mod common;
mod plot;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::fleet::{load_deployment, load_policy, quiet};
use common::{Scratch, megabytes, number, until, usage};
use muster_e2e::apiserver::Running;
use muster_e2e::apiserver::seed::Seeds;
use muster_e2e::harness::process::{Process, last_lines};
use muster_shared::names;
use plot::Curve;
use serde_json::{Value, json};

/// Workloads of the cluster that is lost, where there are as many.
const LOST: usize = 1000;
/// Workloads that are deleted at once, where there are twice as many.
const DELETED: usize = 2000;

#[derive(Parser)]
struct Arguments {
    /// Numbers of clusters.
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    clusters: Vec<usize>,
    /// Numbers of Deployments.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    workloads: Vec<usize>,
    /// Seconds after which each step of a size is given up.
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// A muster-control-plane to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// File that the curves are drawn into, as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Figures of one size.
struct Row {
    clusters: usize,
    workloads: usize,
    /// Deployments a second until all Works exist.
    bound: f64,
    /// Kilobytes a workload that are not the program's file, once all Works are answered.
    memory: f64,
    /// Megabytes in all, then.
    resident: f64,
    /// CPU milliseconds a minute at rest.
    rest: f64,
    /// CPU milliseconds for the report of one cluster.
    report: f64,
    /// Seconds from the start of a new process until a new Deployment has its Work.
    restart: f64,
    loss: Loss,
    /// The loss of a tenth of the clusters.
    region: Loss,
    /// Megabytes after that.
    after: f64,
    /// Works a second that are written anew after an edit that concerns all.
    edited: f64,
    /// Workloads a second whose Works and bindings are gone after many of them were deleted.
    deleted: f64,
}

/// Workloads a second of lost clusters, from their taints on.
struct Loss {
    /// Number of workloads that were there.
    moved: usize,
    /// Placed anew.
    decided: f64,
    /// With their new Works.
    made: f64,
    /// Whose old copies are removed, from the moment on in which the new ones are healthy.
    cleaned: f64,
}

fn main() -> ExitCode {
    common::measure("scale", run)
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    println!(
        "clusters  workloads  bound/s  KB each  RSS MB  idle ms/min  ms/report  restart s  lost  decided/s  new Works/s  cleaned/s  region  decided/s  new Works/s  cleaned/s  RSS MB after  edited/s  deleted/s"
    );
    let mut curves = Vec::new();
    for clusters in &arguments.clusters {
        let mut curve = Curve::new(format!("{clusters} clusters"));
        for workloads in &arguments.workloads {
            let row = size(arguments, *clusters, *workloads).await?;
            println!(
                "{:8}  {:9}  {:7.0}  {:7.1}  {:6.0}  {:11.0}  {:9.2}  {:9.1}  {:4}  {:9.0}  {:11.0}  {:9.0}  {:6}  {:9.0}  {:11.0}  {:9.0}  {:12.0}  {:8.0}  {:9.0}",
                row.clusters,
                row.workloads,
                row.bound,
                row.memory,
                row.resident,
                row.rest,
                row.report,
                row.restart,
                row.loss.moved,
                row.loss.decided,
                row.loss.made,
                row.loss.cleaned,
                row.region.moved,
                row.region.decided,
                row.region.made,
                row.region.cleaned,
                row.after,
                row.edited,
                row.deleted,
            );
            curve.push(
                number(row.workloads),
                [row.resident, row.bound, row.loss.made],
            );
        }
        curves.push(curve);
    }
    println!("load of the machine: {:.1}", common::load());
    if let Some(path) = &arguments.svg {
        let titles = [
            "memory, MB",
            "bound a second",
            "new Works a second after a loss",
        ];
        std::fs::write(path, plot::svg(titles, &curves))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Measures one size with an API and a control plane of its own.
async fn size(arguments: &Arguments, clusters: usize, workloads: usize) -> anyhow::Result<Row> {
    let scratch = Scratch::new("scale")?;
    let fleet = Fleet::start(clusters, workloads, Duration::from_secs(arguments.timeout)).await?;
    let binary = arguments.binary.as_deref();
    let result = fleet.measure(&scratch, binary).await;
    if result.is_err() {
        let lines = last_lines(&scratch.path().join("control-plane.log"), 20).join("\n");
        eprintln!("{lines}");
    }
    result.with_context(|| format!("{clusters} clusters, {workloads} workloads"))
}

/// An API with clusters and policies.
struct Fleet {
    api: Running,
    clusters: Seeds,
    deployments: Seeds,
    bindings: Seeds,
    works: Seeds,
    overrides: Seeds,
    /// Workloads of each cluster.
    groups: Vec<usize>,
    patience: Duration,
}

impl Fleet {
    async fn start(clusters: usize, workloads: usize, patience: Duration) -> anyhow::Result<Self> {
        anyhow::ensure!(clusters >= 2, "--clusters {clusters}: at least 2");
        let api = common::fleet::start().await?;
        let first = LOST.min(workloads / 2);
        let rest = workloads - first;
        let share = |n: usize| rest / (clusters - 1) + usize::from(n < rest % (clusters - 1));
        let groups: Vec<usize> = std::iter::once(first)
            .chain((0..clusters - 1).map(share))
            .collect();
        let fleet = Self {
            clusters: api.seeds("cluster.karmada.io", "v1alpha1", "clusters")?,
            deployments: api.seeds("apps", "v1", "deployments")?,
            bindings: api.seeds("work.karmada.io", "v1alpha2", "resourcebindings")?,
            works: api.seeds("work.karmada.io", "v1alpha1", "works")?,
            overrides: api.seeds("policy.karmada.io", "v1alpha1", "clusteroverridepolicies")?,
            api,
            groups,
            patience,
        };
        let policies = fleet
            .api
            .seeds("policy.karmada.io", "v1alpha1", "propagationpolicies")?;
        let namespaces = fleet.api.seeds("", "v1", "namespaces")?;
        for n in 0..clusters {
            let namespace = json!({"name": names::execution_namespace(&cluster(n))});
            namespaces
                .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}))?;
            fleet.clusters.put(common::fleet::cluster(&cluster(n)))?;
            policies.put(policy(n, clusters))?;
        }
        Ok(fleet)
    }

    async fn measure(&self, scratch: &Scratch, binary: Option<&Path>) -> anyhow::Result<Row> {
        let process = self.control_plane(scratch, binary)?;
        let id = process.id().context("the control plane ended at once")?;
        // The policies are settled before there is anything to place.
        quiet(&self.api, self.patience).await?;
        let empty = usage(id)?.anonymous;
        let start = Instant::now();
        let total = self.fill()?;
        self.wait("every workload has its Work", || self.works.len() >= total)
            .await?;
        let bound = number(total) / start.elapsed().as_secs_f64();
        self.answer_all()?;
        quiet(&self.api, self.patience).await?;
        let (one, target) = (name(0, 0), self.target(&name(0, 0)).context("no target")?);
        let stored = [
            self.deployments.get("default", &one),
            self.binding(&one),
            self.work(&target, &one),
        ];
        let bytes = stored.map(|it| it.unwrap_or_default().to_string().len());
        eprintln!("a workload is stored as {bytes:?} bytes of JSON: template, binding, Work");
        let used = usage(id)?;
        let memory = megabytes(used.anonymous.saturating_sub(empty)) * 1e3 / number(total);
        let (rest, report) = self.listen(id).await?;

        process.kill().await;
        let process = self.control_plane(scratch, binary)?;
        let started = Instant::now();
        self.deployments.put(deployment(0, self.groups[0]))?;
        self.wait("a new workload has its Work", || self.works.len() > total)
            .await?;
        let restart = started.elapsed().as_secs_f64();
        self.answer_all()?;
        quiet(&self.api, self.patience).await?;

        let loss = self.lose(&[0]).await?;
        let region: Vec<usize> = (5..self.groups.len()).step_by(10).collect();
        let region = self.lose(&region).await?;
        let id = process.id().context("the control plane ended")?;
        let after = megabytes(usage(id)?.resident);
        let edited = self.edit().await?;
        let deleted = self.delete().await?;
        Ok(Row {
            clusters: self.groups.len(),
            workloads: total,
            bound,
            memory,
            resident: megabytes(used.resident),
            rest,
            report,
            restart,
            loss,
            region,
            after,
            edited,
            deleted,
        })
    }

    fn control_plane(&self, scratch: &Scratch, binary: Option<&Path>) -> anyhow::Result<Process> {
        let flags = [
            "--feature-gates=Failover=true".to_owned(),
            "--resource-eviction-rate=100000".to_owned(),
            // Nobody sends heartbeats here.
            "--cluster-monitor-grace-period=1h".to_owned(),
            "--cluster-startup-grace-period=1h".to_owned(),
        ];
        common::fleet::control_plane(scratch, &self.api, binary, flags)
    }

    /// Creates the Deployments; returns how many.
    fn fill(&self) -> anyhow::Result<usize> {
        for (group, workloads) in self.groups.iter().enumerate() {
            for n in 0..*workloads {
                self.deployments.put(deployment(group, n))?;
            }
        }
        Ok(self.groups.iter().sum())
    }

    /// Answers every Work that has no answer yet, as an agent does whose objects become healthy.
    fn answer_all(&self) -> anyhow::Result<()> {
        for mut work in self.works.all::<Value>() {
            if work["status"].is_null() {
                work["status"] = answer(&work);
                self.works.put(work)?;
            }
        }
        Ok(())
    }

    /// Returns the CPU milliseconds a minute at rest, and for a report of one cluster.
    async fn listen(&self, process: u32) -> anyhow::Result<(f64, f64)> {
        const WINDOW: Duration = Duration::from_secs(5);
        let before = usage(process)?.cpu;
        tokio::time::sleep(WINDOW).await;
        let rest = (usage(process)?.cpu - before) / WINDOW.as_secs_f64();
        let (before, start) = (usage(process)?.cpu, Instant::now());
        for round in 1..=3 {
            for mut cluster in self.clusters.all::<Value>() {
                let allocated = &mut cluster["status"]["resourceSummary"]["allocated"];
                allocated["cpu"] = json!(format!("{}", 1 + round));
                self.clusters.put(cluster)?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let background = rest * start.elapsed().as_secs_f64();
        let used = usage(process)?.cpu - before - background;
        let reports = number(3 * self.groups.len());
        Ok((rest * 60e3, used.max(0.0) * 1e3 / reports))
    }

    /// Taints clusters, and waits until what was there runs elsewhere. The policies name pairs of
    /// neighbours, of which one is left.
    async fn lose(&self, lost: &[usize]) -> anyhow::Result<Loss> {
        let lost: BTreeSet<String> = lost.iter().map(|it| cluster(*it)).collect();
        let is_lost = |name: &str| self.target(name).is_some_and(|it| lost.contains(&it));
        let mut moving = self.all();
        moving.retain(|name| is_lost(name));
        anyhow::ensure!(!moving.is_empty(), "nothing is placed in {lost:?}");
        let taint = |effect: &str| json!({"key": "bench/down", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
        let rate = |start: Instant| number(moving.len()) / start.elapsed().as_secs_f64();
        let start = Instant::now();
        for name in &lost {
            let mut object = self.clusters.get("", name).context("no cluster")?;
            object["spec"]["taints"] = json!([taint("NoExecute"), taint("NoSchedule")]);
            self.clusters.put(object)?;
        }
        let is_placed = |name: &str| self.target(name).is_some_and(|it| !lost.contains(&it));
        self.each("placed anew", &moving, is_placed).await?;
        let decided = rate(start);
        let is_made = |name: &str| {
            let target = self.target(name);
            target.is_some_and(|target| self.work(&target, name).is_some())
        };
        self.each("given their new Works", &moving, is_made).await?;
        let made = rate(start);
        let start = Instant::now();
        self.answer_all()?;
        // Nobody takes the finalizer off that an agent has on a Work.
        let is_clean = |name: &str| {
            let works = lost.iter().filter_map(|it| self.work(it, name));
            works
                .into_iter()
                .all(|it| !it["metadata"]["deletionTimestamp"].is_null())
        };
        self.each("removed from the lost clusters", &moving, is_clean)
            .await?;
        let cleaned = rate(start);
        quiet(&self.api, self.patience).await?;
        Ok(Loss {
            moved: moving.len(),
            decided,
            made,
            cleaned,
        })
    }

    /// Creates an override policy that selects every Deployment; returns how many Works a second
    /// are as it wants them.
    async fn edit(&self) -> anyhow::Result<f64> {
        let all = self.all();
        let start = Instant::now();
        self.overrides.put(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterOverridePolicy",
            "metadata": {"name": "all"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "overrideRules": [{"overriders": {"annotationsOverrider": [
                    {"operator": "add", "value": {"bench": "edited"}},
                ]}}],
            },
        }))?;
        let is_edited = |name: &str| {
            let work = self.target(name).and_then(|it| self.work(&it, name));
            work.is_some_and(|work| {
                let manifest = &work["spec"]["workload"]["manifests"][0];
                manifest["metadata"]["annotations"]["bench"] == "edited"
            })
        };
        self.each("written anew", &all, is_edited).await?;
        let edited = number(all.len()) / start.elapsed().as_secs_f64();
        quiet(&self.api, self.patience).await?;
        Ok(edited)
    }

    /// Deletes many workloads and, as garbage collection does, their bindings; returns how many a
    /// second are gone.
    async fn delete(&self) -> anyhow::Result<f64> {
        let ends: Vec<String> = self
            .all()
            .into_iter()
            .take(DELETED.min(self.groups.iter().sum::<usize>() / 2))
            .collect();
        let start = Instant::now();
        for name in &ends {
            self.deployments.remove("default", name)?;
            let mut binding = self.binding(name).context("no binding")?;
            binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.bindings.put(binding)?;
        }
        let is_gone = |name: &str| self.binding(name).is_none();
        self.each("gone", &ends, is_gone).await?;
        Ok(number(ends.len()) / start.elapsed().as_secs_f64())
    }

    /// Returns the names of all workloads.
    fn all(&self) -> Vec<String> {
        let groups = self.groups.iter().enumerate();
        groups
            .flat_map(|(group, count)| (0..*count).map(move |n| name(group, n)))
            .collect()
    }

    fn binding(&self, name: &str) -> Option<Value> {
        self.bindings.get("default", &format!("{name}-deployment"))
    }

    /// Returns the first cluster of a workload.
    fn target(&self, name: &str) -> Option<String> {
        let binding = self.binding(name)?;
        let target = binding["spec"]["clusters"][0]["name"].as_str();
        target.map(str::to_owned)
    }

    /// Returns the Work of a workload in a cluster.
    fn work(&self, cluster: &str, name: &str) -> Option<Value> {
        let work = names::work("Deployment", name, "default");
        self.works.get(&names::execution_namespace(cluster), &work)
    }

    /// Waits until each of some workloads is as wanted, and checks none again that was.
    async fn each(
        &self,
        what: &str,
        workloads: &[String],
        holds: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let mut left = workloads.iter().peekable();
        self.wait(&format!("all workloads are {what}"), || {
            while left.next_if(|name| holds(name)).is_some() {}
            left.peek().is_none()
        })
        .await
    }

    /// Waits for something, and says on standard error how long that took.
    async fn wait(&self, what: &str, holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        until(what, self.patience, Duration::from_millis(50), holds).await?;
        eprintln!("{:6.1} s until {what}", start.elapsed().as_secs_f64());
        Ok(())
    }
}

fn cluster(n: usize) -> String {
    format!("bench-{n}")
}

fn name(group: usize, n: usize) -> String {
    format!("load-{group}-{n}")
}

/// Returns the policy of a group, whose workloads go to its own cluster or to the next one.
fn policy(group: usize, clusters: usize) -> Value {
    let names = [cluster(group), cluster((group + 1) % clusters)];
    load_policy(&cluster(group), ("group", &group.to_string()), &names)
}

fn deployment(group: usize, n: usize) -> Value {
    load_deployment(&name(group, n), ("group", &group.to_string()))
}

/// Returns the status that an agent writes once the objects of a Work are healthy.
fn answer(work: &Value) -> Value {
    let name = &work["spec"]["workload"]["manifests"][0]["metadata"]["name"];
    json!({
        "conditions": [{
            "type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "manifestStatuses": [{
            "identifier": {
                "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments",
                "namespace": "default", "name": name,
            },
            "health": "Healthy",
            "status": {
                "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2,
                "generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 1,
            },
        }],
    })
}
