use std::collections::BTreeSet;

use muster_shared::merge;

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
                merge::apply(objects.entry(key(&object)).or_default(), &object);
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
        if feature.is_order() {
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
            last: None,
            at_once: BTreeMap::new(),
            has_removed: false,
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
