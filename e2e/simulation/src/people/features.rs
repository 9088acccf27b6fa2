//! People who set and unset features: which ones a seed draws, and how each is set.

use serde_json::{Value, json};

use super::act::{Act, Step};
use super::fleet::{self, Site};
use super::script::{NAMESPACES, Script, Size, namespace, reference, widgets};
use super::workloads::{self, Template};
use super::{Dice, fields, policies, taints};
use crate::feature::{CORDON, DRAIN, Feature, PAUSE, PAUSED, RIVAL, Scope, TAINTS};
use crate::history::Api;

/// Milliseconds before the end of the busy phase at which people begin to clear up.
const CLEARING: u64 = 30_000;

/// Milliseconds within which a step follows the one before it, where a person gave both at once.
const AT_ONCE: u64 = 20;

/// A feature with what it is set for: the number of a workload or of a cluster.
type Place = (Feature, usize);

impl Script {
    /// Draws a script in which people set and unset some features at any moment.
    ///
    /// One workload and one cluster have most of the attention, so that features meet.
    pub fn of_features(dice: &mut impl Dice, size: Size, features: &[Feature]) -> Self {
        let sites = fleet::draw(dice, size.members.max(1), size.push);
        let mut objects: Vec<Value> = NAMESPACES[1..].iter().map(|name| namespace(name)).collect();
        objects.push(namespace(PAUSE.0));
        objects.push(taints::draw(dice, 1));
        let focus = index(dice, sites.len());
        let mut targets = Vec::new();
        for number in 1..=size.workloads.max(1) {
            let space = *dice.one(&NAMESPACES);
            let template = workloads::steady(dice, space, &format!("w{number}"));
            let policy = policies::plain(dice, &template, &sites, focus);
            objects.extend(template.needs.iter().cloned());
            objects.extend([template.object.clone(), policy.clone()]);
            targets.push(Target { template, policy });
        }
        let mut people = People {
            sites: &sites,
            targets,
            focus,
            set: Vec::new(),
            number: 0,
        };
        let mut acts: Vec<(u64, Api, Act)> = Vec::new();
        let mut tell = |at, told: Vec<(Api, Act)>| {
            // Who changes one object twice reads it again in between.
            let times = (at..).step_by(50);
            acts.extend(
                told.into_iter()
                    .zip(times)
                    .map(|((api, act), at)| (at, api, act)),
            );
        };
        let end = size.busy.saturating_sub(CLEARING);
        for at in times(dice, size.steps, end) {
            tell(at, people.turn(dice, features));
        }
        for place in people.set.clone() {
            if is_cleared(dice, place.0) {
                tell(end + dice.below(CLEARING), people.unset(place));
            }
        }
        acts.sort_by_key(|(at, ..)| *at);
        let steps = (1..).zip(acts);
        let steps = steps.map(|(id, (at, api, act))| Step { id, at, api, act });
        Self {
            everywhere: vec![widgets()],
            objects,
            steps: steps.collect(),
            sites,
        }
    }
}

/// Moments of the steps, the earliest first. Some follow another at once.
fn times(dice: &mut impl Dice, steps: u64, end: u64) -> Vec<u64> {
    let mut times: Vec<u64> = Vec::new();
    for _ in 0..steps {
        let last = times.last().copied();
        times.push(match last.filter(|_| dice.percent(35)) {
            Some(last) => last + dice.below(AT_ONCE),
            None => dice.below(end),
        });
    }
    times.sort_unstable();
    times
}

/// Whether people unset a feature before they rest. What holds everything is not forgotten.
fn is_cleared(dice: &mut impl Dice, feature: Feature) -> bool {
    match feature {
        Feature::PauseFleet
        | Feature::PauseCluster
        | Feature::SuspendScheduling
        | Feature::Delete => true,
        _ => dice.percent(50),
    }
}

fn index(dice: &mut impl Dice, of: usize) -> usize {
    usize::try_from(dice.below(of as u64)).unwrap_or_default()
}

