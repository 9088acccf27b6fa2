//! What people wish: changes of theirs that may move a workload, and which one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::objects::{self, Binding, Cluster};
use super::scene::Scene;
use crate::history::{Actor, Api, Key, Request};

/// Kinds by which a person may move workloads that they select.
const POLICIES: [&str; 7] = [
    "propagationpolicies",
    "clusterpropagationpolicies",
    "overridepolicies",
    "clusteroverridepolicies",
    "workloadrebalancers",
    "resourceinterpretercustomizations",
    "namespaces",
];

/// Those of them that say where workloads may be.
const PLACING: [&str; 2] = ["propagationpolicies", "clusterpropagationpolicies"];

/// Returns what a policy says of where workloads may be, but for which taints they tolerate.
fn places(policy: Option<&Value>) -> Value {
    let mut spec = policy.map_or(Value::Null, |it| it["spec"].clone());
    if let Some(placement) = spec["placement"].as_object_mut() {
        placement.remove("clusterTolerations");
    }
    let fields = [
        "resourceSelectors",
        "placement",
        "schedulerName",
        "priority",
        "preemption",
    ];
    fields.iter().map(|field| spec[*field].clone()).collect()
}

/// Kinds of bindings.
const BINDINGS: [&str; 2] = ["resourcebindings", "clusterresourcebindings"];

/// Returns whether a write of a binding changes more than whether it is scheduled.
fn is_more_than_held(request: &Request) -> bool {
    let said = |state: &Option<Arc<Value>>| {
        state.as_deref().map(|state| {
            let mut spec = state["spec"].clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.remove("suspension");
            }
            (spec, objects::is_deleting(state))
        })
    };
    said(&request.before) != said(&request.after)
}

/// A change by which a person may have copies go or move.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    /// An object itself: a template, a binding, a Work.
    Object(Key),
    /// Labels, place or existence of a cluster; its taints are no wish.
    Clusters,
}

/// When people last wished what.
#[derive(Debug, Default)]
pub struct Wishes {
    times: BTreeMap<Wish, Timestamp>,
    /// When people last changed a binding by hand, but for whether it is scheduled.
    by_hand: BTreeMap<Key, Timestamp>,
    /// States of policies between which people changed them, and when.
    policies: BTreeMap<Key, Vec<(Timestamp, Arc<Value>)>>,
    /// The same for changes of what they select and where it may be.
    placements: BTreeMap<Key, Vec<(Timestamp, Arc<Value>)>>,
}

impl Wishes {
    /// Takes note of a committed write.
    pub fn note(&mut self, request: &Request, key: &Key, now: Timestamp) {
        // The API server's own writes follow from a person's, such as the end of a namespace.
        if key.api != Api::Fleet || !matches!(request.actor, Actor::Person(_) | Actor::Server) {
            return;
        }
        if matches!(request.actor, Actor::Person(_))
            && BINDINGS.contains(&key.plural.as_str())
            && is_more_than_held(request)
        {
            self.by_hand.insert(key.clone(), now);
        }
        if POLICIES.contains(&key.plural.as_str()) {
            let states = [request.before.clone(), request.after.clone()];
            let states: Vec<_> = states.into_iter().flatten().map(|it| (now, it)).collect();
            let [before, after] = [&request.before, &request.after].map(|it| places(it.as_deref()));
            if before != after && PLACING.contains(&key.plural.as_str()) {
                let known = self.placements.entry(key.clone()).or_default();
                known.extend(states.iter().cloned());
            }
            let known = self.policies.entry(key.clone()).or_default();
            known.extend(states);
            return;
        }
        let wish = if key.plural == "clusters" {
            let shape = |state: &Option<Arc<Value>>| state.as_deref().map(Cluster::shape_of);
            if shape(&request.before) == shape(&request.after) {
                return;
            }
            Wish::Clusters
        } else {
            Wish::Object(key.clone())
        };
        self.times.insert(wish, now);
    }
}

impl Scene {
    /// Returns whether a person recently changed what decides where the workload of a binding is.
    pub fn is_wished(&self, key: &Key, binding: Binding<'_>) -> bool {
        let template = binding.template();
        // A dependency goes where the workloads go that need it, by policies of theirs.
        let is_needed = !binding.0["spec"]["requiredBy"].is_null();
        self.is_recent(&Wish::Clusters)
            || self.is_recent(&Wish::Object(key.clone()))
            || template.is_some_and(|template| {
                self.is_recent(&Wish::Object(template.clone()))
                    || self.wishes.policies.iter().any(|(policy, states)| {
                        let mut states = states.iter().filter(|(at, _)| self.is_answered(*at));
                        states.any(|(_, it)| is_needed || may_select(policy, it, &template))
                    })
            })
    }

