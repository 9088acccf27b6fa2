//! `kubectl muster cordon`, `uncordon`, `taint`, `drain`, `undrain`: a person's orders about
//! clusters.
//!
//! Each order is a change of a Cluster object. The control plane carries it out, and goes on with
//! it whatever becomes of the command and of the control plane's own processes.

mod drain;
mod follow;
mod order;
mod pause;
mod preview;
mod progress;
mod promote;
mod server_time;
mod taint;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use kube::Config;
use muster_control_plane::fleet::attribution;
use muster_shared::clock::calendar;
use muster_shared::k8s::Client;
use muster_shared::names::taint::CORDON;
use muster_shared::taints::NO_SCHEDULE;

use self::order::Order;
use super::author::Why;
use super::chosen::{Clusters, required};
use super::line;
use super::output::Reply;
use super::standstill::MovementState;

/// Clusters that an order is about.
#[derive(Debug, Args)]
#[command(mut_arg("clusters", required))]
pub(super) struct Ordered {
    #[command(flatten)]
    clusters: Clusters,
    #[command(flatten)]
    why: Why,
}

impl Ordered {
    async fn give(&self, client: &Client, order: &Order) -> anyhow::Result<String> {
        let author = self.why.author(client).await;
        let names = self.clusters.ordered(client).await?.unwrap_or_default();
        order::give(client, &names, order, &author).await
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Empties clusters: moves their workloads to others.
    ///
    /// Each moves when its new copy can be placed. The order is recorded in the Cluster and holds
    /// until `undrain`, across Ctrl-C and restarts of the control plane. It moves workloads even if
    /// the feature gate Failover is off. Old copies stay until the new ones are healthy, unless the
    /// policy says otherwise; what is stranded (no other cluster can take it) stays.
    ///
    /// Exit codes: 0 done, 1 error, 2 wrong command line, 3 a workload is stranded, 4 not
    /// done within --timeout, 130 interrupted (the drain goes on). What stays because too many
    /// clusters have failed, drained ones included, counts as stranded.
    #[command(after_help = line::examples(&[
        "drain member1 --dry-run",
        "drain member1 member2 --reason 'an upgrade' --wait",
        "drain -l region=eu --rate 0.2",
    ]))]
    Drain(drain::Options),
    /// Ends the drain of clusters; nothing moves back unless failback is asked for.
    Undrain(Ordered),
    /// Keeps new workloads out of clusters; what is there stays.
    Cordon(Ordered),
    /// Lets new workloads into clusters again.
    Uncordon(Ordered),
    /// Puts taints on clusters, or takes them off.
    #[command(after_help = line::examples(&[
        "taint member1 example.com/maintenance=now:NoSchedule",
        "taint clusters -l region=eu example.com/maintenance-",
    ]))]
    Taint(taint::Options),
    /// Stops all movement at once, in the whole fleet or out of clusters.
    ///
    /// That is evictions by taints and drains, moves of failing applications, new placements in
    /// place of others, and the removal of old copies. Clusters are still watched, and new
    /// workloads placed.
    #[command(after_help = line::examples(&[
        "pause --reason 'change freeze' --for 2h",
        "pause cluster/member1",
    ]))]
    Pause(pause::Options),
    /// Ends a pause: what waits moves at the rate of the fleet.
    Resume(pause::Resuming),
    /// Makes a restored store the one that the fleet obeys, after its former host was lost.
    ///
    /// Run it with the kubeconfig of the restored store. It raises the epoch of the store, so that
    /// agents and control planes that have seen it obey no older one, and pauses movement for a
    /// while, so that every cluster gets a full grace. It says what to do with the former host.
    #[command(after_help = line::examples(&["promote --dry-run", "promote --reason fire"]))]
    Promote(promote::Options),
}

pub(super) async fn carry_out(
    client: Client,
    config: &Config,
    command: Command,
) -> anyhow::Result<Reply> {
    let text = match command {
        Command::Cordon(options) => options.give(&client, &cordon()).await,
        Command::Uncordon(options) => options.give(&client, &uncordon()).await,
        Command::Taint(options) => return Ok(taint::carry_out(&client, &options).await?.into()),
        Command::Drain(options) => return drain::carry_out(&client, config, &options).await,
        Command::Pause(options) => pause::carry_out(&client, &options).await,
        Command::Resume(options) => pause::resume(&client, &options).await,
        Command::Promote(options) => promote::carry_out(&client, config, &options).await,
        Command::Undrain(options) => options.give(&client, &drain::undrain()).await,
    };
    let mut text = text?;
    if let Some(nobody) = MovementState::read(&client).await.nobody_leads(calendar()) {
        let _ = writeln!(text, "Warning: {nobody}");
    }
    Ok(text.into())
}

fn cordon() -> Order {
    Order {
        name: attribution::order::CORDON,
        done: "cordoned: no new workload is placed there",
        already: "was cordoned already",
        add: vec![(CORDON, NO_SCHEDULE)],
        ..Order::default()
    }
}

fn uncordon() -> Order {
    Order {
        name: attribution::order::UNCORDON,
        done: "uncordoned",
        already: "was not cordoned",
        remove: vec![(CORDON, NO_SCHEDULE)],
        ..Order::default()
    }
}