/// A workload and its policy as it was in the beginning.
struct Target {
    template: Template,
    policy: Value,
}

struct People<'a> {
    sites: &'a [Site],
    targets: Vec<Target>,
    /// Number of the cluster that has most of the attention.
    focus: usize,
    /// What is set.
    set: Vec<Place>,
    /// Number of the last order.
    number: u64,
}

impl People<'_> {
    /// Sets a feature that is not set, or unsets it; now and then edits a template.
    fn turn(&mut self, dice: &mut impl Dice, features: &[Feature]) -> Vec<(Api, Act)> {
        let feature = *dice.one(features);
        let number = match feature.scope() {
            Scope::Workload if dice.percent(70) => 0,
            Scope::Workload => index(dice, self.targets.len()),
            Scope::Cluster if dice.percent(50) => self.focus,
            Scope::Cluster => index(dice, self.sites.len()),
            Scope::Fleet => 0,
        };
        if dice.percent(5) {
            let object = self.targets[0].template.edit(dice);
            return vec![(Api::Fleet, Act::Apply { object })];
        }
        let place = (feature, number);
        if self.set.contains(&place) {
            return self.unset(place);
        }
        self.set
            .retain(|it| it.1 != number || !feature.excludes(it.0));
        if !matches!(feature, Feature::Rebalance | Feature::Clean) {
            self.set.push(place);
        }
        self.set(dice, place)
    }

    fn set(&mut self, dice: &mut impl Dice, (feature, number): Place) -> Vec<(Api, Act)> {
        let fleet = |act| vec![(Api::Fleet, act)];
        self.number += 1;
        match feature.scope() {
            Scope::Cluster => return order(dice, feature, &self.sites[number].name),
            Scope::Fleet => {
                let mut object = pause_of_fleet();
                object["data"] = json!({"reason": "maintenance", "by": "operator"});
                return fleet(Act::Apply { object });
            }
            Scope::Workload => {}
        }
        let target = &self.targets[number];
        match feature {
            Feature::SuspendScheduling => fleet(suspend_scheduling(&target.template, &json!(true))),
            Feature::Priority => fleet(Act::Replace {
                object: target.rival(),
            }),
            Feature::Override => {
                let object = policies::overriding(dice, &target.template, self.sites);
                fleet(Act::Replace { object })
            }
            Feature::Rebalance => fleet(self.rebalance(dice, number)),
            Feature::Clean => {
                let cluster = if dice.percent(60) {
                    &self.sites[self.focus]
                } else {
                    dice.one(self.sites)
                };
                let object = reference(&target.template.object);
                vec![(Api::Member(cluster.name.clone()), Act::Delete { object })]
            }
            Feature::Delete => fleet(Act::Delete {
                object: reference(&target.template.object),
            }),
            _ => {
                let spec = fields::set(dice, feature, self.sites, self.focus);
                fleet(target.patch(spec))
            }
        }
    }

    /// An order to place workloads anew: often all that there are.
    fn rebalance(&self, dice: &mut impl Dice, number: usize) -> Act {
        let all = dice.percent(60);
        let workloads = self.targets.iter().enumerate();
        let workloads = workloads.filter(|(at, _)| all || *at == number);
        let workloads = workloads.map(|(_, it)| {
            let object = &it.template.object;
            json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"],
                "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
            })
        });
        let workloads: Vec<Value> = workloads.collect();
        Act::Apply {
            object: json!({
                "apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer",
                "metadata": {"name": format!("rebalance-{}", self.number)},
                "spec": {"workloads": workloads, "ttlSecondsAfterFinished": 60},
            }),
        }
    }

    fn unset(&mut self, place: Place) -> Vec<(Api, Act)> {
        self.set.retain(|it| *it != place);
        let (feature, number) = place;
        let fleet = |act| vec![(Api::Fleet, act)];
        match feature.scope() {
            Scope::Cluster => {
                let cluster = self.sites[number].name.clone();
                let key = match feature {
                    Feature::Drain => DRAIN,
                    Feature::Cordon => CORDON,
                    Feature::Taint => TAINTS[0],
                    Feature::SecondTaint => TAINTS[1],
                    _ => return fleet(pause(&cluster, &Value::Null)),
                };
                let key = key.to_owned();
                return fleet(Act::Untaint { cluster, key });
            }
            Scope::Fleet => {
                let object = pause_of_fleet();
                return fleet(Act::Delete { object });
            }
            Scope::Workload => {}
        }
        let target = &self.targets[number];
        let metadata = &target.template.object["metadata"];
        fleet(match feature {
            Feature::SuspendScheduling => suspend_scheduling(&target.template, &json!(false)),
            Feature::Priority => Act::Delete {
                object: reference(&target.rival()),
            },
            Feature::Override => Act::Delete {
                object: json!({
                    "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
                    "metadata": {"namespace": metadata["namespace"], "name": metadata["name"]},
                }),
            },
            Feature::Delete => Act::Apply {
                object: target.template.object.clone(),
            },
            _ => target.patch(fields::unset(feature, &target.policy)),
        })
    }
}

