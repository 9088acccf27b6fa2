//! `kubectl muster top`: what the pods of each cluster request of what its nodes offer.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::{Cluster, ResourceSummary};
use muster_shared::clock::calendar;
use muster_shared::conditions;
use muster_shared::k8s::{Client, Lease, Quantity as Wire};
use muster_shared::quantity::Quantity;
use serde::{Serialize, Serializer};

use super::chosen::Clusters;
use super::leader::Leader;
use super::rows::{Format, Named, none, print};
use super::table::{NOT_READY, Table, ago, amount};
use super::view::{Member, View};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const PODS: &str = "pods";

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    clusters: Clusters,
    /// Order of the clusters: by name, or by the share of a resource that is requested, the fullest
    /// first.
    #[arg(long, value_enum, default_value_t)]
    sort: Order,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Order {
    #[default]
    Name,
    Cpu,
    Memory,
    Pods,
}

/// Returns the answer as text.
pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let chosen = options.clusters.or_all().seen(client).await?;
    let view = View::read(client, &Settings::default()).await;
    // Whoever may not read leases sees the clusters.
    let unread = view.leases.as_ref().err().cloned();
    let leases = view.leases.unwrap_or_default();
    let clusters = view.clusters.map_err(anyhow::Error::msg)?;
    let now = calendar();
    let leader = Leader::of(&view.leader, now);
    let is_chosen = |it: &&Cluster| {
        let chosen = chosen.as_ref();
        chosen.is_none_or(|names| names.contains(&it.name_any()))
    };
    let mut rows: Vec<Row> = clusters
        .iter()
        .filter(is_chosen)
        .map(|it| {
            let lease = leases.get(&it.name_any());
            Row::of(it, lease, leader.leaves_silent(lease, now))
        })
        .collect();
    if rows.is_empty() && options.output.is_text() {
        return Ok(none(None, None, options.clusters.selector()));
    }
    sort(&mut rows, options.sort);
    let text = print(&rows, options.output, None, |wide| table(&rows, wide, now))?;
    Ok(match unread.filter(|_| options.output.is_text()) {
        Some(why) => format!("{text}\nHEARD is not known: {why}\n"),
        None => text,
    })
}

/// A cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    /// Status of condition Ready. Of a cluster that is not ready the amounts are those that it
    /// reported last.
    ready: String,
    /// Last renewal of its lease, by the clock of the member.
    last_heard: Option<Timestamp>,
    ready_nodes: Option<i32>,
    nodes: Option<i32>,
    /// By resource. Empty if the cluster has not reported any.
    resources: BTreeMap<String, Amounts>,
}

/// Amounts of a resource, in JSON as quantities of Kubernetes; `null`: cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Amounts {
    /// Amount that nodes offer to pods.
    #[serde(serialize_with = "quantity")]
    allocatable: Option<Quantity>,
    /// Amount that pods on nodes request.
    #[serde(serialize_with = "quantity")]
    requested: Option<Quantity>,
    /// Amount that pods without a node request.
    #[serde(serialize_with = "quantity")]
    waiting: Option<Quantity>,
    /// Part of `allocatable` that is requested, in percent, without what waits; `null` if nothing
    /// is offered.
    percent: Option<i64>,
}

#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
fn quantity<S: Serializer>(amount: &Option<Quantity>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|it| it.to_string()).serialize(serializer)
}

impl Amounts {
    const NONE: Self = Self {
        allocatable: Some(Quantity::ZERO),
        requested: Some(Quantity::ZERO),
        waiting: Some(Quantity::ZERO),
        percent: None,
    };

    fn new([allocatable, requested, waiting]: [Option<Quantity>; 3]) -> Self {
        let percent = allocatable
            .zip(requested)
            .filter(|(offered, _)| offered.sign() > 0)
            .and_then(|(offered, requested)| {
                i64::try_from(requested.nano().saturating_mul(100) / offered.nano()).ok()
            });
        Self {
            allocatable,
            requested,
            waiting,
            percent,
        }
    }

    fn of(summary: &ResourceSummary, name: &str) -> Self {
        // A resource that is not named is not requested.
        let read = |amounts: &BTreeMap<String, Wire>| match amounts.get(name) {
            Some(wire) => Quantity::from_wire(wire).ok(),
            None => Some(Quantity::ZERO),
        };
        Self::new([
            read(&summary.allocatable),
            read(&summary.allocated),
            read(&summary.allocating),
        ])
    }

    /// Returns the sum of these amounts and those of another cluster. What cannot be read of one is
    /// not known of both.
    fn plus(self, other: Self) -> Self {
        let sum = |a: Option<Quantity>, b: Option<Quantity>| Some(a? + b?);
        Self::new([
            sum(self.allocatable, other.allocatable),
            sum(self.requested, other.requested),
            sum(self.waiting, other.waiting),
        ])
    }

