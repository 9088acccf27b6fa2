//! How much of a placement one decision compares with every cluster. A fleet has thousands of
//! clusters, and whoever may write a policy must not be able to keep the scheduler busy with one
//! workload for seconds.

use muster_shared::api::policy::{
    ClusterAffinity, ClusterAffinityTerm, OverflowClusterAffinity, StaticClusterWeight,
};
use muster_shared::selectors::{MOST_REQUIREMENTS, requirements};

use super::affinity::affinities_of;

/// Affinities of one list that a decision uses: affinity groups with their overflow affinities,
/// or static weights that select clusters.
pub(crate) const MOST_AFFINITIES: usize = 100;

/// Number of terms that have to be compared with every cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    /// Affinities.
    pub affinities: usize,
    /// Requirements of their selectors.
    pub requirements: usize,
}

impl Size {
    fn of(affinity: &ClusterAffinity) -> Self {
        Self {
            affinities: 1,
            requirements: requirements(affinity),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            affinities: self.affinities + other.affinities,
            requirements: self.requirements + other.requirements,
        }
    }

    /// Returns whether a decision uses all of something of this size.
    pub fn fits(self) -> bool {
        self.affinities <= MOST_AFFINITIES && self.requirements <= MOST_REQUIREMENTS
    }

    /// Returns how many of the items, in order, fit together; of the first one at least a part
    /// does.
    fn prefix(self, items: impl Iterator<Item = Self>) -> usize {
        let sums = items.scan(self, |sum, item| {
            *sum = sum.and(item);
            Some(*sum)
        });
        sums.take_while(|sum| sum.fits()).count()
    }
}

impl std::iter::Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), Self::and)
    }
}

/// Returns the size of affinity groups, overflow affinities included.
pub(crate) fn size_of_groups(groups: &[ClusterAffinityTerm]) -> Size {
    groups.iter().map(size_of_group).sum()
}

fn size_of_group(group: &ClusterAffinityTerm) -> Size {
    affinities_of(group).map(Size::of).sum()
}

/// Returns the affinity groups, in order, that a decision tries: one at least.
pub(in crate::scheduler) fn groups_within<'a, I>(groups: I) -> std::iter::Take<I>
where
    I: Iterator<Item = &'a ClusterAffinityTerm> + Clone,
{
    let fitting = Size::default().prefix(groups.clone().map(size_of_group));
    groups.take(fitting.max(1))
}

/// Returns the overflow affinities of a group, in order, that a decision uses.
pub(in crate::scheduler) fn overflow_within(
    group: &ClusterAffinityTerm,
) -> &[OverflowClusterAffinity] {
    let overflow = &group.overflow_affinities;
    let sizes = overflow.iter().map(|it| Size::of(&it.cluster_affinity));
    &overflow[..Size::of(&group.cluster_affinity).prefix(sizes)]
}

/// Returns the size of static weights. Those that only name clusters are looked up, and count for
/// nothing.
pub(crate) fn size_of_weights(weights: &[StaticClusterWeight]) -> Size {
    let selecting = weights.iter().filter(|it| !names_only(&it.target_cluster));
    selecting.map(|it| Size::of(&it.target_cluster)).sum()
}

/// Returns how many of the static weights that select clusters, in order, a decision uses.
pub(in crate::scheduler) fn selecting_within(weights: &[StaticClusterWeight]) -> usize {
    let selecting = weights.iter().filter(|it| !names_only(&it.target_cluster));
    Size::default().prefix(selecting.map(|it| Size::of(&it.target_cluster)))
}

/// Returns whether an affinity names clusters, and asks for nothing else.
pub(in crate::scheduler) fn names_only(affinity: &ClusterAffinity) -> bool {
    !affinity.cluster_names.is_empty()
        && affinity.exclude.is_empty()
        && affinity.label_selector.is_none()
        && affinity.field_selector.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, outcome};

    fn selecting(requirements: usize) -> Value {
        let labels = (0..requirements).map(|n| (format!("k{n}"), json!("v")));
        json!({ "labelSelector": { "matchLabels": labels.collect::<serde_json::Map<_, _>>() } })
    }

    fn group(requirements: usize, overflow: &[usize]) -> ClusterAffinityTerm {
        let mut group = selecting(requirements);
        group["affinityName"] = json!("g");
        group["overflowAffinities"] = overflow.iter().map(|it| selecting(*it)).collect();
        serde_json::from_value(group).unwrap()
    }

    #[test]
    fn as_much_is_used_as_fits_and_of_groups_one_at_least() {
        for (groups, expected) in [
            (vec![], 0),
            (vec![group(1, &[]); 100], 100),
            (vec![group(1, &[]); 101], 100),
            (vec![group(1, &[1]); 100], 50),
            (vec![group(100, &[]); 9], 5),
            (vec![group(100, &[150]); 9], 2),
            (vec![group(501, &[]); 9], 1),
            (vec![group(1, &[1; 300]); 9], 1),
        ] {
            let within = groups_within(groups.iter());
            assert_eq!(within.count(), expected, "{}", groups.len());
            let fits = size_of_groups(&groups).fits();
            assert_eq!(fits, expected == groups.len());
        }
        for (group, expected) in [
            (group(1, &[]), 0),
            (group(1, &[1; 99]), 99),
            (group(1, &[1; 100]), 99),
            (group(300, &[100; 9]), 2),
            (group(501, &[1]), 0),
        ] {
            assert_eq!(overflow_within(&group).len(), expected);
        }
    }

    #[test]
    fn weights_that_select_are_few_and_weights_that_name_are_not_counted() {
        let rule =
            |affinity: Value, weight: i64| json!({ "targetCluster": affinity, "weight": weight });
        let named = |n: usize| rule(json!({ "clusterNames": [format!("x{n}")] }), 1);
        let never = |_| rule(selecting(1), 9);
        let all = rule(json!({ "exclude": ["m2"] }), 3);
        for (before, expected) in [(99, "m1:4"), (100, "m1:2 m2:2")] {
            // A rule for m1 comes after so many others that match nothing.
            let mut rules: Vec<Value> = (0..5_000).map(named).collect();
            rules.extend((0..before).map(never));
            rules.push(all.clone());
            rules.extend((0..10_000).map(never));
            let list: Vec<StaticClusterWeight> =
                serde_json::from_value(json!(rules.clone())).unwrap();
            assert_eq!(selecting_within(&list), 100);
            assert!(!size_of_weights(&list).fits());
            assert!(size_of_weights(&list[..5_100]).fits());
            let placement = json!({ "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Weighted",
                "weightPreference": { "staticWeightList": rules },
            } });
            let clusters = [cluster("m1", 10), cluster("m2", 10)];
            assert_eq!(outcome(&deployment(4, &placement), &clusters), expected);
        }
    }
}
