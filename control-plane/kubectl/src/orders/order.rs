//! Changes of Clusters: read, compare, one patch on the version that was read.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::api::Patch;
use muster_control_plane::fleet::attribution::Attribution;
use muster_control_plane::fleet::pause::{Pause, STEP};
use muster_shared::api::cluster::Cluster;
use muster_shared::check::listed;
use muster_shared::client;
use muster_shared::k8s::{Api, Client, ResourceExt, Taint};
use muster_shared::names::annotation::{ORDERED_BY, PAUSED};
use muster_shared::taints::{NO_SCHEDULE, put_on, take_off};
use muster_shared::write::patch_params;
use serde_json::{Value, json};

use super::server_time;
use crate::author::Author;
use crate::request::{FIELD_MANAGER, find_cluster};

/// Attempts of a write that others overtake.
const ATTEMPTS: usize = 10;
/// Clusters that a short pause names at most: each of those that it holds has the text.
const MOST_NAMED: usize = 10;

/// A change of taints and annotations.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Name of the order, as it is recorded with its author.
    pub name: &'static str,
    /// Words about what was done to a cluster, which follow its name.
    pub done: &'static str,
    /// Words that follow the name of a cluster if there was nothing to do.
    pub already: &'static str,
    /// Taints that are put on, as key and effect.
    pub add: Vec<(&'static str, &'static str)>,
    /// Taints that are taken off.
    pub remove: Vec<(&'static str, &'static str)>,
    /// Annotations that are written, or removed.
    pub annotations: Vec<(&'static str, Option<String>)>,
    /// What several clusters are given before any of them is given the order.
    pub before: Option<Before>,
}

/// First step of an order about several clusters, which are written one after the other: what it
/// begins in the first must not harm the others before their orders are written. If the command
/// ends in between, the same command again completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The taints that keep workloads out, so that none of the clusters takes what leaves another.
    /// They stay if the command ends.
    KeepAway,
    /// A short pause of each, so that nothing leaves the last as soon as the first counts as failed
    /// no more. It ends with the order in the same write, and by itself if the command ends.
    Hold,
}

impl Order {
    /// Returns the merge patch for a cluster; `None` if it is as ordered already.
    pub fn patch(&self, cluster: &Cluster, now: Timestamp) -> Option<Value> {
        let mut taints = cluster.spec.taints.clone();
        for (key, effect) in &self.remove {
            take_off(&mut taints, key, effect);
        }
        self.put_on(&mut taints, now);
        let mut patch = json!({});
        if taints != cluster.spec.taints {
            patch["spec"]["taints"] = json!(taints);
        }
        for (key, value) in &self.annotations {
            if cluster.annotations().get(*key) != value.as_ref() {
                patch["metadata"]["annotations"][*key] = json!(value);
            }
        }
        (patch != json!({})).then_some(patch)
    }

    /// Puts its taints on.
    fn put_on(&self, taints: &mut Vec<Taint>, now: Timestamp) {
        for (key, effect) in &self.add {
            let taint = Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                ..Taint::default()
            };
            put_on(taints, taint, now);
        }
    }

    /// Returns the merge patch of the first step for one of several clusters. `held` is the
    /// annotation of a short pause.
    fn first(&self, cluster: &Cluster, held: &str, now: Timestamp) -> Option<Value> {
        self.patch(cluster, now)?;
        match self.before? {
            Before::KeepAway => {
                let add = self.add.iter().copied();
                let add = add.filter(|(_, effect)| *effect == NO_SCHEDULE).collect();
                let out = Self {
                    add,
                    ..Self::default()
                };
                out.patch(cluster, now)
            }
            Before::Hold => hold(cluster, held, now),
        }
    }

    /// Returns the merge patch that carries the order out and ends the short pause.
    fn last(&self, cluster: &Cluster, held: &str, now: Timestamp) -> Option<Value> {
        let patch = self.patch(cluster, now);
        if !is_held(cluster, held) {
            return patch;
        }
        let mut patch = patch.unwrap_or_else(|| json!({}));
        patch["metadata"]["annotations"][PAUSED] = Value::Null;
        Some(patch)
    }
}

