//! What outages cost the agent: memory before, during and after each, and how soon everything is as
//! it should be.
//!
//! A real agent process between two embedded APIs, with nodes, pods and Works. First it is started
//! anew beside Works that are applied already; then the fleet's API goes away for a while, then the
//! member's, then both, and each comes back without its history, so that everything is listed
//! again. While they are away pods change, Works change and objects drift. Ends with an error when
//! memory grew from one outage to the next: `cargo bench -p muster-e2e --bench survival -- --works
//! 1000`.

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::agent::MEMBER;
use common::{Budget, Scratch, Table, megabytes, number, objects, until, usage};
use muster_e2e::apiserver::{ApiServer, Forget, Options, Running};
use muster_e2e::harness::metrics::{METRICS, scrape, sum};
use muster_e2e::harness::process::{Process, free_ports, last_lines};
use serde_json::{Value, json};

/// Namespace of the member's Works.
const WORKS: &str = "karmada-es-m1";
/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often states are checked.
const PAUSE: Duration = Duration::from_millis(50);
/// Time in which what an outage leaves behind is done: reports, retries that were waiting,
/// connections that close.
const SETTLING: Duration = Duration::from_secs(12);
/// Works that change, and as many objects that drift, during each outage.
const CHANGED: usize = 50;
/// What memory may grow by from the first outage to the last, in megabytes: the allocator's play,
/// and nothing for each outage. The first one brings what any agent has that wrote something:
/// connections, buffers, code.
const GROWTH: f64 = 3.0;

#[derive(Parser)]
struct Arguments {
    /// Nodes of the member.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Pods of the member.
    #[arg(long, default_value_t = 30_000)]
    pods: usize,
    /// Works, each with a Deployment.
    #[arg(long, default_value_t = 1000)]
    works: usize,
    /// Seconds for which an API is away.
    #[arg(long, default_value_t = 30)]
    away: u64,
    /// A muster-agent to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    common::measure("survival", run)
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("survival")?;
    let scene = Scene::set(arguments).await?;
    let outcome = scene.play(arguments, &scratch).await;
    if outcome.is_err() {
        let lines = last_lines(&scratch.path().join("agent.log"), 30);
        eprintln!("{}", lines.join("\n"));
    }
    outcome
}

/// The two APIs with everything in them.
struct Scene {
    fleet: Running,
    member: Running,
    works: usize,
    nodes: usize,
    pods: usize,
}

