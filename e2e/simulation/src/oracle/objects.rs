//! How oracles read objects: by the API's words, without the product's types.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::history::{Api, Key};

/// API group of Works and bindings.
pub const WORK: &str = "work.karmada.io";
/// API group of Clusters.
pub const CLUSTER: &str = "cluster.karmada.io";
/// API group of policies.
pub const POLICY: &str = "policy.karmada.io";
/// Prefix of the namespaces with the Works of a cluster.
pub const EXECUTION: &str = "karmada-es-";

/// Annotation with the last eviction by a taint.
pub const LAST_EVICTION: &str = "failover.muster.io/last-eviction";

/// Returns what an object is known by.
pub fn key(api: &Api, group: &str, plural: &str, namespace: &str, name: &str) -> Key {
    Key {
        api: api.clone(),
        group: group.to_owned(),
        plural: plural.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Returns a text at a JSON pointer; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns a number at a JSON pointer.
pub fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Returns the items of a list at a JSON pointer.
pub fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns a label.
pub fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"][name].as_str()
}

/// Returns whether an agent has stopped an object, because its member was cut off.
pub fn is_stopped(object: &Value) -> bool {
    annotation(object, "failover.muster.io/stopped").is_some()
}

/// Returns an annotation.
pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Returns whether the object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns a condition of the object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").find(|condition| condition["type"] == kind)
}

/// Returns a time at a JSON pointer.
pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// Returns whether an object speaks anywhere of a time after a moment.
pub fn is_dated_after(object: &Value, moment: Timestamp) -> bool {
    match object {
        Value::String(text) => text
            .split(|symbol: char| !symbol.is_ascii_alphanumeric() && !"-:.+".contains(symbol))
            .filter_map(|word| word.trim_end_matches(['.', ':']).parse::<Timestamp>().ok())
            .any(|time| time > moment),
        Value::Array(items) => items.iter().any(|it| is_dated_after(it, moment)),
        Value::Object(fields) => fields.values().any(|it| is_dated_after(it, moment)),
        _ => false,
    }
}

/// Returns the plural name of a kind, by the rule that all kinds in use follow.
pub fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if let Some(stem) = lower.strip_suffix('y') {
        return format!("{stem}ies");
    }
    let ending = if lower.ends_with('s') { "es" } else { "s" };
    lower + ending
}

