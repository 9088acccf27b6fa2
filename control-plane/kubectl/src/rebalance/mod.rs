//! `kubectl muster rebalance`: has workloads placed anew, once.

mod follow;
mod preview;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use kube::Config;
use kube::api::PostParams;
use muster_control_plane::fleet::attribution::{Attribution, order};
use muster_control_plane::fleet::budget::rate::Rates;
use muster_control_plane::scheduler::core::{self, DataPlaces, Snapshot};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::rebalancer::{
    WorkloadRebalancer, WorkloadRebalancerSpec, WorkloadReference,
};
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, ObjectMeta, ResourceExt};
use muster_shared::names::annotation::ORDERED_BY;
use muster_shared::settings::Duration;

use self::preview::{Preview, preview};
use super::author::Why;
use super::chosen;
use super::dependencies::{self, parted};
use super::follow::Waiting;
use super::list;
use super::output::{Format, Reply, STRANDED, plain, warn};
use super::pace::Pace;
use super::request::{call, find_cluster};
use super::running::Running;
use super::standstill::{MovementState, Standstill};
use super::subject::{self, Subject};
use super::table::LISTED;

/// Workloads that one object asks for: an object is at most 1.5 MB large.
const MOST: usize = 1_000;
/// Time after which a finished request is deleted, in seconds.
const TTL: i32 = 3_600;

#[derive(Debug, Args)]
#[group(id = "workloads", required = true, multiple = false)]
struct Which {
    /// Templates as `deployment/web`, or bindings as `rb/web-deployment`.
    #[arg(value_name = "KIND/NAME", value_delimiter = ',')]
    named: Vec<String>,
    /// Every workload of which a new placement brings more to this cluster, in all namespaces.
    #[arg(long, value_name = "CLUSTER", value_parser = chosen::name)]
    cluster: Option<String>,
    /// Every workload that a new placement moves, in all namespaces.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    which: Which,
    /// Say what would move where, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
    /// Show the progress until all new copies are healthy and the old ones gone.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// For how long to wait; 0 for ever.
    #[arg(long, requires = "wait", default_value = "0s", value_name = "DURATION")]
    timeout: Duration,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

pub(super) async fn carry_out(
    client: Client,
    config: &Config,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<Reply> {
    let (preview, rate) = check(&client, namespace, &options.which).await?;
    let is_named = !options.which.named.is_empty();
    let refused = (is_named && !preview.refused.is_empty()).then_some(STRANDED);
    let table = || preview.table(is_named, options.output.most(LISTED));
    if options.dry_run || preview.moves.is_empty() {
        let reported = options.output.print(table, &preview)?;
        return Ok(Reply::with(reported, refused));
    }
    let moves = preview.moves.iter().map(|it| it.workload.clone());
    let moves: Vec<WorkloadReference> = moves.collect();
    if options.wait {
        // Told first: a person who reads it may still end the request.
        eprint!("{}", plain(&table()));
    }
    let order = options.why.author(&client).await;
    let order = order.order(order::REBALANCE, calendar());
    let names = ask(&client, &moves, &order).await?;
    if !options.wait {
        let names = names.join(" ");
        let requested = || {
            format!(
                "{}{names}: requested; they move at the rate of evictions, at most {rate} a second\n",
                table()
            )
        };
        let text = options.output.print(requested, &preview)?;
        return Ok(Reply::with(text, refused));
    }
    let waiting = Waiting::of(*options.timeout);
    let (progress, how) = follow::follow(config, &names, &moves, waiting).await?;
    let code = match how {
        Ok(()) => refused,
        Err(stopped) => Some(stopped.code()),
    };
    let mut reasons = String::new();
    for reason in &progress.nothing_moves {
        let _ = writeln!(reasons, "Nothing moves: {reason}");
    }
    let report = || match how {
        Ok(()) => format!("{}\n", progress.line()),
        Err(_) => format!(
            "{}\n{reasons}The request holds: kubectl get workloadrebalancers shows them, kubectl delete workloadrebalancers {} ends what has not begun\n",
            progress.line(),
            names.join(" ")
        ),
    };
    Ok(Reply::with(options.output.print(report, &progress)?, code))
}

/// Computes what would move where, and how many evictions a second there may be.
async fn check(client: &Client, namespace: &str, which: &Which) -> anyhow::Result<(Preview, f64)> {
    if let Some(cluster) = &which.cluster {
        find_cluster(client, cluster).await?;
    }
    let all = list::bindings(client).await.map_err(anyhow::Error::msg)?;
    let bindings = if which.named.is_empty() {
        // An object that follows others has no placement of its own to be made anew.
        let placed = all.iter().filter(|it| it.spec.placement.is_some());
        placed.cloned().collect()
    } else {
        let mut found = Vec::new();
        for what in &which.named {
            let subject = Subject::of(what, None)?;
            let binding = subject::find(client, namespace, &subject).await?;
            found.push(Arc::new(binding));
        }
        found
    };
    let clusters = list::all::<Cluster>(Api::all(client.clone()));
    let clusters = clusters.await.map_err(anyhow::Error::msg)?;
    let snapshot = Snapshot::new(clusters.iter().cloned().map(Arc::new));
    let snapshot = snapshot.with_data(DataPlaces::among(&all));
    let running = Running::read(client, &[]).await?;
    let rules = core::Options::of(&running.settings);
    let cluster = which.cluster.as_deref();
    let mut preview = preview(&bindings, cluster, &snapshot, &rules);
    let needs = dependencies::read(client, &all).await;
    preview.partings = parted(&all, &needs, &preview.after);
    let left: BTreeSet<&str> = preview.left().collect();
    let left = clusters
        .iter()
        .filter(|it| left.contains(it.name_any().as_str()));
    let movement = MovementState::read(client).await;
    let Standstill {
        reasons, unread, ..
    } = movement.of(left, calendar());
    if let Some(why) = unread {
        warn(&why);
    }
    if let Some(why) = running.ignores_requests() {
        warn(&why);
    }
    let stopped = Pace::of(&clusters, &Rates::of(&running.settings)).stopped("count");
    preview.nothing_moves = reasons.into_iter().chain(stopped).collect();
    Ok((preview, running.settings.resource_eviction_rate))
}

/// Writes the requests; returns the names of the objects.
async fn ask(
    client: &Client,
    workloads: &[WorkloadReference],
    order: &Attribution,
) -> anyhow::Result<Vec<String>> {
    let api: Api<WorkloadRebalancer> = Api::all(client.clone());
    let orders = Attribution::added(&ObjectMeta::default(), order.clone());
    let mut names = Vec::new();
    for some in workloads.chunks(MOST) {
        let spec = WorkloadRebalancerSpec {
            workloads: some.to_vec(),
            ttl_seconds_after_finished: Some(TTL),
        };
        let mut rebalancer = WorkloadRebalancer::new("", spec);
        rebalancer.metadata = ObjectMeta {
            generate_name: Some("rebalance-".to_owned()),
            annotations: Some([(ORDERED_BY.to_owned(), orders.clone())].into()),
            ..ObjectMeta::default()
        };
        let parameters = PostParams::default();
        let made = api.create(&parameters, &rebalancer);
        let made = call("create the WorkloadRebalancer", made).await?;
        names.push(made.name_any());
    }
    Ok(names)
}
