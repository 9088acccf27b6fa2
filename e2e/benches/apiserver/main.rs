//! What the embedded API server costs: processor time for a thousand writes of each kind, and the
//! memory of a whole fleet.
//!
//! The server runs in a process of its own with a single thread, so that what it uses is told apart
//! from what its clients use and holds on a busy machine, too: `cargo bench -p muster-e2e --bench
//! apiserver -- --writes 5000 --watchers 0,20`, `-- --reads 20000` for lists and watches in JSON
//! and protobuf, and `-- --fleet` for one process with everything in it. Prints figures, judges
//! none.

#[path = "../common/mod.rs"]
mod common;
mod reads;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use common::{Budget, Scratch, Table, fleet, megabytes, number, objects, usage};
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_e2e::harness::kubeconfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Writes a second that one core is to manage.
const GOAL: f64 = 3000.0;
/// Megabytes that a whole fleet may take.
const MEMORY: f64 = 4000.0;
/// Clusters of the fleet, each with a lease that it renews every ten seconds.
const CLUSTERS: usize = 200;

#[derive(Parser)]
struct Arguments {
    /// Writes of each kind.
    #[arg(long, default_value_t = 5000)]
    writes: usize,
    /// Clients, each with a connection and an object of its own.
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Watches on what is written: one measurement for each number of them.
    #[arg(long, value_delimiter = ',', default_value = "0,20")]
    watchers: Vec<usize>,
    /// Kinds of writes to measure; all of them if none is named.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Whether the clients are administrators, or users whose rights are asked of RBAC among those
    /// of 200 agents.
    #[arg(long)]
    users: bool,
    /// Measure instead how fast so many pods are read.
    #[arg(long)]
    reads: Option<usize>,
    /// Measure the memory of a fleet instead.
    #[arg(long)]
    fleet: bool,
    /// Serve, and write a kubeconfig to this file: the part of the server.
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
    /// Pods that the server begins with.
    #[arg(long, hide = true, default_value_t = 0)]
    pods: usize,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.serve {
        Some(path) => serve(path, &arguments),
        None if arguments.fleet => everything(),
        None => match arguments.reads {
            Some(pods) => reads(pods),
            None => writes(&arguments),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("API server benchmark: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves on this one thread until the parent closes our input.
#[tokio::main(flavor = "current_thread")]
async fn serve(path: &PathBuf, arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let server = fleet::start().await?;
    reads::fill(&server, arguments.pods)?;
    let access = if arguments.users {
        agents(&server)?;
        server.kubeconfig("writer", &["writers"])?
    } else {
        server.admin_kubeconfig()?
    };
    let partial = path.with_extension("partial");
    kubeconfig::write(&access, &partial)?;
    std::fs::rename(&partial, path)?;
    // An end of the input, or an error, is the end of the parent.
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await;
    ended?.map(|_| ()).context("waiting for the end")
}

/// Grants the rights of many agents, and of the writer among them.
fn agents(server: &muster_e2e::apiserver::Running) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let roles = server.seeds(group, "v1", "clusterroles")?;
    let bindings = server.seeds(group, "v1", "clusterrolebindings")?;
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let own = json!([
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters", "clusters/status"], "verbs": ["get", "patch"]},
        {"apiGroups": ["work.karmada.io"], "resources": ["works", "works/status"], "verbs": ["get", "list", "watch", "patch"]},
    ]);
    let named = (0..CLUSTERS).map(|i| (format!("agent-{i}"), &own));
    for (name, rules) in named.chain([("writer".to_owned(), &everything)]) {
        roles.put(json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}))?;
        bindings.put(json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        }))?;
    }
    Ok(())
}

