//! How light the agent is: memory, time to the first complete status, CPU in quiet and in busy
//! times, by the size of its member.
//!
//! A real agent process over TLS against an embedded API that holds the nodes and pods. Prints
//! figures, judges none: `cargo bench -p muster-e2e --bench agent -- --sizes 5000:100000 --lists
//! paged`. With `--member KUBECONFIG` the member is a Kubernetes API that runs elsewhere and
//! already holds nodes and pods of one of the sizes, each pod asking for 120 millicores; it is only
//! read.

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use common::agent::MEMBER;
use common::{Budget, Scratch, Table, megabytes, number, objects, until, usage};
use muster_e2e::apiserver::{ApiServer, Options, Running};
use muster_e2e::harness::metrics::{METRICS, scrape, sum};
use muster_e2e::harness::process::{free_ports, last_lines};
use muster_shared::quantity::Quantity;
use serde_json::Value;

/// How long the first complete status may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(5);
/// Pods changed in one go, ten times a second: a thousand events a second.
const BURST: usize = 100;

#[derive(Parser)]
struct Arguments {
    /// Members to try, as NODES:PODS.
    #[arg(long, value_delimiter = ',', default_value = "1000:30000,5000:100000,10000:200000", value_parser = size)]
    sizes: Vec<(usize, usize)>,
    /// How lists are served.
    #[arg(long, value_enum, default_value = "both")]
    lists: Lists,
    /// Seconds over which idle CPU is measured, scaled to a minute.
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Pods changed to measure the cost of an event.
    #[arg(long, default_value_t = 5000)]
    events: usize,
    /// Serve JSON only, as an API behind a proxy that knows nothing else might.
    #[arg(long)]
    json: bool,
    /// Kubeconfig of a filled member that runs elsewhere, instead of an embedded one.
    #[arg(long)]
    member: Option<PathBuf>,
    /// A muster-agent to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lists {
    Streamed,
    Paged,
    Both,
}

fn size(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once(':').and_then(|(nodes, pods)| {
        Some((
            nodes.parse().ok().filter(|nodes| *nodes > 0)?,
            pods.parse().ok()?,
        ))
    });
    parsed.ok_or_else(|| format!("{text:?} is not NODES:PODS"))
}

fn main() -> ExitCode {
    common::measure("agent", run)
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let mut curve = Vec::new();
    for &(nodes, pods) in &arguments.sizes {
        for streamed in [true, false] {
            let wanted = match arguments.lists {
                // How a server elsewhere lists is its own affair.
                _ if arguments.member.is_some() => streamed,
                Lists::Streamed => streamed,
                Lists::Paged => !streamed,
                Lists::Both => true,
            };
            if wanted {
                let trial = Trial {
                    nodes,
                    pods,
                    streamed,
                };
                curve.push(trial.run(arguments).await?);
            }
        }
    }
    println!(
        "nodes  pods  lists  load  steady MB  peak MB  first s  idle CPU s/min  CPU s/1,000 changes"
    );
    for point in curve {
        println!("{point}");
    }
    Ok(())
}

/// One member of one size.
#[derive(Clone, Copy)]
struct Trial {
    nodes: usize,
    pods: usize,
    streamed: bool,
}

/// The budgets of the sizes that have one, in megabytes, seconds and CPU-seconds a minute.
struct Budgets {
    steady: Budget,
    peak: Budget,
    first: Budget,
    idle: Budget,
}

impl Trial {
    fn budgets(self) -> Budgets {
        let (steady, peak, first) = match (self.nodes, self.pods) {
            (1000, 30_000) => (Budget::AtMost(20.0), Budget::None, Budget::None),
            (5000, 100_000) => (
                Budget::AtMost(32.0),
                Budget::AtMost(40.0),
                Budget::AtMost(8.0),
            ),
            _ => (Budget::None, Budget::None, Budget::None),
        };
        Budgets {
            steady,
            peak,
            first,
            idle: Budget::AtMost(0.2),
        }
    }

