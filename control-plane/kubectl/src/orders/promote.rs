//! `kubectl muster promote`.

use std::fmt::Write as _;

use anyhow::{bail, ensure};
use clap::Args;
use kube::Config;
use kube::api::{ListParams, Patch};
use muster_control_plane::fleet::attribution::{Attribution, order};
use muster_control_plane::fleet::pause::{NAME, Pause};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::clock::later;
use muster_shared::fleet_epoch;
use muster_shared::k8s::{Api, Client, ConfigMap, Lease, Namespace};
use muster_shared::names::annotation::FLEET_EPOCH;
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use muster_shared::settings::Duration;
use muster_shared::write::patch_params;
use serde_json::json;

use super::pause::{record, write};
use super::server_time;
use crate::author::Why;
use crate::output::warn;
use crate::request::{FIELD_MANAGER, call};
use crate::table::count;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Epoch to give the store, where another one than the next is needed: agents that refuse it
    /// say which epoch they have seen.
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<u64>,
    /// Time in which nothing moves, so that every cluster finds its way here; 0 for none.
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    grace: Duration,
    /// Says what would be done, and does nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
}

/// Promotions at most that a store may have missed. An agent that says more may be a stolen one.
const MISSED: u64 = 1000;

/// Returns the epoch to give a store that has one, of which agents have seen others.
fn next(own: u64, seen: impl IntoIterator<Item = u64>, asked: Option<u64>) -> Result<u64, String> {
    if let Some(asked) = asked {
        let least = own.saturating_add(1);
        let problem =
            || format!("--epoch is {asked}; the store has {own}: {least} or more is allowed");
        return (asked > own).then_some(asked).ok_or_else(problem);
    }
    let believed = own.saturating_add(MISSED);
    let seen = seen.into_iter().filter(|it| *it <= believed);
    let newest = seen.fold(own, u64::max);
    let next = newest.checked_add(1);
    next.ok_or_else(|| format!("the store has epoch {newest}, which is the last one"))
}