/// A kind of write: how its objects begin, and what is then sent again and again.
struct Write {
    name: &'static str,
    /// Where objects are made.
    collection: &'static str,
    /// The object of a client.
    object: fn(usize) -> Value,
    /// Method, media type, and what follows the object's path.
    send: (&'static str, &'static str, &'static str),
    /// The body of a client's n-th write.
    body: fn(usize, usize) -> Value,
}

const MERGE: &str = "application/merge-patch+json";

/// Returns the kinds of writes that are measured.
fn kinds() -> Vec<Write> {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    vec![
        Write {
            name: "create",
            collection: MAPS,
            object: |client| map(&format!("first-{client}"), 0),
            send: ("POST", "application/json", ""),
            body: |client, round| map(&format!("made-{client}-{round}"), round),
        },
        Write {
            name: "update",
            collection: MAPS,
            object: |client| map(&format!("update-{client}"), 0),
            send: ("PUT", "application/json", "/"),
            body: |client, round| map(&format!("update-{client}"), round + 1),
        },
        Write {
            name: "merge patch",
            collection: MAPS,
            object: |client| map(&format!("merge-{client}"), 0),
            send: ("PATCH", MERGE, "/"),
            body: |_, round| json!({"data": {"round": round.to_string()}}),
        },
        Write {
            name: "lease",
            collection: "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases",
            object: |client| json!({"metadata": {"name": format!("m-{client}")}, "spec": {"holderIdentity": "m", "leaseDurationSeconds": 40, "renewTime": renewal(0)}}),
            send: ("PATCH", MERGE, "/"),
            body: |_, round| json!({"spec": {"renewTime": renewal(round + 1)}}),
        },
        Write {
            name: "cluster status",
            collection: "/apis/cluster.karmada.io/v1alpha1/clusters",
            object: |client| fleet::cluster(&format!("m-{client}")),
            send: ("PATCH", MERGE, "/status"),
            body: |_, round| json!({"status": {"resourceSummary": {"allocated": {"cpu": (round + 2).to_string()}}}}),
        },
        Write {
            name: "binding",
            collection: "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings",
            object: |client| binding(&format!("b-{client}")),
            send: ("PATCH", MERGE, "/"),
            body: |_, round| json!({"spec": {"clusters": [{"name": format!("m-{round}"), "replicas": 2}]}}),
        },
        Write {
            name: "apply",
            collection: DEPLOYMENTS,
            object: |client| deployment(&format!("d-{client}"), 1),
            send: (
                "PATCH",
                "application/apply-patch+yaml",
                "/?fieldManager=bench&force=true",
            ),
            body: |client, round| deployment(&format!("d-{client}"), round % 7 + 1),
        },
    ]
}

/// Returns a time that differs by the round.
fn renewal(round: usize) -> String {
    let (minutes, seconds) = (round / 60 % 60, round % 60);
    format!(
        "2026-01-01T{:02}:{minutes:02}:{seconds:02}.000000Z",
        round / 3600 % 24
    )
}

fn map(name: &str, round: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"round": round.to_string(), "setting": "value", "other": "x".repeat(200)}})
}

fn deployment(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "main", "image": "registry.example/main:1", "ports": [{"containerPort": 8080}],
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }]},
            },
        },
    })
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name},
            "replicas": 2,
            "clusters": [{"name": "m-0", "replicas": 2}],
            "placement": {"clusterAffinity": {"clusterNames": ["m-0", "m-1", "m-2"]}, "replicaScheduling": {"replicaSchedulingType": "Divided"}},
        },
    })
}

async fn client(access: &Kubeconfig) -> anyhow::Result<Client> {
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(access.clone(), &options).await?;
    Ok(Client::try_from(config)?)
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> anyhow::Result<()> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body.to_string().into_bytes().into())?;
    let response = client.send(request).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(
        status.is_success(),
        "{method} {path}: {status} {}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn writes(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    for &watchers in &arguments.watchers {
        let server = Server::start(arguments.users.then_some("--users".to_owned())).await?;
        let access = &server.access;
        let mut table = Table::new(format!(
            "{} writes of each kind, {} clients, {watchers} watches, as {}; load {:.1}",
            arguments.writes,
            arguments.clients,
            if arguments.users {
                "a user among 200"
            } else {
                "administrator"
            },
            common::load()
        ));
        for kind in kinds() {
            if arguments.kinds.is_empty() || arguments.kinds.iter().any(|k| k == kind.name) {
                measure(&kind, arguments, watchers, access, server.id(), &mut table).await?;
            }
        }
        table.figure(
            "memory of the server",
            megabytes(usage(server.id())?.resident),
            "MB",
            Budget::None,
        );
        table.print();
        server.end()?;
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn reads(pods: usize) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let server = Server::start(["--pods".to_owned(), pods.to_string()]).await?;
    let mut table = reads::measure(&server.access, server.id(), pods).await?;
    let peak = usage(server.id())?.peak;
    table.figure(
        "memory of the server, peak",
        megabytes(peak),
        "MB",
        Budget::None,
    );
    table.print();
    server.end()
}