    /// Returns what is requested of what is offered, in a cell of the table.
    fn share(self, name: &str) -> String {
        let [requested, offered] = [self.requested, self.allocatable]
            .map(|it| it.map_or_else(|| "-".to_owned(), |it| amount(name, it)));
        let percent = self.percent.map(|it| format!(" ({it}%)"));
        format!("{requested}/{offered}{}", percent.unwrap_or_default())
    }
}

impl Row {
    /// Returns the row of a cluster. `is_silent`: it is silent, and no leader acts to say so.
    fn of(cluster: &Cluster, lease: Option<&Lease>, is_silent: bool) -> Self {
        let status = cluster.status.as_ref();
        let nodes = status.and_then(|it| it.node_summary);
        let summary = status.and_then(|it| it.resource_summary.as_ref());
        let member = Member::of(cluster, lease, is_silent);
        let resources = summary.map(|summary| {
            let lists = [
                &summary.allocatable,
                &summary.allocated,
                &summary.allocating,
            ];
            let names = lists.into_iter().flat_map(BTreeMap::keys);
            names
                .map(|name| (name.clone(), Amounts::of(summary, name)))
                .collect()
        });
        Self {
            name: member.name,
            ready: member.ready,
            last_heard: member.last_heard,
            ready_nodes: nodes.map(|it| it.ready_num),
            nodes: nodes.map(|it| it.total_num),
            resources: resources.unwrap_or_default(),
        }
    }

    fn is_ready(&self) -> bool {
        self.ready == conditions::TRUE
    }

    fn percent(&self, name: &str) -> Option<i64> {
        self.resources.get(name)?.percent
    }
}

impl Named for Row {
    fn name(&self) -> String {
        format!("cluster.cluster.karmada.io/{}", self.name)
    }
}

fn sort(rows: &mut [Row], order: Order) {
    let resource = match order {
        Order::Name => return rows.sort_by(|a, b| a.name.cmp(&b.name)),
        Order::Cpu => CPU,
        Order::Memory => MEMORY,
        Order::Pods => PODS,
    };
    rows.sort_by_key(|it| (Reverse(it.percent(resource)), it.name.clone()));
}

/// Returns the table, with the sum of the clusters that are ready, and what its marks mean. A wide
/// one has the resources beyond processors, memory and pods.
fn table(rows: &[Row], wide: bool, now: Timestamp) -> String {
    let mut table = Table::new([
        "NAME", "READY", "HEARD", "NODES", "CPU", "MEMORY", "PODS", "WAITING", "OTHERS",
    ]);
    for row in rows.iter().chain(&sum(rows)) {
        let mark = if row.is_ready() { "" } else { "?" };
        let share = |name: &str| {
            let amounts = row.resources.get(name);
            amounts.map_or_else(|| "-".to_owned(), |it| format!("{}{mark}", it.share(name)))
        };
        let waiting = row.resources.get(PODS).and_then(|it| it.waiting);
        let nodes = row.ready_nodes.zip(row.nodes);
        let others = row
            .resources
            .keys()
            .filter(|it| ![CPU, MEMORY, PODS].contains(&it.as_str()));
        let others: Vec<String> = others.map(|it| format!("{it}={}", share(it))).collect();
        table.row([
            row.name.clone(),
            row.ready.clone(),
            ago(row.last_heard, now),
            nodes.map_or_else(
                || "-".to_owned(),
                |(ready, all)| format!("{ready}/{all}{mark}"),
            ),
            share(CPU),
            share(MEMORY),
            share(PODS),
            waiting.map_or_else(
                || "-".to_owned(),
                |it| format!("{}{mark}", amount(PODS, it)),
            ),
            others.join(","),
        ]);
    }
    let mut text = table.without(if wide { &[] } else { &["OTHERS"] });
    if !rows.iter().all(Row::is_ready) {
        text.push_str(NOT_READY);
        text.push_str(if sum(rows).is_some() {
            NOT_IN_SUM
        } else {
            "\n"
        });
    }
    text
}

const NOT_IN_SUM: &str = " It is not in the sum.\n";

/// Returns the clusters that are ready as one row; `None` if that would say nothing, or if none is
/// ready.
fn sum(rows: &[Row]) -> Option<Row> {
    let ready = || rows.iter().filter(|it| it.is_ready());
    if rows.len() < 2 || ready().next().is_none() {
        return None;
    }
    let mut resources: BTreeMap<String, Amounts> = BTreeMap::new();
    for (name, amounts) in ready().flat_map(|it| &it.resources) {
        let sum = resources.entry(name.clone()).or_insert(Amounts::NONE);
        *sum = sum.plus(*amounts);
    }
    Some(Row {
        name: "(sum)".to_owned(),
        ready: conditions::TRUE.to_owned(),
        last_heard: None,
        ready_nodes: Some(ready().filter_map(|it| it.ready_nodes).sum()),
        nodes: Some(ready().filter_map(|it| it.nodes).sum()),
        resources,
    })
}

#[cfg(test)]
mod tests;
