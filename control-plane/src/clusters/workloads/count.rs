//! Counts workloads that are unhealthy in a cluster while they are healthy in another one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceHealth;
use muster_shared::conditions::{self, FALSE, TRUE, UNKNOWN};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::WORKLOADS_HEALTHY;

/// Workloads of one cluster that are healthy in another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All whose health here is known.
    pub compared: usize,
    /// Those of them that are unhealthy here.
    pub unhealthy: usize,
}

/// Limits of `--cluster-unhealthy-workloads-threshold` and `--cluster-unhealthy-workloads-minimum`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Share of unhealthy workloads, from 0 to 1, from which on the condition is False.
    pub share: f64,
    /// Number of workloads that have to be compared.
    pub minimum: usize,
}

impl Count {
    /// Returns the condition. The message has no numbers of workloads, because they change often.
    pub fn condition(self, limits: Limits, now: Timestamp) -> Condition {
        let percent = limits.share * 100.0;
        #[expect(clippy::cast_precision_loss, reason = "workloads are fewer than 2^52")]
        let (compared, unhealthy) = (self.compared as f64, self.unhealthy as f64);
        let (status, reason, message) = if self.compared < limits.minimum.max(1) {
            let message = format!(
                "fewer than {} workloads of this cluster are healthy in another cluster, too few to compare",
                limits.minimum.max(1)
            );
            (UNKNOWN, "TooFewWorkloads", message)
        } else if unhealthy >= limits.share * compared {
            let message = format!(
                "at least {percent}% of the workloads that are healthy in other clusters are unhealthy in this one"
            );
            (FALSE, "UnhealthyHere", message)
        } else {
            let message = format!(
                "less than {percent}% of the workloads that are healthy in other clusters are unhealthy in this one"
            );
            (TRUE, "HealthyHere", message)
        };
        conditions::new(WORKLOADS_HEALTHY, status, reason, &message, now)
    }
}

/// Counts of all clusters.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<String, Count>);

impl Counts {
    /// Returns the count of a cluster.
    pub fn of(&self, cluster: &str) -> Count {
        self.0.get(cluster).copied().unwrap_or_default()
    }

    /// Takes note of a change of a binding, and returns the clusters whose counts it changes.
    pub fn change(
        &mut self,
        old: Option<&AnyBinding>,
        new: Option<&AnyBinding>,
    ) -> BTreeSet<String> {
        let (was, is) = (compared(old), compared(new));
        let mut changed = BTreeSet::new();
        for (cluster, is_unhealthy) in was.iter().filter(|it| is.get(*it.0) != Some(it.1)) {
            if let Some(count) = self.0.get_mut(*cluster) {
                count.compared = count.compared.saturating_sub(1);
                let fewer = usize::from(*is_unhealthy);
                count.unhealthy = count.unhealthy.saturating_sub(fewer);
                if count.compared == 0 {
                    self.0.remove(*cluster);
                }
            }
            changed.insert((*cluster).to_owned());
        }
        for (cluster, is_unhealthy) in is.iter().filter(|it| was.get(*it.0) != Some(it.1)) {
            let count = self.0.entry((*cluster).to_owned()).or_default();
            count.compared += 1;
            count.unhealthy += usize::from(*is_unhealthy);
            changed.insert((*cluster).to_owned());
        }
        changed
    }
}

