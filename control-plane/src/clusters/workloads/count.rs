//! Counts workloads that are unhealthy in a cluster while they are healthy in another one.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{AggregatedStatusItem, ObjectReference, ResourceHealth};
use muster_shared::conditions::{self, FALSE, TRUE, UNKNOWN};
use muster_shared::finished::is_task;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::WORKLOADS_HEALTHY;

use crate::settings::Settings;

/// Workloads of one cluster that are healthy in another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// All whose health here is known.
    pub compared: usize,
    /// Share of them that is unhealthy here, from 0 to 1: the mean of the shares of all namespaces,
    /// so that one team alone does not speak for a cluster.
    pub unhealthy: f64,
}

impl Count {
    /// Counts the workloads of a cluster among some bindings. Only the reports of other clusters
    /// that are not silent count: the last one of a dead cluster may be that all was well.
    #[expect(clippy::cast_precision_loss, reason = "workloads are fewer than 2^52")]
    pub fn of<B: Borrow<AnyBinding>>(
        cluster: &str,
        bindings: impl IntoIterator<Item = B>,
        is_reporting: impl Fn(&str) -> bool,
    ) -> Self {
        let mut namespaces = BTreeMap::<Option<String>, (usize, usize)>::new();
        for binding in bindings {
            let binding = binding.borrow();
            let known = known(binding);
            let elsewhere = |(other, is_unhealthy): (&&str, &bool)| {
                *other != cluster && !is_unhealthy && is_reporting(other)
            };
            if let Some(is_unhealthy) = known.get(cluster)
                && known.iter().any(elsewhere)
            {
                let namespace = binding.metadata.namespace.clone();
                let (compared, unhealthy) = namespaces.entry(namespace).or_default();
                *compared += 1;
                *unhealthy += usize::from(*is_unhealthy);
            }
        }
        let shares = namespaces.values();
        let shares = shares.map(|(compared, unhealthy)| *unhealthy as f64 / *compared as f64);
        Self {
            unhealthy: shares.sum::<f64>() / namespaces.len().max(1) as f64,
            compared: namespaces.values().map(|it| it.0).sum(),
        }
    }

    /// Returns the condition. The message has no numbers of workloads, because they change often.
    pub fn condition(self, settings: &Settings, now: Timestamp) -> Condition {
        let share = settings.cluster_unhealthy_workloads_threshold;
        let percent = share * 100.0;
        let minimum = settings.cluster_unhealthy_workloads_minimum.max(1);
        let (status, reason, message) = if self.compared < minimum {
            let message = format!(
                "fewer than {minimum} workloads of this cluster are healthy in another cluster, too few to compare"
            );
            (UNKNOWN, "TooFewWorkloads", message)
        } else if self.unhealthy >= share {
            let message = format!(
                "at least {percent}% of the workloads that are healthy in other clusters are unhealthy in this one, as the mean of all namespaces"
            );
            (FALSE, "UnhealthyHere", message)
        } else {
            let message = format!(
                "less than {percent}% of the workloads that are healthy in other clusters are unhealthy in this one, as the mean of all namespaces"
            );
            (TRUE, "HealthyHere", message)
        };
        conditions::new(WORKLOADS_HEALTHY, status, reason, &message, now)
    }
}

/// Returns the targets of a workload in which its health is known, with whether it is unhealthy
/// there; none of what has no replicas, which is healthy wherever it exists, as a share of zero is
/// (`--enable-empty-workload-propagation`), and a copy that an override policy or an autoscaler
/// leaves none. Where dispatching is suspended, people work on the copy by hand: its health says
/// nothing of its cluster. Nor does that of a task, such as a Job, which keeps the health with
/// which it has ended for as long as its template is there.
pub fn known(binding: &AnyBinding) -> BTreeMap<&str, bool> {
    let spec = &binding.spec;
    let (version, kind) = (&spec.resource.api_version, &spec.resource.kind);
    if spec.asks_for_none() || is_task(version, kind) {
        return BTreeMap::new();
    }
    let status = binding.status.as_ref();
    let reports = status.map_or(&[][..], |it| &it.aggregated_status);
    let known = reports
        .iter()
        .filter_map(|it| match it.health {
            Some(ResourceHealth::Healthy) if runs_none(&spec.resource, it) => None,
            Some(ResourceHealth::Healthy) => Some((&*it.cluster_name, false)),
            Some(ResourceHealth::Unhealthy) => Some((&*it.cluster_name, true)),
            _ => None,
        })
        .filter(|(cluster, _)| spec.has_copy(cluster) && !spec.dispatching_suspended_in(cluster));
    known.collect()
}

