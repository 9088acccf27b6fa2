//! `kubectl muster get clusters`, `get workloads`: what the fleet has, one line each.

mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use futures::join;
use kube::ResourceExt as _;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, Lease};
use muster_shared::names::CLUSTER_NAMESPACE;
use serde::Serialize;

use self::rows::{ClusterRow, WorkloadRow};
use super::list::{all, bindings};
use super::running::{self, Running};
use super::status::Leader;
use crate::eviction::any_binding::AnyBinding;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// Table.
    #[default]
    Table,
    /// Table with more columns.
    Wide,
    /// Names, one a line, as `kubectl get -o name` prints them.
    Name,
    /// JSON list.
    Json,
    /// YAML list.
    Yaml,
}

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    what: What,
    /// How the answer is printed.
    #[arg(long, short, global = true, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Clusters: state, since when, last heard, taints, nodes, workloads, version of the agent.
    #[command(visible_aliases = ["cluster", "cl"])]
    Clusters,
    /// Workloads: where they are, where they are leaving, and why one waits.
    #[command(visible_aliases = ["workload", "wl"])]
    Workloads {
        /// In all namespaces, and what has none.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
        /// Only those on this cluster, or leaving it.
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
    },
}

/// The answer as text.
pub(super) async fn carry_out(
    client: &Client,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<String> {
    let said = |error: String| anyhow::anyhow!(error);
    let now = calendar();
    match &options.what {
        What::Clusters => {
            let own = Running::of(&[], None)?;
            let (leader, clusters, leases, bindings) = join!(
                running::lease(client, &own.settings),
                all::<Cluster>(Api::all(client.clone())),
                all::<Lease>(Api::namespaced(client.clone(), CLUSTER_NAMESPACE)),
                bindings(client),
            );
            // Whoever may not read leases and workloads sees the clusters.
            let leases: BTreeMap<String, Lease> = leases
                .unwrap_or_default()
                .into_iter()
                .map(|it| (it.name_any(), it))
                .collect();
            let leader = Leader::of(&leader, now);
            let counts = bindings.ok().map(|it| rows::counts(&it));
            let clusters = clusters.map_err(said)?;
            let rows: Vec<ClusterRow> = clusters
                .iter()
                .map(|it| {
                    let lease = leases.get(&it.name_any());
                    let is_unheard = leader.leaves_silent(lease, now);
                    ClusterRow::of(it, lease, is_unheard, counts.as_ref())
                })
                .collect();
            print(&rows, options.output, |wide| {
                rows::clusters(&rows, wide, now)
            })
        }
        What::Workloads {
            all_namespaces,
            cluster,
        } => {
            let bindings = if *all_namespaces {
                bindings(client).await
            } else {
                let api: Api<ResourceBinding> = Api::namespaced(client.clone(), namespace);
                let own = all(api).await;
                own.map(|it| it.into_iter().map(|it| Arc::new(it).into()).collect())
            };
            let bindings: Vec<AnyBinding> = bindings.map_err(said)?;
            let rows: Vec<WorkloadRow> = bindings
                .iter()
                .map(WorkloadRow::of)
                .filter(|it| cluster.as_ref().is_none_or(|name| it.concerns(name)))
                .collect();
            print(&rows, options.output, |wide| {
                rows::workloads(&rows, wide, now)
            })
        }
    }
}

/// A row that has a name for kubectl.
pub(super) trait Named {
    fn name(&self) -> String;
}

/// Rows in a format; `table` prints them as a table, a wide one if asked for that.
pub(super) fn print<R: Serialize + Named>(
    rows: &[R],
    format: Format,
    table: impl Fn(bool) -> String,
) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(rows)?),
        Format::Yaml => serde_saphyr::to_string(&rows)?,
        Format::Name => rows
            .iter()
            .flat_map(|it| [it.name(), "\n".to_owned()])
            .collect(),
        _ if rows.is_empty() => "There are none.\n".to_owned(),
        Format::Table => table(false),
        Format::Wide => table(true),
    })
}
