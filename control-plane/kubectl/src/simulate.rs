//! `kubectl muster simulate`: what would happen if clusters were lost or drained, on the live
//! fleet, read-only.

mod report;

use std::collections::BTreeSet;

use anyhow::ensure;
use clap::Args;
use futures::future::try_join3;
use jiff::Timestamp;
use kube::ResourceExt;
use muster_control_plane::fleet::pause::Pause;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, ConfigMap};

use super::chosen;
use super::forecast::{Disaster, Fleet, forecast};
use super::jobs::Jobs;
use super::leader::Leader;
use super::output::{Format, Reply};
use super::request::{instead, no_cluster};
use super::running::{self, Running};
use super::{dependencies, list, view};

use self::report::{LISTED, Report};

#[derive(Clone, Debug, Args)]
#[group(id = "disaster", required = true, multiple = true)]
struct What {
    /// Clusters that fall silent for good.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = chosen::name)]
    lost: Vec<String>,
    /// Regions of which all clusters fall silent for good.
    #[arg(long, value_name = "REGIONS", value_delimiter = ',')]
    lost_region: Vec<String>,
    /// Clusters with these labels, such as `region=eu,tier!=test`, fall silent for good.
    #[arg(
        long,
        short = 'l',
        visible_alias = "selector",
        value_name = "SELECTOR",
        value_parser = chosen::selector
    )]
    lost_selector: Option<String>,
    /// Clusters that are drained.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = chosen::name)]
    drain: Vec<String>,
    /// Clusters with these labels are drained.
    #[arg(long, value_name = "SELECTOR", value_parser = chosen::selector)]
    drain_selector: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    what: What,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Flags of the control plane, behind `--`, in place of those that its leader publishes on its
    /// lease, such as `--feature-gates=Failover=true --resource-eviction-rate=5`. Without any,
    /// failover counts as on.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Returns the forecast; the exit code is 1 if something would have to leave and could
/// not.
pub(super) async fn carry_out(client: Client, options: &Options) -> anyhow::Result<Reply> {
    let running = Running::read(&client, &options.flags).await?;
    let (settings, is_off) = running.with_failover()?;
    let (record, pause_unread) = view::pause_if_read(&client).await;
    let lease = running::lease(&client, &running.settings).await;
    let nobody_leads = Leader::of(&lease, calendar()).missing();
    let what = selected(&client, &options.what).await?;
    let mut fleet = read(&client).await?;
    let disaster = disaster(&fleet, &what)?;
    let struck: Vec<String> = disaster.lost.union(&disaster.drained).cloned().collect();
    fleet.jobs = Jobs::read(&client, &fleet.bindings, &struck).await;
    let paused = pauses(record.as_ref(), &fleet.clusters, &disaster, calendar());
    let forecast = forecast(&fleet, &disaster, &settings, calendar());
    let report = Report {
        disaster: &disaster,
        forecast: &forecast,
        is_off,
        halted: running.ignores_taints(),
        nobody_leads: nobody_leads.as_deref(),
        paused: &paused,
        pause_unread: pause_unread.as_deref(),
        most: options.output.most(LISTED),
    };
    Ok(Reply {
        text: options.output.print(|| &report, &report.json())?,
        code: u8::from(report.strands()),
    })
}

/// Returns the pauses that hold and concern the clusters of a disaster, in words.
fn pauses(
    record: Option<&ConfigMap>,
    clusters: &[Cluster],
    disaster: &Disaster,
    now: Timestamp,
) -> Vec<String> {
    let names = || disaster.lost.iter().chain(&disaster.drained);
    let is_struck = |cluster: &&Cluster| names().any(|name| *name == cluster.name_any());
    let pauses = Pause::all(record, clusters.iter().filter(is_struck), now);
    pauses.map(|pause| pause.to_string()).collect()
}

/// Returns the same with the names of the clusters that selectors match.
async fn selected(client: &Client, what: &What) -> anyhow::Result<What> {
    let mut named = what.clone();
    let selectors = [
        (&what.lost_selector, &mut named.lost),
        (&what.drain_selector, &mut named.drain),
    ];
    for (selector, names) in selectors {
        if let Some(selector) = selector {
            let found = chosen::selected(client, selector).await?;
            ensure!(!found.is_empty(), "{}", chosen::nobody(selector));
            names.extend(found);
        }
    }
    Ok(named)
}

/// Returns the clusters that are meant.
fn disaster(fleet: &Fleet, what: &What) -> anyhow::Result<Disaster> {
    let names: BTreeSet<String> = fleet.clusters.iter().map(ResourceExt::name_any).collect();
    let all: Vec<String> = names.iter().cloned().collect();
    let known = |asked: &[String]| -> anyhow::Result<BTreeSet<String>> {
        for name in asked {
            if !names.contains(name) {
                return Err(no_cluster(name, &all));
            }
        }
        Ok(asked.iter().cloned().collect())
    };
    let mut lost = known(&what.lost)?;
    for region in &what.lost_region {
        let before = lost.len();
        let there = fleet.clusters.iter();
        lost.extend(
            there
                .filter(|cluster| cluster.spec.region.as_ref() == Some(region))
                .map(ResourceExt::name_any),
        );
        let regions = fleet
            .clusters
            .iter()
            .filter_map(|it| it.spec.region.clone());
        let regions: BTreeSet<String> = regions.filter(|it| !it.is_empty()).collect();
        let regions: Vec<String> = regions.into_iter().collect();
        let hint = if regions.is_empty() {
            ", nor any other region".to_owned()
        } else {
            instead(region, &regions)
        };
        ensure!(
            lost.len() > before,
            "no cluster has spec.region {region:?}{hint}"
        );
    }
    let drained = known(&what.drain)?;
    if let Some(both) = drained.intersection(&lost).next() {
        anyhow::bail!("cluster {both:?} cannot be lost and drained");
    }
    Ok(Disaster { lost, drained })
}

/// Reads the fleet, but for its Jobs.
async fn read(client: &Client) -> anyhow::Result<Fleet> {
    let (clusters, policies, bindings) = try_join3(
        list::all(Api::all(client.clone())),
        list::all(Api::all(client.clone())),
        list::bindings(client),
    )
    .await
    .map_err(anyhow::Error::msg)?;
    let needs = dependencies::read(client, &bindings).await;
    Ok(Fleet {
        jobs: Jobs::default(),
        clusters,
        bindings,
        policies,
        needs,
    })
}

#[cfg(test)]
mod tests;
