//! What it costs to manage many members of sync mode Push from one control plane.
//!
//! A real control plane process against an embedded fleet API and so many embedded members, which
//! run in this process: memory and CPU once all are ready, and how soon a workload arrives while
//! some members hang. Prints figures, judges none: `cargo bench -p muster-e2e --bench push --
//! --members 200`.

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use common::{Budget, Scratch, Table, megabytes, number, until, usage};
use muster_e2e::apiserver::faults::Effect;
use muster_e2e::apiserver::seed::Seeds;
use muster_e2e::apiserver::{ApiServer, Options, Running};
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Members.
    #[arg(long, default_value_t = 200)]
    members: usize,
    /// Members that hang while a workload is sent to the others.
    #[arg(long, default_value_t = 50)]
    dead: usize,
    /// Nodes of each member.
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// Pods of each member.
    #[arg(long, default_value_t = 200)]
    pods: usize,
    /// Seconds over which CPU is measured.
    #[arg(long, default_value_t = 30)]
    window: u64,
    /// A muster-control-plane to measure instead of the one inside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    common::measure("push", manage)
}

#[tokio::main(worker_threads = 2)]
async fn manage(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("push")?;
    let fleet = common::fleet::start().await?;
    let clusters = fleet.seeds("cluster.karmada.io", "v1alpha1", "clusters")?;
    let mut members = Vec::new();
    for name in (0..arguments.members).map(name) {
        let member = member(&name, arguments).await?;
        join(&fleet, &clusters, &name, &member)?;
        members.push(member);
    }
    let begun = Instant::now();
    let control_plane = common::fleet::control_plane(
        &scratch,
        &fleet,
        arguments.binary.as_deref(),
        ["--cluster-success-threshold=1s".to_owned()],
    )?;
    let process = control_plane
        .id()
        .context("the control plane ended at once")?;
    let patience = Duration::from_mins(5);
    let pause = Duration::from_millis(200);
    let all = arguments.members;
    let ready = until("all members are ready", patience, pause, || {
        count(&clusters, is_ready) == all
    });
    let ready = ready.await;
    let ready = ready.with_context(|| format!("{} of {all}", count(&clusters, is_ready)));
    common::fleet::checked(&scratch, &control_plane, ready)?;
    let mut table = Table::new(format!(
        "push: {all} members with {} nodes and {} pods each",
        arguments.nodes, arguments.pods
    ));
    table.figure(
        "until all are ready",
        begun.elapsed().as_secs_f64(),
        "s",
        Budget::None,
    );
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = usage(process)?;
    let window = Duration::from_secs(arguments.window);
    tokio::time::sleep(window).await;
    let after = usage(process)?;
    let minute = (after.cpu - before.cpu) / window.as_secs_f64() * 60.0;
    let what = format!(
        "CPU a minute at rest (measured over {} s)",
        arguments.window
    );
    table.figure(what, minute, "s", Budget::None);
    table.figure("memory", megabytes(after.resident), "MB", Budget::None);
    table.figure(
        "of it not the program's file",
        megabytes(after.anonymous),
        "MB",
        Budget::None,
    );
    let each = megabytes(after.anonymous) / number(all.max(1));
    table.figure("the same for each member", each, "MB", Budget::None);
    table.figure("memory, peak", megabytes(after.peak), "MB", Budget::None);

    let dead = arguments.dead.min(all.saturating_sub(1));
    for member in &members[..dead] {
        member.faults().inject(Effect::Hang);
    }
    let sent = Instant::now();
    send(&fleet)?;
    let arrived = || {
        members[dead..].iter().all(|member| {
            let deployments = member.seeds("apps", "v1", "deployments");
            deployments.is_ok_and(|it| it.get("default", "web").is_some())
        })
    };
    until(
        "the workload arrives at the living",
        patience,
        pause,
        arrived,
    )
    .await?;
    let what = format!(
        "until {} living members have a workload, {dead} hang",
        all - dead
    );
    table.figure(what, sent.elapsed().as_secs_f64(), "s", Budget::None);
    table.figure("load of the machine", common::load(), "", Budget::None);
    table.print();
    common::fleet::checked(&scratch, &control_plane, Ok(()))
}

/// Starts a member with nodes and pods.
async fn member(name: &str, arguments: &Arguments) -> anyhow::Result<Running> {
    let member = ApiServer::start(Options {
        name: name.to_owned(),
        ..Options::default()
    })
    .await?;
    let nodes = member.seeds("", "v1", "nodes")?;
    for node in 0..arguments.nodes {
        nodes.put(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{node}") },
            "status": {
                "allocatable": { "cpu": "16", "memory": "64Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }))?;
    }
    let pods = member.seeds("", "v1", "pods")?;
    for pod in 0..arguments.pods {
        let node = format!("node-{}", pod % arguments.nodes.max(1));
        pods.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("pod-{pod}"), "namespace": "default" },
            "spec": { "nodeName": node, "containers": [{
                "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
            }] },
            "status": { "phase": "Running" },
        }))?;
    }
    Ok(member)
}

/// Puts the Cluster and the Secret of a member into the fleet API.
fn join(fleet: &Running, clusters: &Seeds, name: &str, member: &Running) -> anyhow::Result<()> {
    let access = member.token_kubeconfig("muster-control-plane", &["system:masters"])?;
    let user = access
        .auth_infos
        .first()
        .and_then(|it| it.auth_info.clone());
    let user = serde_json::to_value(user.context("no user")?)?;
    let token = user["token"].as_str().context("no token")?;
    fleet.seeds("", "v1", "secrets")?.put(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "namespace": "karmada-cluster", "name": name },
        "data": { "token": STANDARD.encode(token), "caBundle": STANDARD.encode(member.ca()) },
    }))?;
    clusters.put(json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": name, "generation": 1 },
        "spec": {
            "syncMode": "Push", "apiEndpoint": member.url(),
            "secretRef": { "namespace": "karmada-cluster", "name": name },
        },
    }))?;
    Ok(())
}

/// Sends a Deployment to all members.
fn send(fleet: &Running) -> anyhow::Result<()> {
    fleet.seeds("apps", "v1", "deployments")?.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "default", "generation": 1 },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    }))?;
    fleet.seeds("policy.karmada.io", "v1alpha1", "propagationpolicies")?.put(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": "web", "namespace": "default", "generation": 1 },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }],
            "placement": {},
        },
    }))?;
    Ok(())
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

fn count(clusters: &Seeds, holds: impl Fn(&Value) -> bool) -> usize {
    let all = clusters.all::<Value>();
    all.iter().filter(|cluster| holds(cluster)).count()
}

fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
