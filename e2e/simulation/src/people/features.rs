//! People who set and unset features: which ones a seed draws, and how each is set.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::act::{Act, Step};
use super::fleet::{self, Site};
use super::orders::{order, pause, pause_of_fleet, relabel, suspend_scheduling};
use super::script::{NAMESPACES, Script, Size, namespace, reference, widgets};
use super::workloads::{self, Template};
use super::{Dice, fields, policies, taints};
use crate::feature::{CORDON, DRAIN, Feature, PAUSE, PREFERRED, RIVAL, Scope, TAINTS, TIER};
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
        objects.push(
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": PREFERRED}, "value": 1_000}),
        );
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
            last: None,
            at_once: BTreeMap::new(),
            has_removed: false,
        };
        let mut acts: Vec<(u64, Api, Act)> = Vec::new();
        let end = size.busy.saturating_sub(CLEARING);
        for moment in moments(dice, size.steps, end) {
            let reported = people.change_feature(dice, features, moment, end);
            let reported = reported.into_iter();
            acts.extend(reported.map(|(after, api, act)| {
                let at = moment.at + after;
                (at.min(size.busy), api, act)
            }));
        }
        for place in people.set.clone() {
            if is_cleared(dice, place.0) {
                let at = end + dice.below(CLEARING);
                let reported = one_by_one(people.unset(place));
                acts.extend(reported.map(|(after, api, act)| (at + after, api, act)));
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

/// When a person does something.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: u64,
    /// Whether it is given at once with the step before it.
    follows: bool,
}

/// Moments of the steps, the earliest first. Some follow another at once.
fn moments(dice: &mut impl Dice, steps: u64, end: u64) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    for _ in 0..steps {
        let last = moments.last().filter(|_| dice.percent(50));
        moments.push(match last {
            // Two of three before even a program that is fast can have answered the first.
            Some(last) => Moment {
                at: last.at + [1, 2, 3 + dice.below(AT_ONCE)][index(dice, 3)],
                follows: true,
            },
            None => Moment {
                at: dice.below(end),
                follows: false,
            },
        });
    }
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// Acts with the milliseconds after which each is done: who changes one object twice reads it again
/// in between.
fn one_by_one(acts: Vec<(Api, Act)>) -> impl Iterator<Item = (u64, Api, Act)> {
    let times = (0..).step_by(50);
    times.zip(acts).map(|(after, (api, act))| (after, api, act))
}

/// Returns whether people unset a feature before they rest. What holds everything is not forgotten.
fn is_cleared(dice: &mut impl Dice, feature: Feature) -> bool {
    match feature {
        Feature::PauseFleet | Feature::PauseCluster | Feature::SuspendScheduling => true,
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
    /// What was changed last.
    last: Option<Place>,
    /// How often one feature was changed at once after another.
    at_once: BTreeMap<(Feature, Feature), u64>,
    /// Whether a cluster was taken out of the fleet.
    has_removed: bool,
}

impl People<'_> {
    /// Sets a feature that is not set, or unsets it; now and then edits a template.
    fn change_feature(
        &mut self,
        dice: &mut impl Dice,
        features: &[Feature],
        moment: Moment,
        end: u64,
    ) -> Vec<(u64, Api, Act)> {
        // A fleet that has lost a cluster shows less of everything else.
        let may_remove = moment.at > end / 3 * 2 && !self.has_removed;
        let features = features.iter().copied();
        let features: Vec<Feature> = features
            .filter(|it| *it != Feature::Remove || may_remove)
            .collect();
        let last = self.last.filter(|_| moment.follows);
        let feature = self.choose(dice, &features, last.map(|(feature, _)| feature));
        // Orders that are given at once are about one thing most of the time.
        let same = last.filter(|(last, _)| last.scope() == feature.scope() && dice.percent(80));
        let number = match (feature.scope(), same) {
            (_, Some((_, number))) => number,
            (Scope::Workload, None) if dice.percent(70) => 0,
            (Scope::Workload, None) => index(dice, self.targets.len()),
            (Scope::Cluster, None) if dice.percent(50) => self.focus,
            (Scope::Cluster, None) => index(dice, self.sites.len()),
            (Scope::Fleet, None) => 0,
        };
        if dice.percent(5) {
            let object = self.targets[0].template.edit(dice);
            return vec![(0, Api::Fleet, Act::Apply { object })];
        }
        let place = (feature, number);
        self.last = Some(place);
        self.has_removed |= feature == Feature::Remove;
        if self.set.contains(&place) {
            return one_by_one(self.unset(place)).collect();
        }
        self.set
            .retain(|it| it.1 != number || !feature.excludes(it.0));
        if !feature.is_order() {
            self.set.push(place);
        }
        let mut reported: Vec<_> = one_by_one(self.set(dice, place)).collect();
        if let Some(object) = self.comes_back(place) {
            let after = dice.between(1_000, 60_000);
            reported.push((after, Api::Fleet, Act::Apply { object }));
        }
        reported
    }

    /// Returns the object that an order deletes and that a person brings back a while later.
    fn comes_back(&self, (feature, number): Place) -> Option<Value> {
        match feature {
            Feature::Delete => Some(self.targets[number].template.object.clone()),
            Feature::Detach => self.targets[number].template.needs.first().cloned(),
            Feature::Withdraw => Some(self.targets[number].policy.clone()),
            _ => None,
        }
    }

    /// Chooses what is changed next: at once after another change what followed it least.
    fn choose(
        &mut self,
        dice: &mut impl Dice,
        features: &[Feature],
        last: Option<Feature>,
    ) -> Feature {
        let Some(last) = last else {
            return *dice.one(features);
        };
        let times = |it: &Feature| self.at_once.get(&(last, *it)).copied().unwrap_or_default();
        let fewest = features.iter().map(times).min().unwrap_or_default();
        let rare: Vec<Feature> = features
            .iter()
            .copied()
            .filter(|it| times(it) == fewest)
            .collect();
        let feature = *dice.one(&rare);
        *self.at_once.entry((last, feature)).or_default() += 1;
        feature
    }

    fn set(&mut self, dice: &mut impl Dice, (feature, number): Place) -> Vec<(Api, Act)> {
        let fleet = |act| vec![(Api::Fleet, act)];
        self.number += 1;
        match feature.scope() {
            Scope::Cluster => return order(dice, feature, &self.sites[number].name),
            Scope::Fleet if feature == Feature::Reform => {
                let object = taints::draw(dice, 1);
                return fleet(Act::Replace { object });
            }
            Scope::Fleet => {
                let mut object = pause_of_fleet();
                object["data"] = json!({"reason": "maintenance", "by": "operator"});
                return fleet(Act::Apply { object });
            }
            Scope::Workload => {}
        }
        let target = &mut self.targets[number];
        match feature {
            Feature::Scale => {
                let object = target.template.scale(dice);
                fleet(Act::Apply { object })
            }
            // A workload that refers to nothing has nothing to lose.
            Feature::Delete | Feature::Detach | Feature::Withdraw => {
                let object = self.comes_back((feature, number)).as_ref().map(reference);
                let deletion = object.map(|object| (Api::Fleet, Act::Delete { object }));
                deletion.into_iter().collect()
            }
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
            _ => {
                let spec = fields::set(dice, feature, self.sites, self.focus);
                fleet(target.patch(spec))
            }
        }
    }

    /// Returns an order to place workloads anew: often all that there are.
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
                let site = &self.sites[number];
                let cluster = site.name.clone();
                let key = match feature {
                    Feature::Relabel => {
                        let tier = site.labels.get(TIER.0).map_or("", String::as_str);
                        return fleet(relabel(&cluster, tier));
                    }
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

    /// Returns a policy with the rules of the first one, which takes the workload over from that
    /// one.
    fn rival(&self) -> Value {
        let mut rival = self.policy.clone();
        let name = self.policy["metadata"]["name"].as_str().unwrap_or_default();
        rival["metadata"]["name"] = json!(format!("{name}{RIVAL}"));
        rival["spec"]["priority"] = json!(10);
        rival["spec"]["preemption"] = json!("Always");
        rival
    }
}

#[cfg(test)]
mod tests;