impl Target {
    fn patch(&self, spec: Value) -> Act {
        let mut object = reference(&self.policy);
        object["spec"] = spec;
        Act::Patch {
            object,
            subresource: String::new(),
        }
    }

    /// A policy with the rules of the first one that takes the workload over from it.
    fn rival(&self) -> Value {
        let mut rival = self.policy.clone();
        let name = self.policy["metadata"]["name"].as_str().unwrap_or_default();
        rival["metadata"]["name"] = json!(format!("{name}{RIVAL}"));
        rival["spec"]["priority"] = json!(10);
        rival["spec"]["preemption"] = json!("Always");
        rival
    }
}

/// An order about a cluster, as `kubectl muster` writes it.
fn order(dice: &mut impl Dice, feature: Feature, cluster: &str) -> Vec<(Api, Act)> {
    let taint = |key: &str, effect: &str| {
        let act = Act::Taint {
            cluster: cluster.to_owned(),
            key: key.to_owned(),
            effect: effect.to_owned(),
        };
        (Api::Fleet, act)
    };
    let effect = *dice.one(&["NoExecute", "NoExecute", "PreferNoExecute"]);
    match feature {
        Feature::Drain => vec![taint(DRAIN, "NoSchedule"), taint(DRAIN, "NoExecute")],
        Feature::Cordon => vec![taint(CORDON, "NoSchedule")],
        Feature::Taint => vec![taint(TAINTS[0], effect)],
        Feature::SecondTaint => vec![taint(TAINTS[1], effect)],
        _ => vec![(Api::Fleet, pause(cluster, &json!("maintenance")))],
    }
}

/// As a person does it with `kubectl annotate`.
fn pause(cluster: &str, reason: &Value) -> Act {
    Act::Patch {
        object: json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": cluster, "annotations": {PAUSED: reason}},
        }),
        subresource: String::new(),
    }
}

fn pause_of_fleet() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": PAUSE.0, "name": PAUSE.1},
    })
}

