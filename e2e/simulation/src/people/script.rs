//! Scripts: a fleet, what is there when it begins, and what people do then.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::act::{Act, Step};
use super::fleet::{self, Site};
use super::mix::Mix;
use super::orders::relabel;
use super::workloads::{self, Template};
use super::{Dice, malformed, policies, taints};
use crate::history::Api;

/// Namespaces of templates.
pub(super) const NAMESPACES: [&str; 3] = ["default", "shop", "data"];

/// A fleet and what people do to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    /// The members.
    pub sites: Vec<Site>,
    /// Objects that every API serves from the beginning: definitions of kinds.
    pub everywhere: Vec<Value>,
    /// Objects of the fleet API that are there when it begins.
    pub objects: Vec<Value>,
    /// What people do, the earliest first.
    pub steps: Vec<Step>,
}

/// How large a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// Members.
    pub members: u64,
    /// Workloads.
    pub workloads: u64,
    /// Steps.
    pub steps: u64,
    /// Milliseconds within which the steps are done.
    pub busy: u64,
    /// How many percent of the members have no agent.
    pub push: u64,
}

impl Script {
    /// Draws a script.
    pub fn random(dice: &mut impl Dice, size: Size, mix: Mix) -> Self {
        let sites = fleet::draw(dice, size.members.max(1), size.push);
        let mut templates = Vec::new();
        let mut objects: Vec<Value> = NAMESPACES[1..].iter().map(|name| namespace(name)).collect();
        for number in 1..=dice.between(1, 2) {
            objects.push(taints::draw(dice, number));
        }
        for number in 1..=size.workloads.max(1) {
            let space = *dice.one(&NAMESPACES);
            let template = workloads::draw(dice, space, &format!("w{number}"));
            objects.extend(template.needs.iter().cloned());
            objects.push(template.object.clone());
            objects.push(policies::draw(dice, &template, &sites));
            templates.push(template);
        }
        let mut people = People {
            sites: &sites,
            templates,
            gone: Vec::new(),
            tainted: Vec::new(),
            numbers: 100,
        };
        let mut times: Vec<u64> = (0..size.steps).map(|_| dice.below(size.busy)).collect();
        times.sort_unstable();
        let steps = (1..).zip(times).map(|(id, at)| {
            let (api, act) = people.next(dice, mix);
            Step { id, at, api, act }
        });
        let steps = steps.collect();
        Self {
            sites,
            everywhere: vec![widgets()],
            objects,
            steps,
        }
    }
}

/// What people remember of what they did.
struct People<'a> {
    sites: &'a [Site],
    templates: Vec<Template>,
    gone: Vec<Template>,
    tainted: Vec<String>,
    numbers: u64,
}

impl People<'_> {
    fn next(&mut self, dice: &mut impl Dice, mix: Mix) -> (Api, Act) {
        let fleet = |act| (Api::Fleet, act);
        let apply = |object| fleet(Act::Apply { object });
        let cluster = dice.one(self.sites).name.clone();
        let at = usize::try_from(dice.below(self.templates.len() as u64)).unwrap_or_default();
        self.numbers += 1;
        match dice.share(&mix.shares()) {
            0 => fleet(self.taint(dice, cluster)),
            1 => {
                let template = &mut self.templates[at];
                match template.needs.first_mut() {
                    Some(need) if dice.percent(30) => {
                        need["data"]["edit"] = json!(self.numbers.to_string());
                        apply(need.clone())
                    }
                    _ => apply(template.edit(dice)),
                }
            }
            2 => fleet(self.delete_or_bring_back(dice, at)),
            3 => fleet(self.policy(dice, at)),
            4 => {
                let number = dice.between(1, 2);
                let object = taints::draw(dice, number);
                fleet(delete_or_replace(dice, object))
            }
            5 => {
                let object = policies::overriding(dice, &self.templates[at], self.sites);
                fleet(delete_or_replace(dice, object))
            }
            6 => {
                let label = *dice.one(&["gold", "silver", "bronze"]);
                fleet(relabel(&cluster, label))
            }
            7 => fleet(Act::Delete {
                object: json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                    "metadata": {"name": cluster}}),
            }),
            8 => apply(self.rebalancer(at)),
            9 => {
                let template = &self.templates[at];
                fleet(Act::Release {
                    namespace: text(&template.object["metadata"]["namespace"]),
                    name: template.binding(),
                })
            }
            10 => {
                let object = reference(&self.templates[at].object);
                (Api::Member(cluster), Act::Delete { object })
            }
            _ => fleet(malformed::draw(
                dice,
                self.numbers,
                &self.templates[at],
                self.sites,
            )),
        }
    }

    fn taint(&mut self, dice: &mut impl Dice, cluster: String) -> Act {
        let key = taints::BY_HAND.to_owned();
        if !self.tainted.is_empty() && dice.percent(50) {
            let cluster = self.tainted.remove(0);
            return Act::Untaint { cluster, key };
        }
        self.tainted.push(cluster.clone());
        let effect = *dice.one(&["NoExecute", "NoExecute", "PreferNoExecute", "NoSchedule"]);
        Act::Taint {
            cluster,
            key,
            effect: effect.to_owned(),
        }
    }

    fn delete_or_bring_back(&mut self, dice: &mut impl Dice, at: usize) -> Act {
        if !self.gone.is_empty() && dice.percent(50) {
            let template = self.gone.remove(0);
            let object = template.object.clone();
            self.templates.push(template);
            return Act::Apply { object };
        }
        if self.templates.len() < 2 {
            return Act::Apply {
                object: self.templates[at].edit(dice),
            };
        }
        let template = self.templates.remove(at);
        let object = reference(&template.object);
        self.gone.push(template);
        Act::Delete { object }
    }

    fn policy(&self, dice: &mut impl Dice, at: usize) -> Act {
        let object = policies::draw(dice, &self.templates[at], self.sites);
        delete_or_replace(dice, object)
    }

    fn rebalancer(&self, at: usize) -> Value {
        let object = &self.templates[at].object;
        json!({
            "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer",
            "metadata": {"name": format!("rebalance-{}", self.numbers)},
            "spec": {
                "workloads": [{
                    "apiVersion": object["apiVersion"], "kind": object["kind"],
                    "namespace": object["metadata"]["namespace"],
                    "name": object["metadata"]["name"],
                }],
                "ttlSecondsAfterFinished": 60,
            },
        })
    }
}

