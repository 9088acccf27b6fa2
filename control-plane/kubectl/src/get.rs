//! `kubectl muster get clusters`, `get workloads`: what the fleet has, one line each.

mod rows;

use std::sync::Arc;

use clap::{Args, Subcommand};
use futures::join;
use jiff::Timestamp;
use kube::ResourceExt;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::{AnyBinding, BindingKind};
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client};

use self::rows::{Left, WorkloadRow};
use super::cluster_row::{ClusterRow, Counts};
use super::leader::Leader;
use super::list::{bindings, bindings_of, works};
use super::old_copies::{self, OldCopies, SILENT, old_copies};
use super::request::{find_cluster, require_namespace};
use super::rows::{Format, print};
use super::view::{self, View};

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
    Clusters {
        /// Only these; without a name all.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
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

/// Returns the answer as text.
pub(super) async fn carry_out(
    client: &Client,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<String> {
    let said = |error: String| anyhow::anyhow!(error);
    let now = calendar();
    match &options.what {
        What::Clusters { names } => {
            for name in names {
                find_cluster(client, name).await?;
            }
            let own = Settings::default();
            let (view, bindings, works, record) = join!(
                View::read(client, &own),
                bindings(client),
                works(Api::all(client.clone())),
                view::pause(client),
            );
            // Whoever may not read the record is not told of the pause.
            let pause = record.ok().flatten().map(|it| Pause::of_fleet(&it));
            let pause = pause.filter(|it| it.holds(now));
            // Whoever may not read leases and workloads sees the clusters.
            let leases = view.leases.unwrap_or_default();
            let leader = Leader::of(&view.leader, now);
            let counts = Counts::of(bindings.ok().as_deref(), works.ok().as_deref());
            let mut clusters = view.clusters.map_err(said)?;
            clusters.retain(|it| names.is_empty() || names.contains(&it.name_any()));
            let rows: Vec<ClusterRow> = clusters
                .iter()
                .map(|it| {
                    let lease = leases.get(&it.name_any());
                    let is_unheard = leader.leaves_silent(lease, now);
                    let marks = (is_unheard, pause.is_some());
                    ClusterRow::of(it, lease, marks, &counts, now)
                })
                .collect();
            print(&rows, options.output, |wide| {
                rows::clusters(&rows, pause.as_ref(), wide, now)
            })
        }
        What::Workloads {
            all_namespaces,
            cluster,
        } => {
            if let Some(cluster) = cluster {
                find_cluster(client, cluster).await?;
            }
            let bindings = if *all_namespaces {
                bindings(client).await
            } else {
                let kind = BindingKind::Namespaced;
                let api = Api::namespaced_with(client.clone(), namespace, &kind);
                let own = bindings_of(api, kind).await;
                own.map(|it| it.into_iter().map(Arc::new).collect())
            };
            let bindings: Vec<Arc<AnyBinding>> = bindings.map_err(said)?;
            if bindings.is_empty() && !*all_namespaces {
                require_namespace(client, namespace).await?;
            }
            let left = left(client, &bindings, now).await;
            let rows: Vec<WorkloadRow> = bindings
                .iter()
                .map(|it| WorkloadRow::of(it, &left))
                .filter(|it| cluster.as_ref().is_none_or(|name| it.concerns(name)))
                .collect();
            print(&rows, options.output, |wide| {
                rows::workloads(&rows, wide, now)
            })
        }
    }
}

/// Returns what is left of workloads in clusters where they are not placed any more, as far as it
/// may be read.
async fn left(client: &Client, bindings: &[Arc<AnyBinding>], now: Timestamp) -> Left {
    let own = Settings::default();
    let (view, works) = join!(View::read(client, &own), works(Api::all(client.clone())));
    let leader = Leader::of(&view.leader, now);
    let leases = view.leases.unwrap_or_default();
    let is_silent = |cluster: &Cluster| {
        let lease = leases.get(&cluster.name_any());
        let is_unheard = leader.leaves_silent(lease, now);
        let state = old_copies::state_of(Some(cluster));
        state.map_or(is_unheard, |it| it == SILENT)
    };
    let clusters = view.clusters.unwrap_or_default();
    let not_heard = clusters.iter().filter(|it| is_silent(it));
    Left {
        not_heard: not_heard.map(ResourceExt::name_any).collect(),
        copies: works.map_or_else(|_| OldCopies::new(), |it| old_copies(&it, bindings)),
    }
}