/// Returns whether a cluster reports that its copy has no replicas.
fn runs_none(resource: &ObjectReference, report: &AggregatedStatusItem) -> bool {
    report.status.as_ref().is_some_and(|status| {
        let replicas = status.0["replicas"].as_i64();
        replicas.or_else(|| resource.is_counted().then_some(0)) == Some(0)
    })
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
            "spec": {"clusters": targets, "replicas": 1}, "status": {"aggregatedStatus": reports},
        }))
        .unwrap()
    }

    const WELL: &str = "Healthy";
    const ILL: &str = "Unhealthy";

    #[test]
    fn a_workload_counts_where_its_health_is_known_while_it_is_healthy_elsewhere() {
        let (both, one) = (&["a", "b"][..], &["a"][..]);
        for (targets, reports, expected) in [
            (both, &[("a", WELL), ("b", ILL)][..], [None, Some(1.0)]),
            (both, &[("a", WELL), ("b", WELL)], [Some(0.0), Some(0.0)]),
            (both, &[("a", ILL), ("b", ILL)], [None, None]),
            (both, &[("a", WELL), ("b", "Unknown")], [None, None]),
            (one, &[("a", ILL)], [None, None]),
            (one, &[("a", ILL), ("b", WELL)], [None, None]),
            (
                &["a", "b", "c"],
                &[("a", WELL), ("b", ILL), ("c", WELL)],
                [Some(0.0), Some(1.0)],
            ),
            // d is silent.
            (&["a", "d"], &[("a", ILL), ("d", WELL)], [None, None]),
            (both, &[], [None, None]),
        ] {
            let binding = binding(targets, reports);
            let count = |cluster| Count::of(cluster, [&binding], |it| it != "d");
            let found = ["a", "b"].map(count);
            let found = found.map(|it| (it.compared > 0).then_some(it.unhealthy));
            assert_eq!(found, expected, "{targets:?} {reports:?}");
        }
    }

    #[test]
    fn a_share_of_zero_replicas_is_no_copy_that_is_healthy_elsewhere() {
        let mut binding = binding(&["a", "b"], &[("a", ILL), ("b", WELL)]);
        for (shares, expected) in [([1, 1], 1), ([1, 0], 0)] {
            for (target, replicas) in binding.spec.clusters.iter_mut().zip(shares) {
                target.replicas = replicas;
            }
            let count = Count::of("a", [&binding], |_| true);
            assert_eq!(count.compared, expected, "{shares:?}");
        }
    }

    #[test]
    fn tasks_copies_that_run_nothing_and_those_that_people_work_on_are_not_compared() {
        let resource = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
        let own = resource("apps/v1", "Deployment");
        let other = resource("example.com/v1", "Widget");
        let job = resource("batch/v1", "Job");
        let (one, none) = (json!({"replicas": 1}), json!({"observedGeneration": 1}));
        let zero = json!({"replicas": 0});
        for (what, resource, in_a, in_b, suspended, expected) in [
            ("both run", &own, &one, &one, &[][..], 1),
            ("a Job", &job, &one, &one, &[], 0),
            ("none in b", &own, &one, &none, &[], 0),
            ("none in b, of a custom kind", &other, &one, &zero, &[], 0),
            ("not counted in b", &other, &one, &none, &[], 1),
            ("not known of b", &own, &one, &Value::Null, &[], 1),
            ("none could start in a", &own, &none, &one, &[], 1),
            ("a is suspended", &own, &one, &one, &["a"], 0),
            ("b is suspended", &own, &one, &one, &["b"], 0),
            ("another one is suspended", &own, &one, &one, &["c"], 1),
        ] {
            let mut binding = binding(&["a", "b"], &[("a", ILL), ("b", WELL)]);
            binding.spec.resource = serde_json::from_value(resource.clone()).unwrap();
            let suspension = json!({"dispatchingOnClusters": {"clusterNames": suspended}});
            binding.spec.suspension = serde_json::from_value(suspension).unwrap();
            let reports = &mut binding.status.as_mut().unwrap().aggregated_status;
            for (report, status) in reports.iter_mut().zip([in_a, in_b]) {
                report.status = serde_json::from_value(status.clone()).unwrap();
            }
            let count = Count::of("a", [&binding], |_| true);
            assert_eq!(count.compared, expected, "{what}");
        }
    }

    fn settings(share: f64, minimum: usize) -> Settings {
        Settings {
            cluster_unhealthy_workloads_threshold: share,
            cluster_unhealthy_workloads_minimum: minimum,
            ..Settings::default()
        }
    }

    /// Returns what is reported of b, of these workloads: namespaces, workloads of each, their
    /// replicas and their health in b, while they are healthy in a.
    fn reported(workloads: &[(&str, usize, i32, &str)]) -> String {
        let all = workloads
            .iter()
            .flat_map(|(namespace, number, replicas, in_b)| {
                let mut bound = binding(&["a", "b"], &[("a", WELL), ("b", in_b)]);
                bound.metadata.namespace = Some((*namespace).to_owned());
                bound.spec.replicas = *replicas;
                std::iter::repeat_n(bound, *number)
            });
        let count = Count::of("b", all, |_| true);
        let settings = settings(0.5, 5);
        count.condition(&settings, Timestamp::UNIX_EPOCH).status
    }

    /// Counts kinds without a rule of health, which agents report as Healthy.
    #[test]
    fn config_maps_that_are_always_healthy_do_not_hide_that_all_deployments_are_ill() {
        assert_eq!(
            reported(&[("shop", 10, 2, ILL), ("shop", 30, 0, WELL)]),
            FALSE
        );
        assert_eq!(reported(&[("shop", 30, 0, ILL)]), UNKNOWN);
    }

    /// Plays a team whose override for b breaks its own copies there.
    #[test]
    fn one_namespace_of_several_alone_does_not_condemn_a_cluster() {
        let ill = ("team", 100, 2, ILL);
        for (others, expected) in [
            (&[][..], FALSE),
            (&[("x", 1, 2, WELL)], FALSE),
            (&[("x", 1, 2, WELL), ("y", 1, 2, WELL)], TRUE),
            (&[("x", 1, 2, WELL), ("y", 1, 2, ILL)], FALSE),
        ] {
            assert_eq!(reported(&[&[ill], others].concat()), expected, "{others:?}");
        }
    }

    #[test]
    fn the_condition_is_false_from_a_share_on_and_unknown_of_too_few() {
        let now = Timestamp::UNIX_EPOCH;
        for (compared, unhealthy, share, minimum, expected) in [
            (10, 0.5, 0.5, 5, FALSE),
            (10, 0.4, 0.5, 5, TRUE),
            (5, 1.0, 1.0, 5, FALSE),
            (4, 1.0, 0.5, 5, UNKNOWN),
            (0, 0.0, 0.5, 0, UNKNOWN),
            (1, 1.0, 0.5, 0, FALSE),
        ] {
            let count = Count {
                compared,
                unhealthy,
            };
            let reported = count.condition(&settings(share, minimum), now);
            assert_eq!(reported.status, expected, "{count:?} {share} {minimum}");
        }
    }
}