/// As a job queue does it.
fn suspend_scheduling(template: &Template, is_held: &Value) -> Act {
    let namespace = &template.object["metadata"]["namespace"];
    Act::Patch {
        object: json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"namespace": namespace, "name": template.binding()},
            "spec": {"suspension": {"scheduling": is_held}},
        }),
        subresource: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::dice::tests::Split;
    use super::*;
    use crate::feature::{Subject, set_by};
    use crate::oracle::objects;

    const SIZE: Size = Size {
        members: 3,
        workloads: 3,
        steps: 40,
        busy: 300_000,
        push: 20,
    };

    /// Objects of the fleet by kind and name.
    type Objects = BTreeMap<(String, String), Value>;

    fn merge(object: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else {
            patch.clone_into(object);
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (name, value) in fields {
            if value.is_null() {
                object.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut object[name.as_str()], value);
            }
        }
    }

    fn carry_out(objects: &mut Objects, acts: Vec<(Api, Act)>) {
        let key = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&object["kind"]), text(&object["metadata"]["name"]))
        };
        let named = |name: &str| ("Cluster".to_owned(), name.to_owned());
        for (_, act) in acts.into_iter().filter(|(api, _)| *api == Api::Fleet) {
            match act {
                Act::Apply { object } | Act::Replace { object } => {
                    objects.insert(key(&object), object);
                }
                Act::Patch { object, .. } => {
                    merge(objects.entry(key(&object)).or_default(), &object);
                }
                Act::Delete { object } => {
                    objects.remove(&key(&object));
                }
                Act::Taint {
                    cluster,
                    key,
                    effect,
                } => {
                    let cluster = objects.entry(named(&cluster)).or_default();
                    let mut taints = cluster["spec"]["taints"]
                        .as_array()
                        .cloned()
                        .unwrap_or_default();
                    taints.push(json!({"key": key, "effect": effect}));
                    cluster["spec"]["taints"] = json!(taints);
                }
                Act::Untaint { cluster, key } => {
                    let cluster = objects.entry(named(&cluster)).or_default();
                    let taints = cluster["spec"]["taints"].as_array_mut().unwrap();
                    taints.retain(|it| it["key"] != key.as_str());
                }
                Act::Claim { .. } | Act::Release { .. } => {}
            }
        }
    }

    fn features(objects: &Objects) -> BTreeSet<(Feature, Subject)> {
        let set = objects
            .iter()
            .flat_map(|((kind, _), object)| set_by(&objects::plural(kind), object));
        set.collect()
    }

    #[test]
    fn what_people_set_is_there_until_they_unset_it() {
        for feature in Feature::ALL {
            if matches!(
                feature,
                Feature::Rebalance | Feature::Clean | Feature::Delete
            ) {
                continue;
            }
            let mut dice = Split(7);
            let sites = fleet::draw(&mut dice, 3, 0);
            let template = workloads::steady(&mut dice, "default", "w1");
            let policy = policies::plain(&mut dice, &template, &sites, 0);
            let binding = json!({"kind": "ResourceBinding", "metadata": {"name": template.binding()},
                "spec": {"resource": {"name": "w1"}}});
            let mut objects = Objects::new();
            for object in [policy.clone(), binding] {
                carry_out(&mut objects, vec![(Api::Fleet, Act::Apply { object })]);
            }
            let mut people = People {
                sites: &sites,
                targets: vec![Target { template, policy }],
                focus: 0,
                set: vec![(feature, 0)],
                number: 0,
            };
            let before = features(&objects);
            carry_out(&mut objects, people.set(&mut dice, (feature, 0)));
            let set: Vec<Feature> = features(&objects).into_iter().map(|(it, _)| it).collect();
            assert!(set.contains(&feature), "{feature:?}: {objects:?}");
            carry_out(&mut objects, people.unset((feature, 0)));
            let left = features(&objects);
            let left: Vec<_> = left.iter().filter(|it| it.0 == feature).collect();
            assert!(left.iter().all(|it| before.contains(it)), "{left:?}");
        }
    }

    #[test]
    fn a_script_of_features_follows_from_the_dice_and_draws_each_feature_that_it_is_given() {
        let script = |seed| Script::of_features(&mut Split(seed), SIZE, &Feature::ALL);
        assert_eq!(script(1), script(1));
        assert_ne!(script(1), script(2));
        let script = script(3);
        assert!(script.steps.is_sorted_by_key(|step| step.at));
        assert!(script.steps.len() >= 40, "{}", script.steps.len());
    }

    #[test]
    fn what_holds_everything_is_unset_before_people_rest() {
        let held = [Feature::PauseFleet, Feature::PauseCluster];
        for seed in 0..20 {
            let script = Script::of_features(&mut Split(seed), SIZE, &held);
            let mut objects = Objects::new();
            for step in script.steps {
                carry_out(&mut objects, vec![(step.api, step.act)]);
            }
            assert_eq!(features(&objects), BTreeSet::new(), "seed {seed}");
        }
    }
}