impl Scene {
    async fn set(arguments: &Arguments) -> anyhow::Result<Self> {
        let fleet = common::fleet::start().await?;
        let namespaces = fleet.seeds("", "v1", "namespaces")?;
        namespaces
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORKS}}))?;
        let options = Options {
            name: MEMBER.into(),
            ..Options::default()
        };
        let member = ApiServer::start(options).await?;
        let scene = Self {
            fleet,
            member,
            works: arguments.works,
            nodes: arguments.nodes,
            pods: arguments.pods,
        };
        objects::fill(&scene.member, scene.nodes, scene.pods)?;
        for number in 0..scene.works {
            scene.put_work(number, 1)?;
        }
        Ok(scene)
    }

    async fn play(&self, arguments: &Arguments, scratch: &Scratch) -> anyhow::Result<()> {
        let [port] = free_ports()?;
        let flags = |further: &[&str]| {
            let mut flags = vec![
                format!("--metrics-bind-address={METRICS}:{port}"),
                "--leader-elect=false".to_owned(),
                "--log-filter=warn".to_owned(),
            ];
            flags.extend(further.iter().map(|flag| (*flag).to_owned()));
            flags
        };
        let (fleet, member) = (&self.fleet, Some(&self.member));
        let given = arguments.binary.as_deref();

        // Applies everything, as fast as it goes.
        let hasty = flags(&["--cluster-api-qps=0", "--kube-api-qps=0"]);
        let first = common::agent::start(scratch, fleet, member, given, hasty)?;
        let applied = self.compared(port).await?;
        println!("applied for the first time in {applied:.1?}");
        // Not before all is reported: a restart has to find nothing to do.
        tokio::time::sleep(SETTLING).await;
        first.kill().await;
        drop(first);

        let mut table = Table::new(format!(
            "agent restarted beside {} applied Works, {} nodes, {} pods, load average {}",
            self.works,
            self.nodes,
            self.pods,
            common::load()
        ));
        let agent = common::agent::start(scratch, fleet, member, given, flags(&[]))?;
        let compared = self.compared(port).await?;
        let seconds = compared.as_secs_f64();
        table.figure("all Works compared", seconds, "s", Budget::AtMost(5.0));
        let text = scrape(port)?;
        let requests = |labels: &str| sum(&text, "muster_api_requests_total", labels);
        table.figure(
            "requests to the member",
            requests("api=\"member\""),
            "",
            Budget::AtMost(100.0),
        );
        let writes = sum_of_writes(&text);
        table.figure("of them writes of objects", writes, "", Budget::AtMost(0.0));
        table.figure(
            "requests to the fleet",
            requests("api=\"fleet\""),
            "",
            Budget::AtMost(100.0),
        );
        table.print();

        tokio::time::sleep(SETTLING).await;
        let process = agent.id().context("the agent ended")?;
        let start = usage(process)?;
        println!(
            "outage  before MB (anonymous)  peak MB  after MB (anonymous)  all well again after s"
        );
        let away = Duration::from_secs(arguments.away);
        let both = [&self.fleet, &self.member];
        let outages: [(&str, &[&Running]); 4] = [
            ("fleet", &both[..1]),
            ("member", &both[1..]),
            ("both", &both),
            ("both again", &both),
        ];
        let mut anonymous = Vec::new();
        for (revision, (name, servers)) in outages.into_iter().enumerate() {
            let line = self
                .outage(process, servers, away, revision + 2)
                .await
                .with_context(|| format!("outage of {name}"))?;
            anonymous.push(line.after.1);
            println!("{name}  {line}");
        }
        verdict(&agent, megabytes(start.anonymous), &anonymous)
    }

    /// Runs one outage with changes meanwhile, and measures the time from its end until they have
    /// arrived.
    async fn outage(
        &self,
        process: u32,
        servers: &[&Running],
        away: Duration,
        revision: usize,
    ) -> anyhow::Result<Line> {
        forget_peak(process)?;
        let before = usage(process)?;
        for server in servers {
            server.stop();
        }
        let pods = self.member.seeds("", "v1", "pods")?;
        let begun = Instant::now();
        let changed = CHANGED.min(self.works / 2);
        for number in 0..changed {
            self.put_work(number, revision)?;
            self.drift(self.works - 1 - number)?;
        }
        let mut pod = 0;
        while begun.elapsed() < away {
            for _ in 0..100 {
                pods.put(objects::pod(
                    pod % self.pods.max(1),
                    self.nodes,
                    revision * pod,
                ))?;
                pod += 1;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for server in servers {
            server.restart(Forget::History);
        }
        let well = || {
            (0..changed).all(|number| self.replicas(number) == Some(replicas(revision)))
                && (0..changed).all(|number| {
                    let drifted = self.works - 1 - number;
                    self.replicas(drifted) == Some(replicas(1))
                })
        };
        let recovery = until("everything as it should be", PATIENCE, PAUSE, well).await?;
        tokio::time::sleep(SETTLING).await;
        let after = usage(process)?;
        Ok(Line {
            before: (megabytes(before.resident), megabytes(before.anonymous)),
            peak: megabytes(after.peak),
            after: (megabytes(after.resident), megabytes(after.anonymous)),
            recovery: recovery.as_secs_f64(),
        })
    }

    /// Waits until an agent has compared every Work since its start; the time that took.
    async fn compared(&self, port: u16) -> anyhow::Result<Duration> {
        let all = || {
            let seen = scrape(port).map_or(0.0, |text| {
                sum(&text, "muster_works_applied_total", "success")
            });
            seen >= number(self.works)
        };
        until("a look at every Work", PATIENCE, PAUSE, all).await
    }

    /// Writes a Work that wants so many replicas as belong to a revision.
    fn put_work(&self, number: usize, revision: usize) -> anyhow::Result<()> {
        let works = self.fleet.seeds("work.karmada.io", "v1alpha1", "works")?;
        let name = name(number);
        let status = works
            .get(WORKS, &name)
            .map_or(Value::Null, |work| work["status"].clone());
        let mut work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": WORKS, "generation": revision,
                "finalizers": ["karmada.io/execution-controller"]},
            "spec": {"workload": {"manifests": [deployment(number, replicas(revision))]}},
        });
        if !status.is_null() {
            work["status"] = status;
        }
        works.put(work)?;
        Ok(())
    }

    /// Changes what a Work wants, in the member.
    fn drift(&self, number: usize) -> anyhow::Result<()> {
        let deployments = self.member.seeds("apps", "v1", "deployments")?;
        let mut object = deployments
            .get("default", &name(number))
            .context("the object of a Work")?;
        object["spec"]["replicas"] = json!(0);
        deployments.put(object)?;
        Ok(())
    }

    /// Returns how many replicas of a Work the member has.
    fn replicas(&self, number: usize) -> Option<usize> {
        let deployments = self.member.seeds("apps", "v1", "deployments").ok()?;
        let object = deployments.get("default", &name(number))?;
        usize::try_from(object["spec"]["replicas"].as_u64()?).ok()
    }
}

