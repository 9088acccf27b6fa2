//! Nobody who may be helped is missed, however few demands are told apart: compared with asking
//! each binding by itself, and with what a decision would come to.

use std::collections::{BTreeMap, BTreeSet};

use muster_shared::api::binding::ResourceBindingStatus;
use muster_shared::api::cluster::Cluster;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::scheduler::controller::affected::Choice;
use crate::scheduler::core::capacity::Capacity;
use crate::scheduler::core::{Cycle, Options};
use crate::scheduler::tests::fixtures::{
    aggregated, cluster, decoded, deployment, dynamic, snapshot,
};

/// Clusters of a fleet.
const CLUSTERS: u8 = 4;

/// What happens to a cluster: which one, its cores, its memory, and whether it has a taint, has
/// gone, or counts grades.
type Step = (u8, i64, i64, u8);

fn step() -> impl Strategy<Value = Step> {
    (0..CLUSTERS, 0i64..9, 0i64..9, 0u8..8)
}

fn state((number, cores, gibibytes, variant): Step) -> Option<Value> {
    let mut cluster = cluster(&format!("m{number}"), cores);
    cluster["metadata"]["labels"] = json!({ "half": (number % 2).to_string() });
    cluster["status"]["resourceSummary"]["allocatable"]["memory"] = json!(format!("{gibibytes}Gi"));
    match variant {
        0 => return None,
        1 => cluster["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]),
        2 => {
            let range = |name, min| json!({ "name": name, "min": min, "max": "1k" });
            let ranges = [range("cpu", "1"), range("memory", "0")];
            cluster["spec"]["resourceModels"] = json!([{ "grade": 0, "ranges": ranges }]);
            let count = json!([{ "grade": 0, "count": cores }]);
            cluster["status"]["resourceSummary"]["allocatableModelings"] = count;
        }
        _ => {}
    }
    Some(cluster)
}

/// Returns a strategy for workloads: which clusters each may go to, its replicas, and what each
/// replica asks for, in thousandths of a core and of a gibibyte.
fn workload() -> impl Strategy<Value = ResourceBindingSpec> {
    let affinity = prop::sample::select(vec![
        Value::Null,
        json!({ "clusterNames": ["m0", "m1"] }),
        json!({ "labelSelector": { "matchLabels": { "half": "1" } } }),
        json!({ "clusterNames": ["nowhere"] }),
    ]);
    let one = json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    let spread = prop::sample::select(vec![Value::Null, Value::Null, one]);
    let shape = (
        affinity,
        spread,
        any::<bool>(),
        1i32..12,
        1i64..3_000,
        0i64..2_000,
    );
    shape.prop_map(|(affinity, spread, is_dynamic, replicas, cpu, memory)| {
        let mut placement = if is_dynamic { dynamic() } else { aggregated() };
        placement["clusterAffinity"] = affinity;
        if !spread.is_null() {
            placement["spreadConstraints"] = spread;
        }
        let mut spec = deployment(replicas, &placement);
        let requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") });
        spec.replica_requirements =
            serde_json::from_value(json!({ "resourceRequest": requests })).unwrap();
        spec
    })
}

/// Returns all that are woken by the change, in rounds that are fewer than the bindings.
fn woken(
    waiting: &Waiting<usize>,
    changes: &[ClusterChange<'_>],
    bindings: usize,
) -> BTreeSet<usize> {
    let mut woken: BTreeSet<usize> = BTreeSet::new();
    woken.extend(
        waiting
            .helped(changes, GradeRule::Minimums)
            .iter()
            .map(|it| it.0),
    );
    for _ in 0..=bindings {
        woken.extend(waiting.next_round().iter().map(|it| it.0));
    }
    assert!(waiting.state.lock().wake_order.is_empty());
    woken
}

/// One binding that is asked by itself.
struct Asked {
    wait: Wait,
    growth: i64,
}

impl Asked {
    /// Returns whether the change may help the binding, together with those before.
    fn follows(&mut self, change: &ClusterChange<'_>, spec: &ResourceBindingSpec) -> bool {
        let placement = spec.placement.as_ref().unwrap();
        let choice = Choice::of(placement);
        let chosen = |it: Option<&Cluster>| it.is_some_and(|it| choice.has(it));
        let is_now = chosen(change.now);
        let admits = change.admits_more() && is_now;
        let touches = change.effect.is_some() && (is_now || chosen(change.before));
        let requests = spec.replica_requirements.as_ref().unwrap();
        let demand = Demand::new(&requests.resource_request);
        let room = |it: &Capacity| it.replicas(Some(&demand), GradeRule::Minimums);
        if let Some((before, now)) = change.room().filter(|_| is_now) {
            self.growth += (room(now) - before.map_or(0, room)).max(0);
        }
        match self.wait.wish {
            WaitsFor::Nothing => false,
            WaitsFor::Admission => admits,
            WaitsFor::Room => admits || self.growth >= self.wait.lacking,
            WaitsFor::Anything => touches || self.growth > 0,
        }
    }
}

fn wish() -> impl Strategy<Value = WaitsFor> {
    prop::sample::select(vec![
        WaitsFor::Nothing,
        WaitsFor::Admission,
        WaitsFor::Room,
        WaitsFor::Room,
        WaitsFor::Anything,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whoever_would_be_woken_if_asked_by_itself_is_woken(
        specs in prop::collection::vec((workload(), wish(), 1i64..9), 1..24),
        steps in prop::collection::vec(step(), 1..30),
        most_demands in 1usize..12,
        leaving in prop::collection::btree_set(0usize..24, 0..12),
    ) {
        let waiting = Waiting::new(false, most_demands);
        let mut asked: BTreeMap<usize, Asked> = BTreeMap::new();
        let put = |key: usize, asked: &mut BTreeMap<usize, Asked>| {
            let (spec, wish, lacking) = &specs[key];
            let wait = Wait { wish: *wish, lacking: *lacking };
            waiting.put(&key, Some((spec, wait)));
            asked.insert(key, Asked { wait, growth: 0 });
        };
        (0..specs.len()).for_each(|key| put(key, &mut asked));
        let mut fleet: BTreeMap<u8, Cluster> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            let old = fleet.remove(&step.0);
            let new = state(*step).as_ref().map(decoded);
            let changes: Vec<_> = ClusterChange::between(old.as_ref(), new.as_ref()).into_iter().collect();
            let woken = woken(&waiting, &changes, specs.len());
            for (key, asked) in &mut asked {
                let expected = changes.iter().any(|change| asked.follows(change, &specs[*key].0));
                prop_assert!(woken.contains(key) || !expected, "binding {key} is missed");
                // With numbers enough for all, nobody is woken without need.
                let is_exact = most_demands > specs.len();
                prop_assert!(!is_exact || expected || !woken.contains(key), "binding {key}");
            }
            // Looked at in vain they wait again; some leave meanwhile, and so do demands.
            for key in woken {
                put(key, &mut asked);
            }
            if let Some(key) = leaving.iter().nth(number) {
                waiting.put(key, None);
                asked.remove(key);
            }
            fleet.extend(new.map(|new| (step.0, new)));
        }
    }

    #[test]
    fn whoever_would_be_placed_is_woken(
        specs in prop::collection::vec(workload(), 1..12),
        steps in prop::collection::vec(step(), 1..24),
        most_demands in 1usize..6,
    ) {
        let waiting = Waiting::new(false, most_demands);
        let mut fleet: BTreeMap<u8, Value> = BTreeMap::new();
        let decide = |key: usize, fleet: &BTreeMap<u8, Value>| {
            let clusters: Vec<Value> = fleet.values().cloned().collect();
            let status = ResourceBindingStatus::default();
            Cycle::run(&specs[key], &status, &snapshot(&clusters), &Options::default())
        };
        // Decides about a binding, and says whether it waits.
        let check = |key: usize, fleet: &BTreeMap<u8, Value>| {
            let pass = decide(key, fleet);
            let wait = pass.result.is_err().then(|| Wait::after(&specs[key], &pass.attempts));
            waiting.put(&key, wait.map(|wait| (&specs[key], wait)));
            wait.is_some()
        };
        let mut left: BTreeSet<usize> =
            (0..specs.len()).filter(|key| check(*key, &fleet)).collect();
        for step in steps {
            let old = fleet.remove(&step.0).as_ref().map(decoded);
            let new = state(step);
            fleet.extend(new.clone().map(|new| (step.0, new)));
            let new = new.as_ref().map(decoded);
            let changes: Vec<_> = ClusterChange::between(old.as_ref(), new.as_ref()).into_iter().collect();
            let woken = woken(&waiting, &changes, specs.len());
            for key in left.clone() {
                if !woken.contains(&key) {
                    let result = decide(key, &fleet).result;
                    prop_assert!(result.is_err(), "binding {key} is missed: {result:?}");
                } else if !check(key, &fleet) {
                    left.remove(&key);
                }
            }
        }
    }
}
