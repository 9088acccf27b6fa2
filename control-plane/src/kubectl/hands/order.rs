//! Changes of Clusters: read, compare, one patch on the version that was read.

use std::fmt::Write as _;

use anyhow::{bail, ensure};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, ResourceExt, Taint};
use muster_shared::taints::{put_on, take_off};
use serde_json::{Value, json};

use crate::kubectl::register::call;

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
}

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
}

/// Gives an order to clusters; returns the answer.
pub(super) async fn give(
    client: &Client,
    names: &[String],
    order: &Order,
) -> anyhow::Result<String> {
    // All or none, as far as that can be known before: a typing error must not leave half an order.
    for name in names {
        find(client, name).await?;
    }
    let mut told = String::new();
    for name in names {
        let changed = change(client, name, |cluster| Ok(order.patch(cluster, calendar()))).await?;
        let what = if changed { order.done } else { order.already };
        let _ = writeln!(told, "Cluster {name} {what}");
    }
    Ok(told)
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
pub(in crate::kubectl) async fn find(client: &Client, name: &str) -> anyhow::Result<Cluster> {
    let api: Api<Cluster> = Api::all(client.clone());
    ensure!(!name.is_empty(), "the name of a cluster is empty");
    if let Some(cluster) = call("read the Cluster", api.get_opt(name)).await? {
        return Ok(cluster);
    }
    let all = call("list clusters", api.list_metadata(&ListParams::default())).await?;
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
mod tests {
    use super::*;

    fn cluster(taints: &Value, annotations: &Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "m1", "annotations": annotations},
            "spec": {"syncMode": "Pull", "taints": taints},
        }))
        .unwrap()
    }

    #[test]
    fn an_order_changes_its_own_taints_and_annotations_and_nothing_that_is_so_already() {
        let now = Timestamp::from_second(100).unwrap();
        let drain = crate::kubectl::hands::drain::order(Some(&"0.5".to_owned()));
        let undrain = crate::kubectl::hands::drain::undrain();
        let mine = json!({"key": "mine", "effect": "NoExecute"});
        let no = |effect| json!({"key": "failover.muster.io/drain", "effect": effect, "timeAdded": "1970-01-01T00:01:40Z"});
        let before = cluster(&json!([mine]), &json!({"a": "b"}));
        let patch = drain.patch(&before, now).unwrap();
        let taints = json!([mine, no("NoSchedule"), no("NoExecute")]);
        assert_eq!(
            patch,
            json!({
                "spec": {"taints": taints},
                "metadata": {"annotations": {"failover.muster.io/drain-rate": "0.5"}},
            })
        );
        let drained = cluster(&taints, &json!({"failover.muster.io/drain-rate": "0.5"}));
        let later = Timestamp::from_second(200).unwrap();
        assert_eq!(
            drain.patch(&drained, later),
            None,
            "no toleration starts anew"
        );
        let again = crate::kubectl::hands::drain::order(None);
        assert_eq!(again.patch(&drained, later), None, "the rate stays");
        assert_eq!(
            undrain.patch(&drained, later).unwrap(),
            json!({
                "spec": {"taints": [mine]},
                "metadata": {"annotations": {"failover.muster.io/drain-rate": null}},
            })
        );
        assert_eq!(undrain.patch(&before, now), None);
        let cordoned = super::super::cordon().patch(&before, now).unwrap();
        let on = json!({"key": "failover.muster.io/cordon", "effect": "NoSchedule", "timeAdded": "1970-01-01T00:01:40Z"});
        assert_eq!(cordoned, json!({"spec": {"taints": [mine, on]}}));
        let both = cluster(&json!([on, no("NoExecute")]), &json!({}));
        let left = super::super::uncordon().patch(&both, now).unwrap();
        assert_eq!(left, json!({"spec": {"taints": [no("NoExecute")]}}));
    }

    #[test]
    fn a_typing_error_is_answered_with_what_may_have_been_meant() {
        let names = ["member1", "member2", "eu-west"].map(str::to_owned);
        for (name, expected) in [
            ("membr1", ": is it member1?"),
            ("Member2", ": is it member2?"),
            ("member3", ": is it member1 or member2?"),
            ("west", ": is it eu-west?"),
            ("asia", ": there are member1, member2, eu-west"),
        ] {
            assert_eq!(instead(name, &names), expected, "{name}");
        }
        assert!(instead("x", &[]).contains("fleet API"));
        let many: Vec<String> = (0..12).map(|n| format!("cluster-{n}")).collect();
        assert!(instead("zzz", &many).ends_with("and 2 more"));
    }
}