/// Returns the key of an object that `apiVersion`, `kind`, `namespace` and `name` of a reference
/// name.
pub fn referent(api: &Api, reference: &Value) -> Option<Key> {
    let version = reference["apiVersion"].as_str()?;
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = reference["kind"].as_str()?;
    let named = |place: &Value| place["name"].as_str().map(str::to_owned);
    let name = named(reference).or_else(|| named(&reference["metadata"]))?;
    let namespace = reference["namespace"]
        .as_str()
        .or_else(|| reference["metadata"]["namespace"].as_str())
        .unwrap_or_default();
    Some(key(api, group, &plural(kind), namespace, &name))
}

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a>(pub &'a Value);

/// A graceful eviction task.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a>(pub &'a Value);

/// A Cluster.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a>(pub &'a Value);

impl<'a> Binding<'a> {
    /// Returns the chosen clusters with their replicas.
    pub fn clusters(self) -> BTreeMap<&'a str, i64> {
        items(self.0, "/spec/clusters")
            .map(|target| {
                let replicas = target["replicas"].as_i64().unwrap_or_default();
                (text(target, "/name"), replicas)
            })
            .collect()
    }

    /// Returns the eviction tasks.
    pub fn tasks(self) -> impl Iterator<Item = Task<'a>> {
        items(self.0, "/spec/gracefulEvictionTasks").map(Task)
    }

    /// Returns the task of leaving a cluster.
    pub fn task(self, cluster: &str) -> Option<Task<'a>> {
        self.tasks().find(|task| task.from() == cluster)
    }

    /// Clusters in which the workloads run that depend on this one.
    pub fn required(self) -> BTreeSet<&'a str> {
        items(self.0, "/spec/requiredBy")
            .flat_map(|by| items(by, "/clusters"))
            .map(|target| text(target, "/name"))
            .collect()
    }

    /// Returns whether a copy is to be in a cluster, if only for a while.
    pub fn keeps(self, cluster: &str) -> bool {
        self.clusters().contains_key(cluster)
            || self.required().contains(cluster)
            || self.task(cluster).is_some()
    }

    /// Returns the template.
    pub fn template(self) -> Option<Key> {
        referent(&Api::Fleet, self.0.pointer("/spec/resource")?)
    }

    /// Returns how the old copy goes when a cluster fails, in the newer spelling; empty if the
    /// policy says nothing.
    pub fn cluster_purge_mode(self) -> &'a str {
        canonical(text(self.0, "/spec/failover/cluster/purgeMode"))
    }

    /// Returns how the old copy goes when the application fails.
    pub fn application_purge_mode(self) -> &'a str {
        canonical(text(self.0, "/spec/failover/application/purgeMode"))
    }

    /// Returns whether nothing is sent to a cluster, because dispatching is suspended.
    pub fn is_suspended_in(self, cluster: &str) -> bool {
        let suspension = &self.0["spec"]["suspension"];
        let mut names = items(suspension, "/dispatchingOnClusters/clusterNames");
        suspension["dispatching"] == true || names.any(|it| it == cluster)
    }

    /// Returns whether at most one copy is to run, so that old copies go before there are new ones.
    pub fn is_fenced(self) -> bool {
        is_fenced(self.0)
    }

    /// Returns what a cluster last reported.
    pub fn report(self, cluster: &str) -> Option<&'a Value> {
        items(self.0, "/status/aggregatedStatus")
            .find(|report| text(report, "/clusterName") == cluster)
    }

    /// Returns whether a toleration of the placement matches a taint, be it for a limited time.
    pub fn tolerates(self, taint: &Value) -> bool {
        items(self.0, "/spec/placement/clusterTolerations")
            .any(|toleration| matches(toleration, taint))
    }

    /// Returns the seconds for which the first matching toleration tolerates a taint: `None` for
    /// ever.
    pub fn tolerated_for(self, taint: &Value) -> Option<i64> {
        items(self.0, "/spec/placement/clusterTolerations")
            .find(|toleration| matches(toleration, taint))
            .map_or(Some(0), |toleration| {
                toleration["tolerationSeconds"]
                    .as_i64()
                    .map(|seconds| seconds.max(0))
            })
    }
}

impl<'a> Task<'a> {
    /// Returns the cluster that the workload leaves.
    pub fn from(self) -> &'a str {
        text(self.0, "/fromCluster")
    }

    /// Returns the purge mode in the newer spelling; `Gracefully` if there is none.
    pub fn purge_mode(self) -> &'a str {
        match canonical(text(self.0, "/purgeMode")) {
            "" => "Gracefully",
            mode => mode,
        }
    }
}

impl<'a> Cluster<'a> {
    /// Returns the status of the condition Ready.
    pub fn ready(self) -> Option<&'a str> {
        condition(self.0, "Ready").map(|ready| text(ready, "/status"))
    }

    /// Returns the taints.
    pub fn taints(self) -> impl Iterator<Item = &'a Value> {
        items(self.0, "/spec/taints")
    }

    /// Returns whether a taint makes workloads leave.
    pub fn evicts(self) -> bool {
        self.taints().any(evicts)
    }

    /// Returns whether the cluster counts as failed for the eviction rate.
    pub fn has_failed(self) -> bool {
        self.ready().is_some_and(|ready| ready != "True") || self.evicts()
    }

    /// Returns whether a copy of a workload there counts: ready, staying, and without a taint that
    /// drives the workload out.
    pub fn holds(self, binding: Binding<'_>) -> bool {
        let moves = binding.0["spec"]["failover"]["cluster"].is_object();
        let drives_out = |taint: &Value| match text(taint, "/effect") {
            "NoExecute" => !binding.tolerates(taint),
            "PreferNoExecute" => moves,
            _ => false,
        };
        self.ready() == Some("True") && !is_deleting(self.0) && !self.taints().any(drives_out)
    }

    /// Returns the parts of a cluster that decide where workloads go, but for taints and reports.
    pub fn shape_of(object: &Value) -> Value {
        let mut shape = object["spec"].clone();
        if let Some(fields) = shape.as_object_mut() {
            fields.remove("taints");
        }
        serde_json::json!([shape, object["metadata"]["labels"], is_deleting(object)])
    }
}

