//! References of a workload (ConfigMaps, Secrets, ...) that are not placed where the workload is.
//! Pure.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use muster_interpreter::Dependency;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::check::few;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use serde::Serialize;

use super::render::Scope;
use crate::fleet::template::TemplateKey;

/// Type of the condition of a binding: True while something that its workload refers to is not
/// placed in a cluster in which the workload is.
pub const CONDITION: &str = "DependenciesMissing";
/// Reason of the condition while it is True.
pub const NOT_PLACED: &str = "DependenciesNotPlaced";
/// Reason of the condition when it is False.
pub const PLACED: &str = "DependenciesPlaced";
/// Advice of the condition where all that is missing lies in no namespace.
pub const OWN_POLICY: &str =
    "it lies in no namespace and does not go along, so that it needs a policy of its own";
/// References that a message names at most.
const NAMED: usize = 3;

/// A reference that is missing in some clusters of the workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Missing {
    /// Kind of what the workload refers to.
    pub kind: String,
    /// Name of what the workload refers to, in the namespace of the workload if in any.
    pub name: String,
    /// Whether it lies in no namespace, so that `propagateDeps` does not take it along.
    #[serde(rename = "clusterScoped", skip_serializing_if = "std::ops::Not::not")]
    pub is_cluster_scoped: bool,
    /// Clusters in which the workload is placed, and what it refers to is not.
    pub clusters: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clusters = self.clusters.join(", ");
        write!(f, "{} {} is not placed in {clusters}", self.kind, self.name)
    }
}

/// Returns the references that are missing in clusters of a workload. `placed` returns the clusters
/// of what a reference names; `None` for what the fleet does not propagate, which the members have
/// by other means. References by label are left out: which objects they mean changes with these.
pub fn missing<'a>(
    needs: &[Dependency],
    clusters: impl IntoIterator<Item = &'a str>,
    placed: impl Fn(&TemplateKey) -> Option<BTreeSet<String>>,
) -> Vec<Missing> {
    let clusters: BTreeSet<&str> = clusters.into_iter().collect();
    let named = needs.iter().filter_map(TemplateKey::of_dependency);
    let found = named.filter_map(|key| {
        let placed = placed(&key)?;
        let lacking = clusters.iter().filter(|it| !placed.contains(**it));
        let lacking: Vec<String> = lacking.map(|it| (*it).to_owned()).collect();
        (!lacking.is_empty()).then(|| Missing {
            kind: key.kind.kind.clone(),
            is_cluster_scoped: key.namespace.is_none(),
            name: key.name,
            clusters: lacking,
        })
    });
    found.collect()
}

/// Returns the clusters in which something is placed, or is kept until its replacement is healthy;
/// `None` if the binding is of another object.
pub fn placed(spec: &ResourceBindingSpec, key: &TemplateKey) -> Option<BTreeSet<String>> {
    let is_it = TemplateKey::of(&spec.resource) == *key;
    is_it.then(|| Scope::of(spec).expected)
}