    /// Returns whether a person recently changed where the workload of a binding may be: what
    /// policies select, their placements, or what they can distinguish clusters by.
    pub fn is_placed_by_person(&self, key: &Key, binding: Binding<'_>) -> bool {
        let placed = |template: &Key| {
            self.wishes.placements.iter().any(|(policy, states)| {
                let mut states = states.iter().filter(|(at, _)| self.is_answered(*at));
                states.any(|(_, it)| may_select(policy, it, template))
            })
        };
        self.is_recent(&Wish::Clusters)
            || self.is_recent(&Wish::Object(key.clone()))
            || binding.template().is_some_and(|it| placed(&it))
    }

    /// Returns whether a person recently changed what placements can distinguish clusters by.
    pub fn are_clusters_changed_by_person(&self) -> bool {
        self.is_recent(&Wish::Clusters)
    }

    /// Returns whether a person recently changed a binding by hand, and not only held or freed its
    /// scheduling. That it goes with its template, which the server sees to, is nobody's word.
    pub fn is_wished_of(&self, binding: &Key) -> bool {
        let at = self.wishes.by_hand.get(binding);
        at.is_some_and(|at| self.is_answered(*at))
    }

    fn is_recent(&self, wish: &Wish) -> bool {
        let at = self.wishes.times.get(wish);
        at.is_some_and(|at| self.is_answered(*at))
    }

    /// Returns whether what a person asked at a time may still be being answered.
    fn is_answered(&self, at: Timestamp) -> bool {
        self.now.duration_since(at) <= self.rules.answered
    }
}

/// Returns whether a policy may concern a template, whatever its labels are.
fn may_select(policy: &Key, object: &Value, template: &Key) -> bool {
    let in_reach = policy.namespace.is_empty() || policy.namespace == template.namespace;
    let fits = |selector: &Value| {
        let is_same = |field: &str, value: &str| {
            let asked = objects::text(selector, field);
            asked.is_empty() || asked == value
        };
        let version = objects::text(selector, "/apiVersion");
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        version.is_empty()
            || (group == template.group
                && objects::plural(objects::text(selector, "/kind")) == template.plural
                && is_same("/namespace", &template.namespace)
                && is_same("/name", &template.name))
    };
    let any = |field: &str| {
        let mut selectors = objects::items(object, field).peekable();
        selectors.peek().is_none() || selectors.any(fits)
    };
    in_reach
        && match policy.plural.as_str() {
            "namespaces" => policy.name == template.namespace,
            "workloadrebalancers" => any("/spec/workloads"),
            "resourceinterpretercustomizations" => fits(&object["spec"]["target"]),
            _ => any("/spec/resourceSelectors"),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_policy_concerns_what_it_selects() {
        let web = deployment_key(&Api::Fleet);
        let select = |name: &str, kind: &str| {
            let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            let mut selector = json!({"apiVersion": version, "kind": kind});
            if !name.is_empty() {
                selector["name"] = json!(name);
            }
            selector
        };
        let policy =
            |name: &str, kind: &str| json!({"spec": {"resourceSelectors": [select(name, kind)]}});
        let of_web = policy("web", "Deployment");
        let of_api = policy("api", "Deployment");
        let (of_kind, of_jobs) = (policy("", "Deployment"), policy("", "Job"));
        let moved = json!({"spec": {"workloads": [select("api", "Deployment")]}});
        let target = json!({"spec": {"target": select("", "Deployment")}});
        let everything = json!({"spec": {}});
        for (plural, namespace, object, expected) in [
            ("propagationpolicies", "default", &of_web, true),
            ("propagationpolicies", "default", &of_api, false),
            ("propagationpolicies", "shop", &of_web, false),
            ("clusterpropagationpolicies", "", &of_kind, true),
            ("clusterpropagationpolicies", "", &of_jobs, false),
            ("overridepolicies", "default", &everything, true),
            ("workloadrebalancers", "", &moved, false),
            ("resourceinterpretercustomizations", "", &target, true),
        ] {
            let key = objects::key(&Api::Fleet, objects::POLICY, plural, namespace, "p");
            let selects = may_select(&key, object, &web);
            assert_eq!(selects, expected, "{plural} {object}");
        }
    }
}