/// Memory and time of one outage.
struct Line {
    before: (f64, f64),
    peak: f64,
    after: (f64, f64),
    recovery: f64,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((before, before_own), (after, after_own)) = (self.before, self.after);
        write!(
            f,
            "{before:.1} ({before_own:.1})  {:.1}  {after:.1} ({after_own:.1})  {:.1}",
            self.peak, self.recovery
        )
    }
}

/// Checks that memory stayed where it was and that the agent is alive.
fn verdict(agent: &Process, before: f64, outages: &[f64]) -> anyhow::Result<()> {
    let ends = agent.lost();
    anyhow::ensure!(ends.is_empty(), "the agent ended by itself: {ends:?}");
    let (Some(first), Some(last)) = (outages.first(), outages.last()) else {
        anyhow::bail!("there was no outage");
    };
    let growth = last - first;
    println!(
        "grown by {:.1} MB in the first outage, by {growth:.1} MB in all later ones (at most {GROWTH})",
        first - before
    );
    anyhow::ensure!(growth <= GROWTH, "memory grew by {growth:.1} MB");
    Ok(())
}

/// Lets the kernel measure the peak of resident memory anew.
fn forget_peak(process: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{process}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("writing {path}"))
}

/// Writes to the member that are not the agent asking who it may be: every agent reads only, beside
/// its Works.
fn sum_of_writes(text: &str) -> f64 {
    let member = text
        .lines()
        .filter(|line| line.contains("api=\"member\""))
        .collect::<Vec<_>>()
        .join("\n");
    let of = |method: &str| sum(&member, "muster_api_requests_total", method);
    // The sum of nothing is a negative zero.
    0.0 + of("method=\"PATCH\"") + of("method=\"PUT\"") + of("method=\"DELETE\"")
}

/// Replicas that a revision of a Work wants.
fn replicas(revision: usize) -> usize {
    revision + 1
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

/// Returns a template as people write them: two containers with a dozen variables.
fn deployment(number: usize, replicas: usize) -> Value {
    let name = name(number);
    let variables: Vec<Value> = (0..12)
        .map(|variable| json!({"name": format!("VARIABLE_{variable}"), "value": format!("value-{variable}-of-{name}")}))
        .collect();
    let container = |role: &str| {
        json!({"name": role, "image": format!("registry.example/app/{role}:1.2.3"), "env": variables,
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}})
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [container("main"), container("sidecar")]}}},
    })
}