/// Returns whether a binding or a policy says that at most one copy is to run: by fencing, or
/// because its data has roles.
pub fn is_fenced(object: &Value) -> bool {
    let fencing = object.pointer("/spec/failover/cluster/fencing");
    let has_roles = items(object, "/spec/dataReplication/roles")
        .next()
        .is_some();
    has_roles || fencing.is_some_and(|it| !it.is_null())
}

/// Returns whether the names or labels of an affinity speak against a cluster.
pub fn rules_out(affinity: &Value, name: &str, cluster: &Value) -> bool {
    let names = |field: &str| affinity[field].as_array().filter(|it| !it.is_empty());
    let lists = |names: &Vec<Value>| names.iter().any(|it| it == name);
    let labels = affinity["labelSelector"]["matchLabels"].as_object();
    names("clusterNames").is_some_and(|it| !lists(it))
        || names("exclude").is_some_and(lists)
        || labels.is_some_and(|labels| {
            let mut labels = labels.iter();
            labels.any(|(key, value)| label(cluster, key) != value.as_str())
        })
}

/// Returns whether a taint makes workloads leave.
pub fn evicts(taint: &Value) -> bool {
    taint["effect"] == "NoExecute" || taint["effect"] == "PreferNoExecute"
}

fn matches(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let exists = toleration["operator"] == "Exists";
    (effect.is_empty() || taint["effect"] == effect)
        && (key == text(taint, "/key") || (key.is_empty() && exists))
        && (exists || text(toleration, "/value") == text(taint, "/value"))
}

fn canonical(mode: &str) -> &str {
    match mode {
        "Immediately" => "Directly",
        "Graciously" => "Gracefully",
        mode => mode,
    }
}

/// Returns the key of the binding that a Work, or an object in a member, was made of.
pub fn binding_of(object: &Value) -> Option<Key> {
    let named = |name: &str| annotation(object, name);
    if let Some(name) = named("clusterresourcebinding.karmada.io/name") {
        let plural = "clusterresourcebindings";
        return Some(key(&Api::Fleet, WORK, plural, "", name));
    }
    let namespace = named("resourcebinding.karmada.io/namespace")?;
    let name = named("resourcebinding.karmada.io/name")?;
    Some(key(&Api::Fleet, WORK, "resourcebindings", namespace, name))
}

/// Returns the key of the policy to which a template or a binding belongs.
pub fn policy_of(object: &Value) -> Option<Key> {
    let named = |kind: &str, name: &str| annotation(object, &format!("{kind}.karmada.io/{name}"));
    let policy = |plural, namespace, name| key(&Api::Fleet, POLICY, plural, namespace, name);
    if let Some(name) = named("propagationpolicy", "name") {
        let namespace = named("propagationpolicy", "namespace").unwrap_or_default();
        return Some(policy("propagationpolicies", namespace, name));
    }
    let name = named("clusterpropagationpolicy", "name")?;
    Some(policy("clusterpropagationpolicies", "", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_plural_names() {
        for (kind, expected) in [
            ("Deployment", "deployments"),
            ("PropagationPolicy", "propagationpolicies"),
            ("PriorityClass", "priorityclasses"),
            ("ClusterResourceBinding", "clusterresourcebindings"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