pub(super) async fn carry_out(
    client: &Client,
    config: &Config,
    options: &Options,
) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let step = "read namespace karmada-cluster";
    let Some(namespace) = call(
        step,
        client::get_metadata_opt(&namespaces, CLUSTER_NAMESPACE),
    )
    .await?
    else {
        bail!(
            "this API has no namespace {CLUSTER_NAMESPACE}: is it the restored store of a fleet?"
        );
    };
    let own = fleet_epoch::of(&namespace.metadata).unwrap_or_else(|problem| {
        warn(&format_args!("{problem}; it counts as 0"));
        0
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    let leases = call("list leases", leases.list(&ListParams::default())).await?;
    let seen = leases.items.iter().filter_map(fleet_epoch::seen);
    let epoch = next(own, seen, options.epoch).map_err(anyhow::Error::msg)?;
    let clusters: Api<Cluster> = Api::all(client.clone());
    let whole = ListParams::default();
    let clusters = call("list clusters", clusters.list_metadata(&whole)).await?;
    let clusters = clusters.items.len();
    ensure!(
        clusters > 0,
        "this store has no clusters: is it the restored store of a fleet?"
    );
    let clusters = count(clusters, "cluster");
    let server = &config.cluster_url;
    if options.dry_run {
        return Ok(format!(
            "The store at {server} has epoch {own} and {clusters}. It would get epoch {epoch}, and movement would be paused \
             for {}. Nothing was done\n",
            options.grace
        ));
    }
    let now = server_time::now(client).await;
    let author = options.why.author(client).await;
    let grace = options.grace.0;
    let mut reported = String::new();
    if grace.is_zero() {
        reported
            .push_str("Movement is not paused: clusters that do not report here in time fail\n");
    } else {
        let pause = Pause {
            reason: format!("promotion to epoch {epoch}: every cluster gets a full grace"),
            by: author.by.clone(),
            since: Some(now),
            until: Some(later(now, grace)),
            ..Pause::default()
        };
        let order = author.order(order::PAUSE, now);
        let _ = if hold(client, &pause, order).await? {
            writeln!(
                reported,
                "From now on {pause}. kubectl muster resume ends it"
            )
        } else {
            writeln!(
                reported,
                "Movement was paused already, and stays so: kubectl muster resume ends it"
            )
        };
    }
    // The pause comes first: whoever obeys the new epoch finds it.
    let patch = json!({"metadata": {
        "resourceVersion": namespace.metadata.resource_version,
        "annotations": {FLEET_EPOCH: epoch.to_string()},
    }});
    let params = patch_params(FIELD_MANAGER);
    let patch = Patch::Merge(&patch);
    let write = namespaces.patch_metadata(CLUSTER_NAMESPACE, &params, &patch);
    call("write the epoch", write).await?;
    let _ = write!(
        reported,
        "The store at {server} has epoch {epoch} now; it had {own}. It knows {clusters}\n\
         An agent that has seen it obeys no store with a lower epoch, and a control plane that learns of it leads none\n\
         \n\
         What to do now:\n\
         1. Start the control plane of this host, if it does not run. One that runs ends and starts again by itself\n\
         2. Leave the former host off. Where it may come back, first keep its control plane from starting:\n   \
            kubectl -n NAMESPACE scale deployment RELEASE --replicas=0     (with the kubeconfig of the former host cluster)\n   \
            It is no longer obeyed by any agent that has been here; it becomes the standby of this store by a restore\n\
         3. kubectl muster status: clusters that do not report here have no address of this host (fleet.servers of their chart)\n\
         4. kubectl muster status: clusters with ObjectsWithoutWork=True run what this store does not know (WHY names it)\n\
         5. Clusters that joined after the snapshot: kubectl muster token create --cluster-name NAME\n"
    );
    Ok(reported)
}

/// Pauses the fleet unless it is paused for at least as long; returns whether it was not. One that
/// ends earlier, such as one in the snapshot, gives no cluster its full grace.
async fn hold(client: &Client, pause: &Pause, order: Attribution) -> anyhow::Result<bool> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let found = call("read the record of a pause", client::get_opt(&api, NAME)).await?;
    if found.is_some_and(|it| lasts(&Pause::of_fleet(&it), pause)) {
        return Ok(false);
    }
    write(client, &record(pause, order)).await?;
    Ok(true)
}

/// Returns whether a pause holds for at least as long as a new one would. One that has ended by
/// itself leaves its record.
fn lasts(known: &Pause, new: &Pause) -> bool {
    known
        .until
        .is_none_or(|until| new.until.is_some_and(|new| until >= new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_ends_before_the_grace_does_not_take_its_place() {
        let until = |second: Option<i64>| Pause {
            until: second.map(|it| jiff::Timestamp::from_second(it).unwrap()),
            ..Pause::default()
        };
        for (known, new, expected) in [
            (None, Some(600), true),
            (Some(600), Some(600), true),
            (Some(900), Some(600), true),
            (Some(599), Some(600), false),
            (Some(-1), Some(600), false),
            (Some(600), None, false),
        ] {
            let found = lasts(&until(known), &until(new));
            assert_eq!(found, expected, "{known:?} {new:?}");
        }
    }

    #[test]
    fn an_epoch_is_higher_than_any_that_may_have_been_seen() {
        for (own, seen, asked, expected) in [
            (0, vec![], None, Ok(1)),
            (1, vec![3, 4], None, Ok(5)),
            (4, vec![1], None, Ok(5)),
            (1, vec![], Some(7), Ok(7)),
            (1, vec![9], Some(5), Ok(5)),
            (1, vec![2, u64::MAX], None, Ok(3)),
            (3, vec![], Some(3), Err("4 or more")),
            (u64::MAX, vec![], None, Err("the last one")),
        ] {
            let found = next(own, seen.clone(), asked);
            match expected {
                Ok(epoch) => assert_eq!(found, Ok(epoch), "{own} {seen:?} {asked:?}"),
                Err(words) => assert!(found.unwrap_err().contains(words), "{own} {seen:?}"),
            }
        }
    }
}