/// Returns the condition that reports what is missing; `None` if nothing is and nothing was
/// reported otherwise.
pub fn condition(missing: &[Missing], held: &[Condition], now: Timestamp) -> Option<Condition> {
    if missing.is_empty() {
        let is_over = conditions::is_true(held, CONDITION);
        let message = "everything that the workload refers to is placed where the workload is";
        return is_over
            .then(|| conditions::new(CONDITION, conditions::FALSE, PLACED, message, now));
    }
    let scoped = missing.iter().filter(|it| it.is_cluster_scoped).count();
    let advice = if scoped == missing.len() {
        OWN_POLICY
    } else if scoped > 0 {
        "with propagateDeps in its policy it goes along, but for what lies in no namespace, which needs a policy of its own"
    } else {
        "with propagateDeps in its policy it goes along"
    };
    let missing: Vec<String> = missing.iter().map(Missing::to_string).collect();
    let named = few(&missing, NAMED, ", ", |more| format!(", and {more} more"));
    let message = format!("{named}; the workload is placed there and refers to it: {advice}");
    Some(conditions::new(
        CONDITION,
        conditions::TRUE,
        NOT_PLACED,
        &message,
        now,
    ))
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde_json::{Value, json};

    use super::*;

    fn need(kind: &str, name: &str) -> Dependency {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": kind, "namespace": "shop", "name": name,
        }))
        .unwrap()
    }

    fn spec(more: &Value) -> ResourceBindingSpec {
        let mut spec = json!({
            "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "settings"},
        });
        merge::apply(&mut spec, more);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_a_workload_refers_to_is_missing_where_the_fleet_places_it_elsewhere() {
        let on = |names: &[&str]| -> Value {
            let clusters: Vec<Value> = names.iter().map(|it| json!({"name": it})).collect();
            json!({"clusters": clusters})
        };
        let task = json!([{"fromCluster": "m5", "reason": "R", "producer": "P"}]);
        let mut kept = on(&["m2"]);
        kept["gracefulEvictionTasks"] = task;
        let mut follows = on(&["m2"]);
        follows["requiredBy"] = json!([{"name": "web-deployment", "clusters": [{"name": "m5"}]}]);
        for (what, settings, lacking) in [
            ("it is there", on(&["m2", "m5"]), None),
            ("it is elsewhere", on(&["m2", "m3"]), Some("m5")),
            ("it is nowhere", json!({}), Some("m2, m5")),
            ("it is kept there for now", kept, None),
            ("it follows the workload", follows, None),
        ] {
            let settings = spec(&settings);
            // Nobody propagates the Secret: the members have it by other means.
            let needs = [need("ConfigMap", "settings"), need("Secret", "key")];
            let found = missing(&needs, ["m5", "m2"], |key| placed(&settings, key));
            let found: Vec<String> = found.iter().map(Missing::to_string).collect();
            let expected = lacking.map(|it| format!("ConfigMap settings is not placed in {it}"));
            assert_eq!(found, Vec::from_iter(expected), "{what}");
        }
    }

    #[test]
    fn a_workload_that_lacks_nothing_is_reported_so_once_it_was_reported_otherwise() {
        let lacks = |names: &[&str]| -> Vec<Missing> {
            let each = names.iter().map(|name| Missing {
                kind: "Secret".to_owned(),
                name: (*name).to_owned(),
                is_cluster_scoped: false,
                clusters: vec!["m5".to_owned()],
            });
            each.collect()
        };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(condition(&[], &[], now), None);
        let reported = condition(&lacks(&["a", "b", "c", "d"]), &[], now).unwrap();
        assert_eq!((&*reported.status, &*reported.reason), ("True", NOT_PLACED));
        assert!(reported.message.contains(", and 1 more; the workload is"));
        assert!(
            reported
                .message
                .starts_with("Secret a is not placed in m5, Secret b"),
            "{}",
            reported.message
        );
        let over = condition(&[], &[reported], now).unwrap();
        assert_eq!((&*over.status, &*over.reason), ("False", PLACED));
        assert_eq!(condition(&[], &[over], now), None);
    }

    #[test]
    fn the_report_advises_what_helps_in_or_outside_of_a_namespace() {
        let settings = need("ConfigMap", "settings");
        let mut role = need("ClusterRole", "reader");
        role.namespace = None;
        for (needs, advice) in [
            (
                vec![settings.clone()],
                "with propagateDeps in its policy it goes along",
            ),
            (
                vec![role.clone()],
                "it lies in no namespace and does not go along, so that it needs a policy of its own",
            ),
            (
                vec![settings, role],
                "with propagateDeps in its policy it goes along, but for what lies in no namespace, which needs a policy of its own",
            ),
        ] {
            let found = missing(&needs, ["m5"], |_| Some(BTreeSet::new()));
            let reported = condition(&found, &[], Timestamp::UNIX_EPOCH).unwrap();
            let advised = reported.message.split_once("refers to it: ");
            assert_eq!(advised.map(|it| it.1), Some(advice));
        }
    }
}