/// Returns the clusters in which a workload can be compared, with whether it is unhealthy there:
/// its targets in which its health is known, while it is healthy in another one.
fn compared(binding: Option<&AnyBinding>) -> BTreeMap<&str, bool> {
    let Some(binding) = binding else {
        return BTreeMap::new();
    };
    let targets: BTreeSet<&str> = binding.spec.clusters.iter().map(|it| &*it.name).collect();
    let status = binding.status.as_ref();
    let reports = status.map_or(&[][..], |it| &it.aggregated_status);
    let known: BTreeMap<&str, bool> = reports
        .iter()
        .filter(|it| targets.contains(&*it.cluster_name))
        .filter_map(|it| match it.health {
            Some(ResourceHealth::Healthy) => Some((&*it.cluster_name, false)),
            Some(ResourceHealth::Unhealthy) => Some((&*it.cluster_name, true)),
            _ => None,
        })
        .collect();
    let healthy = known
        .values()
        .filter(|is_unhealthy| !**is_unhealthy)
        .count();
    let is_healthy_elsewhere = |is_unhealthy: bool| healthy > usize::from(!is_unhealthy);
    known
        .into_iter()
        .filter(|(_, is_unhealthy)| is_healthy_elsewhere(*is_unhealthy))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a binding that is placed in clusters and has reports of them.
    fn binding(targets: &[&str], reports: &[(&str, &str)]) -> AnyBinding {
        let targets: Vec<Value> = targets.iter().map(|it| json!({"name": it})).collect();
        let reports: Vec<Value> = reports
            .iter()
            .map(|(cluster, health)| json!({"clusterName": cluster, "health": health}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"clusters": targets}, "status": {"aggregatedStatus": reports},
        }))
        .unwrap()
    }

    #[test]
    fn a_workload_counts_where_its_health_is_known_while_it_is_healthy_elsewhere() {
        let (well, ill) = ("Healthy", "Unhealthy");
        for (targets, reports, expected) in [
            (
                &["a", "b"][..],
                &[("a", well), ("b", ill)][..],
                &[("b", true)][..],
            ),
            (
                &["a", "b"],
                &[("a", well), ("b", well)],
                &[("a", false), ("b", false)],
            ),
            (&["a", "b"], &[("a", ill), ("b", ill)], &[]),
            (&["a", "b"], &[("a", well), ("b", "Unknown")], &[]),
            (&["a"], &[("a", ill)], &[]),
            (&["a"], &[("a", ill), ("b", well)], &[]),
            (
                &["a", "b", "c"],
                &[("a", well), ("b", ill), ("c", well)],
                &[("a", false), ("b", true), ("c", false)],
            ),
            (&["a", "b"], &[], &[]),
        ] {
            let binding = binding(targets, reports);
            let found: Vec<_> = compared(Some(&binding)).into_iter().collect();
            assert_eq!(found, expected, "{targets:?} {reports:?}");
        }
    }

    #[test]
    fn counts_follow_the_bindings_and_tell_whose_changed() {
        let ill = binding(&["a", "b"], &[("a", "Healthy"), ("b", "Unhealthy")]);
        let well = binding(&["a", "b"], &[("a", "Healthy"), ("b", "Healthy")]);
        let mut counts = Counts::default();
        for (old, new, changed, count) in [
            (None, Some(&ill), &["b"][..], (1, 1)),
            (Some(&ill), Some(&ill), &[], (1, 1)),
            (Some(&ill), Some(&well), &["a", "b"], (1, 0)),
            (Some(&well), Some(&ill), &["a", "b"], (1, 1)),
            (Some(&ill), None, &["b"], (0, 0)),
        ] {
            let found: Vec<String> = counts.change(old, new).into_iter().collect();
            assert_eq!(found, changed);
            let found = counts.of("b");
            assert_eq!((found.compared, found.unhealthy), count);
        }
        assert!(counts.0.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn the_condition_is_false_from_a_share_on_and_unknown_of_too_few() {
        let now = Timestamp::UNIX_EPOCH;
        for (compared, unhealthy, share, minimum, expected) in [
            (10, 5, 0.5, 5, FALSE),
            (10, 4, 0.5, 5, TRUE),
            (5, 5, 1.0, 5, FALSE),
            (4, 4, 0.5, 5, UNKNOWN),
            (0, 0, 0.5, 0, UNKNOWN),
            (1, 1, 0.5, 0, FALSE),
        ] {
            let count = Count {
                compared,
                unhealthy,
            };
            let told = count.condition(Limits { share, minimum }, now);
            assert_eq!(told.status, expected, "{count:?} {share} {minimum}");
        }
    }
}
