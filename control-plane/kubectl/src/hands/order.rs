//! Changes of Clusters: read, compare, one patch on the version that was read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use muster_control_plane::pause::Pause;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{self, Head};
use muster_shared::k8s::{Api, Client, ResourceExt, Taint};
use muster_shared::names::annotation::PAUSED;
use muster_shared::taints::{NO_SCHEDULE, put_on, take_off};
use serde_json::{Value, json};

use super::server_time::ServerTime;
use crate::register::call;

const FIELD_MANAGER: &str = "kubectl-muster";
/// Attempts of a write that others overtake.
const ATTEMPTS: usize = 10;

/// A change of taints and annotations.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// What was done to a cluster, to follow its name.
    pub done: &'static str,
    /// The same if there was nothing to do.
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
/// begins in the first must not harm the others before their turn has come. If the command ends in
/// between, the same command again completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The taints that keep workloads out, so that none of the clusters takes what leaves another.
    /// They stay if the command ends.
    KeepAway,
    /// A short pause of each, so that nothing leaves the last as soon as the first counts as failed
    /// no more. It ends with the order in the same write, and by itself if the command ends.
    Hold,
}

/// Time after which such a pause ends by itself.
const HELD: SignedDuration = SignedDuration::from_mins(1);

impl Order {
    /// The merge patch for a cluster; `None` if it is as ordered already.
    pub fn patch(&self, cluster: &Cluster, now: Timestamp) -> Option<Value> {
        let mut taints = cluster.spec.taints.clone();
        for (key, effect) in &self.remove {
            take_off(&mut taints, key, effect);
        }
        for (key, effect) in &self.add {
            let taint = Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                ..Taint::default()
            };
            put_on(&mut taints, taint, now);
        }
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

    /// The merge patch of the first step for one of several clusters. `held` is the annotation of a
    /// short pause.
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
            // Nothing leaves a cluster that somebody paused.
            Before::Hold if Pause::of_cluster(cluster).is_some_and(|it| it.holds(now)) => None,
            Before::Hold => Some(json!({"metadata": {"annotations": {PAUSED: held}}})),
        }
    }

    /// The merge patch that carries it out and ends the short pause.
    fn last(&self, cluster: &Cluster, held: &str, now: Timestamp) -> Option<Value> {
        let patch = self.patch(cluster, now);
        let is_held = cluster
            .annotations()
            .get(PAUSED)
            .is_some_and(|it| it == held);
        if !is_held {
            return patch;
        }
        let mut patch = patch.unwrap_or_else(|| json!({}));
        patch["metadata"]["annotations"][PAUSED] = Value::Null;
        Some(patch)
    }
}

/// The short pause of an order about several clusters, as the annotation has it.
fn held(names: &[String], now: Timestamp) -> String {
    let pause = Pause {
        reason: format!("an order about {} is being written", names.join(", ")),
        by: FIELD_MANAGER.to_owned(),
        since: Some(now),
        until: now.checked_add(HELD).ok(),
        ..Pause::default()
    };
    json!(pause.fields()).to_string()
}

/// Names, each once, in their order.
pub(super) fn once(names: &[String]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let each = names.iter().filter(|it| known.insert(*it));
    each.cloned().collect()
}

/// Gives an order to clusters; returns the answer.
pub(super) async fn give(
    client: &Client,
    names: &[String],
    order: &Order,
) -> anyhow::Result<String> {
    let names = once(names);
    // All or none, as far as that can be known before: a typing error must not leave half an order.
    for name in &names {
        find(client, name).await?;
    }
    let time = ServerTime::ask(client).await;
    let held = held(&names, time.now());
    if names.len() > 1 {
        for name in &names {
            let first = |cluster: &Cluster| Ok(order.first(cluster, &held, time.now()));
            change(client, name, first).await?;
        }
    }
    let mut told = String::new();
    for name in &names {
        let last = |cluster: &Cluster| Ok(order.last(cluster, &held, time.now()));
        let changed = change(client, name, last).await;
        let is_changed = changed.with_context(|| half(&told))?;
        let what = if is_changed {
            order.done
        } else {
            order.already
        };
        let _ = writeln!(told, "Cluster {name} {what}");
    }
    Ok(told)
}

/// What an order about several clusters came to before it failed.
fn half(told: &str) -> String {
    let done = told.lines().collect::<Vec<_>>().join("; ");
    let done = if done.is_empty() { "nothing" } else { &done };
    format!("the order is not complete, give it again (done so far: {done})")
}

/// Writes a change of a cluster upon its latest version; says whether there was one to write.
pub(super) async fn change(
    client: &Client,
    name: &str,
    patch: impl Fn(&Cluster) -> anyhow::Result<Option<Value>>,
) -> anyhow::Result<bool> {
    let api: Api<Cluster> = Api::all(client.clone());
    for _ in 0..ATTEMPTS {
        let cluster = find(client, name).await?;
        let Some(mut patch) = patch(&cluster)? else {
            return Ok(false);
        };
        patch["metadata"]["resourceVersion"] = json!(cluster.resource_version());
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match api.patch(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(true),
            Err(error) if client::is_conflict(&error) => {}
            Err(error) => bail!("change Cluster {name}: {}", client::brief(&error)),
        }
    }
    bail!("change Cluster {name}: others change it all the time")
}

/// Reads a cluster.
pub(crate) async fn find(client: &Client, name: &str) -> anyhow::Result<Cluster> {
    let api: Api<Cluster> = Api::all(client.clone());
    ensure!(!name.is_empty(), "the name of a cluster is empty");
    if let Some(cluster) = call("read the Cluster", api.get_opt(name)).await? {
        return Ok(cluster);
    }
    let api = Api::all(client.clone());
    let whole = ListParams::default();
    let all = call("list clusters", Head::<Cluster>::list(&api, &whole)).await?;
    let names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
    bail!("there is no Cluster {name:?}{}", instead(name, &names))
}

/// Names listed at most.
const LISTED: usize = 10;

/// What may have been meant.
pub(crate) fn instead(name: &str, names: &[String]) -> String {
    let wanted = name.to_lowercase();
    let far = |other: &str| {
        let other = other.to_lowercase();
        let is_part = other.contains(&wanted) || wanted.contains(&other);
        let distance = distance(&wanted, &other);
        if is_part { distance.min(2) } else { distance }
    };
    let nearest = names.iter().map(|it| far(it)).min().filter(|it| *it <= 2);
    let near = names.iter().filter(|it| Some(far(it)) == nearest);
    let meant: Vec<&str> = near.map(String::as_str).take(3).collect();
    if !meant.is_empty() {
        return format!(": is it {}?", meant.join(" or "));
    }
    if names.is_empty() {
        return ", nor any other: is this the fleet API?".to_owned();
    }
    let more = names.len().saturating_sub(LISTED);
    let listed = names[..names.len().min(LISTED)].join(", ");
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(": there are {listed}{more}")
}

/// Letters that have to be changed, added or left out to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
