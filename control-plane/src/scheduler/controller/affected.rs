//! Finds the scheduled bindings that a change of a cluster affects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::selectors::Affinity;

use super::cluster_change::Effect;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::scheduler::core::affinity::affinities;

/// A change of what a cluster admits, and the cluster.
pub type EffectOn<'a> = (Effect, &'a Cluster);

/// Returns the bindings of which these effects may change the result. Only those are read that name
/// one of the clusters, or that may move to it although they are settled.
pub fn concerned(bindings: &Bindings, effects: &[EffectOn<'_>]) -> BTreeSet<BindingKey> {
    let name = |(_, cluster): &EffectOn<'_>| cluster.metadata.name.clone();
    let names: BTreeSet<_> = effects.iter().filter_map(name).collect();
    let index = bindings.index();
    let mut concerns = Concerns::of(effects);
    let mut keys: BTreeSet<_> = names.iter().flat_map(|it| index.naming(it)).collect();
    keys.extend(index.alike(|alike| {
        let placement = &alike.placement;
        !stays(alike.are_workloads, placement) && concerns.chosen(placement).contains(&true)
    }));
    let is_concerned = |key: &Arc<BindingKey>| {
        let binding = bindings.peek(key);
        binding.is_some_and(|it| concerns.has(&it.spec))
    };
    let keys = keys.into_iter().filter(is_concerned);
    keys.map(Arc::unwrap_or_clone).collect()
}

/// Turns of clusters, and which placements can choose these: bindings of one policy share their
/// placement, which is compared once.
#[derive(Debug)]
struct Concerns<'a> {
    effects: &'a [EffectOn<'a>],
    /// Whether the cluster of each effect can be chosen. The placements are kept, so that their
    /// addresses tell them apart.
    chosen: HashMap<*const Placement, (Arc<Placement>, Vec<bool>)>,
}

impl<'a> Concerns<'a> {
    /// Returns the concerns of these effects.
    fn of(effects: &'a [EffectOn<'a>]) -> Self {
        Self {
            effects,
            chosen: HashMap::new(),
        }
    }

    /// Returns whether one of the effects may change the result of a binding that is settled.
    fn has(&mut self, spec: &ResourceBindingSpec) -> bool {
        let Some(placement) = &spec.placement else {
            return false;
        };
        let effects = self.effects;
        let mut effects = effects.iter().zip(self.chosen(placement));
        effects.any(|(effect_on, may_choose)| concerns(spec, placement, *effect_on, *may_choose))
    }

    /// Returns for each effect whether a placement can choose its cluster.
    fn chosen(&mut self, placement: &Arc<Placement>) -> &[bool] {
        let effects = self.effects;
        let known = self.chosen.entry(Arc::as_ptr(placement));
        let (_, chosen) = known.or_insert_with(|| {
            let choice = Choice::of(placement);
            let chosen = effects.iter().map(|(_, cluster)| choice.has(cluster));
            (Arc::clone(placement), chosen.collect())
        });
        chosen
    }
}

/// Returns whether the effect of a cluster may change the result of a binding that is settled.
/// Divided workloads stay where they are, unless a cluster of theirs is leaving (Karmada
/// behaviour), or one that keeps a copy, which holds up no move any more. What has no cluster may
/// return to a copy that is kept, instead of waiting to move. For the others, too, a cluster that
/// only admits more or less says nothing of what it has already. No cluster has what is scaled to
/// zero, so that one which admits less may be missing.
fn concerns(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    (effect, cluster): EffectOn<'_>,
    may_choose: bool,
) -> bool {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let is_target = || spec.target(name).is_some();
    let keeps_copy = || spec.eviction_task(name).is_some();
    match effect {
        Effect::Leaves => is_target() || keeps_copy(),
        Effect::Moved | Effect::AdmitsMore if spec.clusters.is_empty() && keeps_copy() => true,
        _ if stays(spec.is_workload(), placement) => false,
        Effect::Moved => is_target() || may_choose,
        Effect::AdmitsMore => !is_target() && may_choose,
        // It is settled with an empty result (Karmada behaviour).
        Effect::AdmitsLess => spec.is_scaled_to_zero() && spec.clusters.is_empty() && may_choose,
    }
}

/// Returns whether bindings stay where they are as long as their clusters do.
fn stays(are_workloads: bool, placement: &Placement) -> bool {
    are_workloads && placement.is_divided()
}

/// Which clusters a placement can choose at all, in any of its affinity groups.
#[derive(Debug)]
pub struct Choice<'a> {
    /// Empty: any cluster.
    affinities: Vec<Affinity<'a>>,
}

impl<'a> Choice<'a> {
    /// Returns the choice of a placement.
    pub fn of(placement: &'a Placement) -> Self {
        Self {
            affinities: affinities(placement).map(Affinity::new).collect(),
        }
    }