/// Deletes a policy or replaces it by another one: most are replaced, some are deleted.
fn delete_or_replace(dice: &mut impl Dice, object: Value) -> Act {
    if dice.percent(25) {
        let object = reference(&object);
        return Act::Delete { object };
    }
    Act::Replace { object }
}

pub(super) fn reference(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut named = json!({"name": metadata["name"]});
    if !metadata["namespace"].is_null() {
        named["namespace"] = metadata["namespace"].clone();
    }
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": named})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Returns the definition of a kind of which the product knows nothing.
pub(super) fn widgets() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": open}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::dice::tests::Split;
    use super::*;

    const SIZE: Size = Size {
        members: 8,
        workloads: 40,
        steps: 400,
        busy: 3_600_000,
        push: 20,
    };

    #[test]
    fn scripts_have_every_shape_of_policy_and_every_kind_of_step() {
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let script = Script::random(&mut Split(seed), SIZE, Mix::EVERYTHING);
            let text = serde_json::to_string(&script).expect("writes");
            for word in WORDS {
                if text.contains(&format!("\"{word}\"")) {
                    seen.insert(word);
                }
            }
        }
        let missing: Vec<_> = WORDS.iter().filter(|word| !seen.contains(*word)).collect();
        assert_eq!(missing, Vec::<&&str>::new());
    }

    /// What scripts hold at the least.
    const WORDS: [&str; 55] = [
        "apply",
        "replace",
        "patch",
        "delete",
        "taint",
        "untaint",
        "release",
        "Deployment",
        "StatefulSet",
        "Job",
        "DaemonSet",
        "ConfigMap",
        "Widget",
        "PropagationPolicy",
        "ClusterPropagationPolicy",
        "OverridePolicy",
        "ClusterTaintPolicy",
        "WorkloadRebalancer",
        "ResourceInterpreterCustomization",
        "Directly",
        "Immediately",
        "Gracefully",
        "Graciously",
        "Never",
        "clusterNames",
        "labelSelector",
        "fieldSelector",
        "exclude",
        "clusterAffinities",
        "clusterTolerations",
        "tolerationSeconds",
        "spreadByField",
        "spreadByLabel",
        "region",
        "zone",
        "provider",
        "Duplicated",
        "Aggregated",
        "staticWeightList",
        "dynamicWeight",
        "application",
        "decisionConditions",
        "gracePeriodSeconds",
        "statePreservation",
        "suspension",
        "dispatchingOnClusters",
        "conflictResolution",
        "preemption",
        "Lazy",
        "preserveResourcesOnDeletion",
        "propagateDeps",
        "taintsToAdd",
        "addOnConditions",
        "imageOverrider",
        "plaintext",
    ];
}