/// The server in a process of its own, with a single thread.
struct Server {
    process: Child,
    access: Kubeconfig,
    /// Holds the kubeconfig.
    _scratch: Scratch,
}

impl Server {
    async fn start(flags: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let scratch = Scratch::new("apiserver")?;
        let path = scratch.path().join("kubeconfig");
        let process = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .arg(&path)
            .args(flags)
            .stdin(Stdio::piped())
            .spawn()
            .context("starting the server")?;
        let patience = Duration::from_mins(5);
        let pause = Duration::from_millis(20);
        common::until("the server starts", patience, pause, || path.exists()).await?;
        let access = Kubeconfig::read_from(&path)?;
        Ok(Self {
            process,
            access,
            _scratch: scratch,
        })
    }

    fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it: the end of its input.
    fn end(mut self) -> anyhow::Result<()> {
        drop(self.process.stdin.take());
        self.process.wait()?;
        Ok(())
    }
}

/// Writes, and what that took the server.
async fn measure(
    kind: &Write,
    arguments: &Arguments,
    watchers: usize,
    access: &Kubeconfig,
    server: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut followers = JoinSet::new();
    let seen = Arc::new(AtomicUsize::new(0));
    for _ in 0..watchers {
        let (client, seen) = (client(access).await?, Arc::clone(&seen));
        let request =
            Request::get(format!("{}?watch=true", kind.collection)).body(Vec::new().into())?;
        let mut body = client.send(request).await?.into_body().into_data_stream();
        followers.spawn(async move {
            while let Some(Ok(chunk)) = body.next().await {
                let lines =
                    std::str::from_utf8(&chunk).map_or(0, |text| text.matches('\n').count());
                seen.fetch_add(lines, Ordering::Relaxed);
            }
        });
    }
    let mut clients = Vec::new();
    for number in 0..arguments.clients {
        let client = client(access).await?;
        let object = (kind.object)(number);
        send(
            &client,
            "POST",
            kind.collection,
            "application/json",
            &object,
        )
        .await?;
        let (method, media, rest) = kind.send;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = match rest.strip_prefix('/') {
            None => kind.collection.to_owned(),
            Some(rest) if rest.starts_with('?') || rest.is_empty() => {
                format!("{}/{name}{rest}", kind.collection)
            }
            Some(rest) => format!("{}/{name}/{rest}", kind.collection),
        };
        clients.push((client, method, media, path, kind.body));
    }
    let rounds = arguments.writes.div_ceil(arguments.clients);
    let (before, start) = (usage(server)?.cpu, Instant::now());
    let mut writers = JoinSet::new();
    for (number, (client, method, media, path, body)) in clients.into_iter().enumerate() {
        writers.spawn(async move {
            for round in 0..rounds {
                send(&client, method, &path, media, &body(number, round)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    let took = start.elapsed().as_secs_f64();
    let count = number(rounds * arguments.clients);
    let cpu = usage(server)?.cpu - before;
    table.figure(
        format!("{}: processor time for 1,000", kind.name),
        cpu / count * 1e6,
        "ms",
        Budget::None,
    );
    table.figure(
        format!("{}: a second, by processor time", kind.name),
        count / cpu,
        "writes",
        Budget::AtLeast(GOAL),
    );
    table.figure(
        format!("{}: a second, as it was", kind.name),
        count / took,
        "writes",
        Budget::None,
    );
    Ok(())
}

/// Starts 200 clusters whose agents renew their leases, over a connection each; counts the
/// renewals.
async fn heartbeats(
    access: &Kubeconfig,
    renewed: &Arc<AtomicUsize>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut agents = JoinSet::new();
    for number in 0..CLUSTERS {
        let (client, renewed) = (client(access).await?, Arc::clone(renewed));
        let name = format!("m-{number}");
        let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewal(0)}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
        let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
        send(
            &client,
            "POST",
            clusters,
            "application/json",
            &fleet::cluster(&name),
        )
        .await?;
        send(&client, "POST", leases, "application/json", &lease).await?;
        agents.spawn(async move {
            for round in 1.. {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let body = json!({"spec": {"renewTime": renewal(round)}});
                send(&client, "PATCH", &format!("{leases}/{name}"), MERGE, &body).await?;
                renewed.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    Ok(agents)
}

/// Reads every page of every pod, as an agent reads them first.
async fn read_all_pods(reader: &Client) -> anyhow::Result<()> {
    let mut token = String::new();
    loop {
        let path = format!("/api/v1/pods?limit=500&continue={token}");
        let response = reader
            .send(Request::get(path).body(Vec::new().into())?)
            .await?;
        let page = response.into_body().collect().await?.to_bytes();
        let page: Value = serde_json::from_slice(&page)?;
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return Ok(()),
        }
    }
}

/// Measures a fleet and a large member in this one process.
#[tokio::main(worker_threads = 2)]
async fn everything() -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let own = std::process::id();
    let mut table = Table::new("a fleet in one process");
    let host = fleet::start().await?;
    let member = fleet::start().await?;
    table.figure(
        "two empty servers",
        megabytes(usage(own)?.resident),
        "MB",
        Budget::None,
    );
    let (nodes, pods) = (
        member.seeds("", "v1", "nodes")?,
        member.seeds("", "v1", "pods")?,
    );
    let start = usage(own)?.cpu;
    for number in 0..5000 {
        nodes.put(objects::node(number))?;
    }
    for number in 0..100_000 {
        pods.put(objects::pod(number, 5000, 0))?;
    }
    table.figure(
        "5,000 nodes and 100,000 pods",
        megabytes(usage(own)?.resident),
        "MB",
        Budget::None,
    );
    table.figure(
        "seeding them: processor time",
        usage(own)?.cpu - start,
        "s",
        Budget::None,
    );
    let bindings = host.seeds("work.karmada.io", "v1alpha2", "resourcebindings")?;
    for number in 0..10_000 {
        bindings.put(binding(&format!("b-{number}")))?;
    }
    table.figure(
        "and 10,000 bindings",
        megabytes(usage(own)?.resident),
        "MB",
        Budget::None,
    );
    let renewed = Arc::new(AtomicUsize::new(0));
    let mut agents = heartbeats(&host.admin_kubeconfig()?, &renewed).await?;
    table.figure(
        "and 200 clusters with their connections",
        megabytes(usage(own)?.resident),
        "MB",
        Budget::None,
    );
    let before = usage(own)?.cpu;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let cpu = usage(own)?.cpu - before;
    table.figure(
        "renewals in half a minute",
        number(renewed.load(Ordering::Relaxed)),
        "",
        Budget::None,
    );
    table.figure(
        "processor time of both sides for them",
        cpu,
        "s",
        Budget::None,
    );
    let reader = client(&member.admin_kubeconfig()?).await?;
    let start = usage(own)?.cpu;
    read_all_pods(&reader).await?;
    table.figure(
        "listing all pods in pages: processor time of both sides",
        usage(own)?.cpu - start,
        "s",
        Budget::None,
    );
    table.figure(
        "in all",
        megabytes(usage(own)?.resident),
        "MB",
        Budget::AtMost(MEMORY),
    );
    table.figure(
        "at the most",
        megabytes(usage(own)?.peak),
        "MB",
        Budget::AtMost(MEMORY),
    );
    table.print();
    agents.abort_all();
    Ok(())
}
