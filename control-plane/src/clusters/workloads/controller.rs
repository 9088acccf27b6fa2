//! Writes the condition `WorkloadsHealthy`, at most once in a while for each cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions::{self, UNKNOWN};
use muster_shared::controller::Controller;
use muster_shared::names::condition::WORKLOADS_HEALTHY;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use super::count::{Count, known};
use crate::clusters::cluster::{failed, write_if_changed};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::readiness;
use crate::fleet::write::Written;

/// Time for which changes of workloads are gathered: a cluster whose share wavers is written so
/// often at most.
const GATHERED: Duration = Duration::from_secs(10);

/// Starts the controller. With `--cluster-unhealthy-workloads-threshold=0` nothing is counted, and
/// what was reported before is taken back.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let workers = fleet.settings.concurrent_cluster_syncs;
    let mut controller = Controller::new(fleet, "workloads of clusters");
    if is_on(fleet) {
        controller = controller
            .gathers(GATHERED, &fleet.bindings, |_, change| concerned(change))
            .gathers(GATHERED, &fleet.clusters, |fleet, change| match change {
                Change::Applied {
                    old: Some(old),
                    new,
                } if is_reporting(old) != is_reporting(new) => companions(fleet, &new.name_any()),
                _ => BTreeSet::new(),
            });
    }
    controller
        .gathers(GATHERED, &fleet.clusters, |fleet, change| match change {
            Change::Applied { old, new } => {
                let is_reported = |it: &Cluster| it.condition(WORKLOADS_HEALTHY).cloned();
                let is_update = old
                    .as_ref()
                    .is_none_or(|old| is_reported(old) != is_reported(new));
                let concerns_us = is_on(fleet) || is_reported(new).is_some();
                (is_update && concerns_us).then(|| new.name_any())
            }
            Change::Deleted { .. } => None,
        })
        .run(tasks, workers, (), |fleet, (), name: String| async move {
            attend(&fleet, &name).await
        });
}

/// Returns the clusters whose counts a change of a workload may change.
fn concerned(change: &Change<AnyBinding>) -> BTreeSet<String> {
    let (old, new) = change.sides();
    let [was, is] = [old, new].map(|it| it.map(known).unwrap_or_default());
    let all = was.keys().chain(is.keys()).filter(|_| was != is);
    all.map(|it| (*it).to_owned()).collect()
}

/// Returns the clusters that have workloads in common with a cluster.
fn companions(fleet: &Fleet, name: &str) -> BTreeSet<String> {
    let bindings = bindings_of(fleet, name);
    let clusters = bindings.iter().flat_map(|it| it.spec.clusters.iter());
    clusters.map(|it| it.name.clone()).collect()
}

fn bindings_of(fleet: &Fleet, cluster: &str) -> Vec<Arc<AnyBinding>> {
    let keys = fleet.bindings.index().naming(cluster);
    keys.iter()
        .filter_map(|it| fleet.bindings.get(it))
        .collect()
}

fn is_reporting(cluster: &Cluster) -> bool {
    readiness(cluster) != UNKNOWN
}

fn is_on(fleet: &Fleet) -> bool {
    fleet.settings.cluster_unhealthy_workloads_threshold > 0.0
}

async fn attend(fleet: &Fleet, name: &str) -> Result<Next, ApiError> {
    let Some(cluster) = fleet.clusters.get(None, name) else {
        return Ok(Next::Done);
    };
    let now = fleet.clock.now();
    let said = if is_on(fleet) {
        let others = |it: &str| {
            fleet
                .clusters
                .get(None, it)
                .is_some_and(|it| is_reporting(&it))
        };
        Count::of(name, bindings_of(fleet, name), others).condition(&fleet.settings, now)
    } else if cluster.condition(WORKLOADS_HEALTHY).is_some() {
        let message = "workloads are not compared: --cluster-unhealthy-workloads-threshold is 0";
        conditions::new(WORKLOADS_HEALTHY, UNKNOWN, "Off", message, now)
    } else {
        return Ok(Next::Done);
    };
    let written = Written::of(write_if_changed(&fleet.client, &cluster, said).await);
    let step = "write the condition WorkloadsHealthy of";
    let written = written.map_err(failed(step, &cluster))?;
    if let Written::Done(Some(reported)) = &written {
        tracing::info!(
            cluster = name,
            status = reported.status,
            "{}",
            reported.message
        );
    }
    Ok(written.next())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, binding, cluster, pass};
    use crate::settings::Settings;

    async fn bench(threshold: f64, health: &str) -> Bench {
        let settings = Settings {
            cluster_unhealthy_workloads_threshold: threshold,
            cluster_unhealthy_workloads_minimum: 1,
            ..Settings::default()
        };
        let mut workload = binding();
        workload["spec"]["clusters"] = json!([{"name": "m1"}, {"name": "m2"}]);
        workload["status"] = json!({"aggregatedStatus": [
            {"clusterName": "m1", "health": health}, {"clusterName": "m2", "health": "Healthy"},
        ]});
        let objects = [
            ("clusters", cluster("m1")),
            ("clusters", cluster("m2")),
            ("resourcebindings", workload),
        ];
        let mut bench = Bench::with(settings, objects);
        bench.run(start, 30).await;
        bench
    }

    /// Returns the status and the reason of the condition of `m1`.
    fn reported(bench: &Bench) -> Option<(String, String)> {
        let cluster = bench.fleet.clusters.get(None, "m1")?;
        let reported = cluster.condition(WORKLOADS_HEALTHY)?;
        Some((reported.status.clone(), reported.reason.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ill_in_one_cluster_only_is_reported_of_that_and_taken_back_when_it_is_well() {
        let bench = bench(0.5, "Unhealthy").await;
        let ill = Some(("False".to_owned(), "UnhealthyHere".to_owned()));
        assert_eq!(reported(&bench), ill);
        bench.api.forget();
        pass(200).await;
        assert_eq!(bench.api.writes(), [], "nothing is written at rest");
        let mut workload = bench.api.all("resourcebindings").remove(0);
        workload["status"]["aggregatedStatus"][0]["health"] = json!("Healthy");
        bench.api.put("resourcebindings", workload);
        pass(60).await;
        let well = Some(("True".to_owned(), "HealthyHere".to_owned()));
        assert_eq!(reported(&bench), well);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_report_of_a_dead_cluster_says_nothing_against_one_that_lives() {
        let bench = bench(0.5, "Unhealthy").await;
        let mut dead = bench.api.object("clusters", "", "m2").unwrap();
        dead["status"]["conditions"][0]["status"] = json!("Unknown");
        bench.api.put("clusters", dead);
        pass(30).await;
        let too_few = Some(("Unknown".to_owned(), "TooFewWorkloads".to_owned()));
        assert_eq!(reported(&bench), too_few);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_reported_unless_it_is_asked_for_and_what_was_reported_is_taken_back() {
        let bench = bench(0.0, "Unhealthy").await;
        assert_eq!(bench.api.writes(), []);
        let mut former = cluster("m1");
        let conditions = former["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({
            "type": WORKLOADS_HEALTHY, "status": "False", "reason": "R", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }));
        bench.api.put("clusters", former);
        pass(30).await;
        let off = Some(("Unknown".to_owned(), "Off".to_owned()));
        assert_eq!(reported(&bench), off);
        bench.api.forget();
        pass(200).await;
        assert_eq!(bench.api.writes(), []);
    }
}