    /// Returns the same choice as an owned value, which can be kept.
    pub fn into_owned(self) -> Choice<'static> {
        Choice {
            affinities: self
                .affinities
                .into_iter()
                .map(Affinity::into_owned)
                .collect(),
        }
    }

    /// Returns whether the choice has the cluster.
    pub fn has(&self, cluster: &Cluster) -> bool {
        self.affinities.is_empty() || self.affinities.iter().any(|it| it.matches(cluster))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::Bench;
    use crate::scheduler::tests::fixtures::{
        cluster, config_map, decoded, deployment, dynamic, placed,
    };

    /// Returns a divided workload that no cluster took, and whose copy in `m1` is kept.
    fn kept() -> ResourceBindingSpec {
        let mut kept = deployment(3, &dynamic());
        let task = json!([{"fromCluster": "m1", "reason": "NoClusterFit", "producer": "p"}]);
        kept.graceful_eviction_tasks = serde_json::from_value(task).unwrap();
        kept
    }

    #[test]
    fn a_change_of_a_cluster_concerns_whom_it_may_move() {
        use Effect::{AdmitsLess, AdmitsMore, Leaves, Moved};
        let only_m1 = json!({ "clusterAffinity": { "clusterNames": ["m1"] } });
        let (m1, m2) = (decoded(&cluster("m1", 10)), decoded(&cluster("m2", 10)));
        let divided = placed(deployment(3, &dynamic()), &[("m1", 3)]);
        let copy = config_map(&only_m1);
        let copied = placed(config_map(&only_m1), &[("m1", 0)]);
        let narrowed = placed(config_map(&only_m1), &[("m2", 0)]);
        let none = deployment(0, &only_m1);
        let waiting = deployment(3, &only_m1);
        let no_parts = deployment(0, &dynamic());
        let kept = kept();
        for (what, spec, effect, cluster, expected) in [
            // Not divided: where it may be, and is not, or where that may be over.
            ("it may go there now", &copy, AdmitsMore, &m1, true),
            ("it may not go there", &copy, AdmitsMore, &m2, false),
            ("it is there", &copied, AdmitsMore, &m1, false),
            ("its cluster has other labels", &copied, Moved, &m1, true),
            ("it has labels not asked for", &narrowed, Moved, &m2, true),
            ("another one has other labels", &copied, Moved, &m2, false),
            ("its cluster leaves", &copied, Leaves, &m1, true),
            ("another one leaves", &copied, Leaves, &m2, false),
            ("what it has stays", &copied, AdmitsLess, &m1, false),
            ("it waits anyway", &copy, AdmitsLess, &m1, false),
            ("its replicas wait", &waiting, AdmitsLess, &m1, false),
            // Scaled to zero: no cluster has it, and each that it may choose counts.
            ("it may choose it", &none, AdmitsLess, &m1, true),
            ("it may not choose it", &none, AdmitsLess, &m2, false),
            ("it is back", &none, AdmitsMore, &m1, true),
            // Divided: it stays, unless its cluster goes.
            ("none of it", &no_parts, AdmitsLess, &m1, false),
            ("less to go to", &divided, AdmitsLess, &m2, false),
            ("more room to go to", &divided, AdmitsMore, &m2, false),
            ("its cluster is another", &divided, Moved, &m1, false),
            ("its cluster goes", &divided, Leaves, &m1, true),
            ("another goes", &divided, Leaves, &m2, false),
            ("its kept copy goes", &kept, Leaves, &m1, true),
            ("another than that goes", &kept, Leaves, &m2, false),
            ("it may stay", &kept, Moved, &m1, true),
            ("it may stay again", &kept, AdmitsMore, &m1, true),
            ("it may go elsewhere", &kept, AdmitsMore, &m2, false),
        ] {
            let found = Concerns::of(&[(effect, cluster)]).has(spec);
            assert_eq!(found, expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_index_leaves_out_nothing_that_a_change_concerns() {
        let only_m1 = json!({ "clusterAffinity": { "clusterNames": ["m1"] } });
        let anywhere = json!({});
        let specs = [
            config_map(&only_m1),
            config_map(&anywhere),
            placed(config_map(&only_m1), &[("m1", 0)]),
            placed(config_map(&only_m1), &[("m2", 0)]),
            placed(config_map(&anywhere), &[("m1", 0), ("m2", 0)]),
            deployment(0, &only_m1),
            deployment(0, &anywhere),
            deployment(3, &only_m1),
            deployment(3, &dynamic()),
            placed(deployment(3, &dynamic()), &[("m1", 3)]),
            placed(deployment(3, &dynamic()), &[("m1", 1), ("m2", 2)]),
            kept(),
        ];
        let named = specs.iter().enumerate().map(|(number, spec)| {
            let metadata = json!({"namespace": "shop", "name": format!("w{number}")});
            let binding = json!({"metadata": metadata, "spec": spec});
            ("resourcebindings", binding)
        });
        let bench = Bench::followed(named).await;
        let bindings = &bench.fleet.bindings;
        let (m1, m2) = (decoded(&cluster("m1", 10)), decoded(&cluster("m2", 10)));
        let effects = [&m1, &m2].into_iter().flat_map(|it| {
            [
                (Effect::Leaves, it),
                (Effect::Moved, it),
                (Effect::AdmitsMore, it),
                (Effect::AdmitsLess, it),
            ]
        });
        for effect_on in effects {
            let effects = [effect_on];
            let mut concerns = Concerns::of(&effects);
            let all = bindings.iter().filter(|it| concerns.has(&it.spec));
            let all: BTreeSet<_> = all.map(|it| BindingKey::of(&it)).collect();
            let (effect, _) = effect_on;
            assert!(!all.is_empty(), "{effect:?} concerns nobody");
            assert_eq!(concerned(bindings, &effects), all, "{effect:?}");
        }
    }
}