/// Returns the merge patch with the short pause of an order; `None` where nothing leaves the
/// cluster because somebody paused it.
pub(super) fn hold(cluster: &Cluster, held: &str, now: Timestamp) -> Option<Value> {
    let is_paused = Pause::of_cluster(cluster).is_some_and(|it| it.holds(now));
    (!is_paused).then(|| json!({"metadata": {"annotations": {PAUSED: held}}}))
}

/// Returns the merge patch that ends the short pause of an order; `None` if it is not there.
pub(super) fn let_go(cluster: &Cluster, held: &str) -> Option<Value> {
    is_held(cluster, held).then(|| json!({"metadata": {"annotations": {PAUSED: null}}}))
}

fn is_held(cluster: &Cluster, held: &str) -> bool {
    let pause = cluster.annotations().get(PAUSED);
    pause.is_some_and(|it| it == held)
}

/// Returns the short pause of an order about several clusters, as the annotation has it.
pub(super) fn held(names: &[String], now: Timestamp) -> String {
    let pause = Pause {
        reason: format!(
            "an order about {} is being written",
            listed(names, MOST_NAMED)
        ),
        by: FIELD_MANAGER.to_owned(),
        since: Some(now),
        until: now.checked_add(STEP).ok(),
        ..Pause::default()
    };
    json!(pause.fields()).to_string()
}

/// Gives an order to clusters; returns the answer.
pub(super) async fn give(
    client: &Client,
    names: &[String],
    order: &Order,
    author: &Author,
) -> anyhow::Result<String> {
    // All or none, as far as that can be known before: a typing error must not leave half an order.
    for name in names {
        find_cluster(client, name).await?;
    }
    // One time for all, so that no order is older than what it brings, and its steps are one.
    let now = server_time::now(client).await;
    let (held, given) = (held(names, now), author.order(order.name, now));
    if names.len() > 1 {
        // A short pause is nobody's order.
        let given = (order.before == Some(Before::KeepAway)).then_some(&given);
        for name in names {
            let first = |cluster: &Cluster| Ok(order.first(cluster, &held, now));
            change(client, name, given, first).await?;
        }
    }
    let mut reported = String::new();
    for name in names {
        // A new reason for an order that stands is recorded as well.
        let explains = !order.add.is_empty() && !given.reason.is_empty();
        let last = |cluster: &Cluster| {
            let patch = order.last(cluster, &held, now);
            Ok(patch.or_else(|| explains.then(|| json!({}))))
        };
        let changed = change(client, name, Some(&given), last).await;
        let is_changed = changed.with_context(|| half(&reported))?;
        let what = if is_changed {
            order.done
        } else {
            order.already
        };
        let _ = writeln!(reported, "Cluster {name} {what}");
    }
    Ok(reported)
}

/// Returns a message that says what an order about several clusters came to before it failed.
pub(super) fn half(reported: &str) -> String {
    let done = reported.lines().collect::<Vec<_>>().join("; ");
    let done = if done.is_empty() { "nothing" } else { &done };
    format!("the order is not complete, give it again (done so far: {done})")
}

/// Writes a change of a cluster upon its latest version, with the order that it is for; says
/// whether there was one to write.
pub(super) async fn change(
    client: &Client,
    name: &str,
    order: Option<&Attribution>,
    patch: impl Fn(&Cluster) -> anyhow::Result<Option<Value>>,
) -> anyhow::Result<bool> {
    let api: Api<Cluster> = Api::all(client.clone());
    for _ in 0..ATTEMPTS {
        let cluster = find_cluster(client, name).await?;
        let Some(mut patch) = patch(&cluster)? else {
            return Ok(false);
        };
        if let Some(order) = order {
            let orders = Attribution::added(&cluster.metadata, order.clone());
            patch["metadata"]["annotations"][ORDERED_BY] = json!(orders);
        }
        patch["metadata"]["resourceVersion"] = json!(cluster.resource_version());
        let parameters = patch_params(FIELD_MANAGER);
        match api.patch(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(true),
            Err(error) if client::is_conflict(&error) => {}
            Err(error) => bail!("change Cluster {name}: {}", client::brief(&error)),
        }
    }
    bail!("change Cluster {name}: others change it all the time; give the order again")
}

#[cfg(test)]
mod tests;
