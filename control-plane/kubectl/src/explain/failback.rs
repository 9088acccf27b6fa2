//! Says what the return of a workload to the clusters that it left waits for.

use jiff::Timestamp;
use muster_control_plane::movement::rebalance::failback::decide::{
    Home, Rule, Verdict, homes, is_due,
};
use muster_control_plane::scheduler::core::{ClusterInfo, Snapshot};
use muster_control_plane::settings::{FAILOVER, Settings};
use muster_shared::api::any_binding::AnyBinding;

use crate::table::{Workload, argument};

/// Returns a sentence for each cluster that the workload left because of a taint: whether and when
/// it returns there.
pub(super) fn sentences(
    binding: &AnyBinding,
    snapshot: &Snapshot,
    settings: &Settings,
    now: Timestamp,
) -> Vec<String> {
    let spec = &binding.spec;
    let rule = Rule::of(spec, settings);
    let report = |(name, left): (String, Timestamp)| {
        // A cluster that is not listed has left the fleet.
        let cluster = snapshot.get(&name).map(ClusterInfo::cluster);
        let Some(rule) = &rule else {
            return (cluster.is_some() && !spec.has_copy(&name)).then(|| {
                let workload = argument(&Workload::of(spec).to_string());
                format!(
                    "it left {name} at {left}, and returns if asked to: kubectl muster rebalance {workload}"
                )
            });
        };
        let home = Home {
            name: &name,
            left,
            cluster,
            is_gone: cluster.is_none(),
        };
        let verdict = is_due(spec, rule, &home, now);
        let scheduler = spec.scheduler_name.as_deref();
        if let Some(why) = settings.no_return(scheduler, settings.gate(&FAILOVER)) {
            // The record of a workload that a person has brought back stays on its binding.
            let is_over = verdict == Verdict::Over || spec.has_copy(&name);
            return (!is_over)
                .then(|| format!("it left {name} at {left}, and nothing brings it back: {why}"));
        }
        match verdict {
            Verdict::Over => None,
            Verdict::Due { since } => Some(format!(
                "it returns to {name}, healthy since {since}, when a new placement brings it there and the eviction rate allows"
            )),
            Verdict::NotBefore(Some(time), why) => {
                Some(format!("it returns to {name} not before {time}: {why}"))
            }
            Verdict::NotBefore(None, why) => Some(format!("it does not return to {name}: {why}")),
        }
    };
    homes(binding).into_iter().filter_map(report).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{self, cluster, condition, snapshot};

    #[test]
    fn a_workload_that_left_a_cluster_says_what_its_return_waits_for() {
        let report = |failback: Value, flags: &[&str], change: fn(&mut Value), share: i32| {
            let homes = json!({"m1": "2026-01-01T00:00:00Z"}).to_string();
            let changes = json!({
                "metadata": {"annotations": {"failover.muster.io/homes": homes}},
                // A share of zero is no return.
                "spec": {
                    "replicas": 2,
                    "clusters": [{"name": "m1", "replicas": share}, {"name": "m2", "replicas": 2}],
                    "failover": {"cluster": {"failback": failback}},
                },
            });
            let binding = fixtures::binding("shop", "web", &changes);
            let mut home = cluster("m1", "10");
            let since = "2026-01-01T00:10:00Z";
            home["status"]["conditions"] =
                json!([condition("Ready", "True", "ClusterReady", "", since)]);
            home["metadata"]["annotations"] =
                json!({"failover.muster.io/healthy-since": "2026-01-01T00:10:05Z"});
            change(&mut home);
            let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
            let settings = Settings::of_flags(&flags).unwrap();
            let now = "2026-01-01T00:15:00Z".parse().unwrap();
            sentences(&binding, &snapshot(&[home]), &settings, now).join("\n")
        };
        let on = &["--feature-gates=Failover=true"][..];
        let others = &["--feature-gates=Failover=true", "--scheduler-name=ours"][..];
        let without = |controllers| ["--feature-gates=Failover=true", controllers];
        let unplaced = &without("--controllers=*,-scheduler")[..];
        let unasked = &without("--controllers=*,-workloadRebalancer")[..];
        let fails = |home: &mut Value| home["status"]["conditions"][0]["status"] = json!("Unknown");
        let asked = |seconds: i32| json!({"mode": "WhenHealthy", "afterSeconds": seconds});
        for (failback, flags, change, expected) in [
            (
                Value::Null,
                on,
                (|_| ()) as fn(&mut Value),
                "returns if asked to",
            ),
            (asked(1), &[], |_| (), "the feature gate Failover is off"),
            (asked(1), others, |_| (), "names another scheduler"),
            (
                asked(1),
                unplaced,
                |_| (),
                "scheduler of the control plane is off",
            ),
            (
                asked(1),
                unasked,
                |_| (),
                "workloadRebalancer of the control plane is off",
            ),
            (asked(1), on, |_| (), "healthy since 2026-01-01T00:10:05Z"),
            (asked(600), on, |_| (), "not before 2026-01-01T00:20:05Z"),
            (
                asked(1),
                on,
                fails,
                "does not return to m1: the cluster is not healthy: Ready is Unknown",
            ),
        ] {
            let reported = report(failback, flags, change, 0);
            assert!(reported.contains(expected), "{reported}");
        }
        let back = report(asked(1), &[], |_| (), 1);
        assert_eq!(back, "", "it is there again");
        let renamed: fn(&mut Value) = |home| home["metadata"]["name"] = json!("m9");
        for (failback, flags) in [(Value::Null, on), (asked(1), &[]), (asked(1), on)] {
            assert_eq!(report(failback, flags, renamed, 0), "", "m1 is gone");
        }
    }
}