    /// Measures, and gives the trial's line of the curve.
    #[expect(clippy::too_many_lines, reason = "one measurement, step by step")]
    async fn run(self, arguments: &Arguments) -> anyhow::Result<String> {
        let scratch = Scratch::new("agent")?;
        let fleet = common::fleet::start().await?;
        let member = self.member(arguments).await?;
        let budgets = self.budgets();
        let lists = match (&member, self.streamed) {
            (None, _) => "elsewhere",
            (_, true) => "streamed",
            (_, false) => "paged",
        };
        let load = common::load();
        let mut table = Table::new(format!(
            "agent: {} nodes, {} pods, lists {lists}, load average {load}",
            self.nodes, self.pods
        ));

        let started = Instant::now();
        let log = scratch.path().join("agent.log");
        let [port] = free_ports()?;
        let mut flags = vec![format!("--metrics-bind-address={METRICS}:{port}")];
        if let Some(elsewhere) = &arguments.member {
            flags.push(format!("--kubeconfig={}", elsewhere.display()));
        }
        let given = arguments.binary.as_deref();
        let agent = common::agent::start(&scratch, &fleet, member.as_ref(), given, flags)?;
        let process = agent.id().context("the agent ended at once")?;
        let clusters = fleet.seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
        let reported = || {
            clusters
                .get("", MEMBER)
                .is_some_and(|cluster| self.is_complete(&cluster))
        };
        let pause = Duration::from_millis(10);
        if let Err(error) = until("a complete status", PATIENCE, pause, reported).await {
            let lines = last_lines(&log, 20).join("\n");
            let status = clusters.get("", MEMBER).unwrap_or_default();
            anyhow::bail!("{error}\n{lines}\n{}", status["status"]);
        }
        let first = started.elapsed().as_secs_f64();
        let after_list = usage(process)?;
        table.figure("first complete status", first, "s", budgets.first);
        table.figure("CPU until then", after_list.cpu, "s", Budget::None);
        let requests = sum(
            &scrape(port)?,
            "muster_api_requests_total",
            "api=\"member\"",
        );
        table.figure(
            "requests to the member until then",
            requests,
            "",
            Budget::None,
        );

        // The first list leaves work behind: reports, watches of member objects, connections that
        // close.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = usage(process)?;
        tokio::time::sleep(Duration::from_secs(arguments.idle)).await;
        let idle = usage(process)?;
        let quiet = (idle.cpu - before.cpu) / Duration::from_secs(arguments.idle).as_secs_f64();
        table.figure(
            "memory, steady",
            megabytes(idle.resident),
            "MB",
            budgets.steady,
        );
        table.figure(
            "of it not the program's file",
            megabytes(idle.anonymous),
            "MB",
            Budget::None,
        );
        table.figure("memory, peak", megabytes(idle.peak), "MB", budgets.peak);
        let what = format!("CPU of an idle minute (measured over {} s)", arguments.idle);
        table.figure(what, quiet * 60.0, "s", budgets.idle);

        let mut costs = Vec::new();
        for (what, replaced) in [("status of a pod changed", false), ("pod replaced", true)] {
            let Some(member) = &member else { continue };
            let busy = self
                .disturb(member, process, arguments.events, replaced)
                .await?;
            let cost = (busy.cpu - quiet * busy.seconds).max(0.0) / busy.thousands;
            costs.push(format!("{cost:.3}"));
            table.figure(
                format!("CPU per 1,000 events: {what}"),
                cost,
                "s",
                Budget::None,
            );
        }
        let end = usage(process)?;
        table.figure(
            "memory after that",
            megabytes(end.resident),
            "MB",
            budgets.steady,
        );
        table.figure("memory, peak", megabytes(end.peak), "MB", budgets.peak);
        let lost = agent.lost();
        anyhow::ensure!(lost.is_empty(), "the agent ended by itself: {lost:?}");
        table.print();
        Ok(format!(
            "{}  {}  {lists}  {load}  {:.1}  {:.1}  {first:.1}  {:.2}  {}",
            self.nodes,
            self.pods,
            megabytes(end.resident),
            megabytes(end.peak),
            quiet * 60.0,
            costs.join(" or "),
        ))
    }

    /// Starts the embedded member with its nodes and pods; starts none if the member runs
    /// elsewhere.
    async fn member(self, arguments: &Arguments) -> anyhow::Result<Option<Running>> {
        if arguments.member.is_some() {
            return Ok(None);
        }
        let options = Options {
            name: MEMBER.into(),
            watch_list: self.streamed,
            protobuf: !arguments.json,
            ..Options::default()
        };
        let member = ApiServer::start(options).await?;
        objects::fill(&member, self.nodes, self.pods)?;
        Ok(Some(member))
    }

    /// Returns whether the Cluster reports everything about the member, and correctly.
    fn is_complete(self, cluster: &Value) -> bool {
        let status = &cluster["status"];
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let allocated = |resource: &str| {
            let spelled = status["resourceSummary"]["allocated"][resource].as_str();
            spelled.and_then(|spelled| spelled.parse::<Quantity>().ok())
        };
        let amount = |spelled: String| spelled.parse::<Quantity>().ok();
        ready
            && status["kubernetesVersion"].is_string()
            && status["apiEnablements"].is_array()
            && status["nodeSummary"]["totalNum"] == self.nodes
            && allocated("pods") == amount(self.pods.to_string())
            && allocated("cpu") == amount(format!("{}m", self.pods * 120))
    }

    /// Changes so many pods, a thousand a second, and measures what the agent does meanwhile.
    async fn disturb(
        self,
        member: &Running,
        process: u32,
        events: usize,
        replaced: bool,
    ) -> anyhow::Result<Busy> {
        let pods = member.seeds("", "v1", "pods")?;
        let mut beat = tokio::time::interval(Duration::from_millis(100));
        let (before, start) = (usage(process)?, Instant::now());
        let mut said = 0;
        for event in 0..events {
            if said % BURST == 0 {
                beat.tick().await;
            }
            let number = event % self.pods.max(1);
            if replaced {
                let name = format!("app-{number}");
                pods.remove("default", &name)?;
                said += 1;
            }
            pods.put(objects::pod(number, self.nodes, event + 1))?;
            said += 1;
        }
        // Until the last of it has been read and reported.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(Busy {
            cpu: usage(process)?.cpu - before.cpu,
            seconds: start.elapsed().as_secs_f64(),
            thousands: number(said) / 1000.0,
        })
    }
}

/// What a busy time cost.
struct Busy {
    cpu: f64,
    seconds: f64,
    thousands: f64,
}
