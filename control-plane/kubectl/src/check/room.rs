//! Checks whether the fleet has room for the loss of any one cluster, with the forecast of
//! `kubectl muster simulate`. Nothing is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::check::{Category, MOST, listed};
use muster_shared::k8s::ResourceExt as _;
use muster_shared::names::condition::READY;
use muster_shared::names::namespaced_key;

use super::facts::Facts;
use crate::forecast::{Disaster, Fleet, Forecast, forecast};
use crate::jobs::Jobs;

/// Workloads that one line names.
const NAMED: usize = 3;
const HINT: &str = "kubectl muster simulate --drain CLUSTER shows where each would go, and kubectl muster explain binding NAME -n NAMESPACE why not.\n\
                    Add capacity or clusters, or allow more clusters in the placement.";

pub(super) fn check(category: &mut Category, facts: &Facts) {
    let (clusters, bindings) = match (&facts.clusters, &facts.bindings) {
        (Ok(clusters), Ok(bindings)) => (clusters, bindings),
        (Err(refusal), _) | (_, Err(refusal)) => {
            return category.unknown("room", "clusters and bindings", refusal);
        }
    };
    if clusters.len() < 2 {
        let message = "there is no other cluster to take over";
        return category.skipped("room", message);
    }
    let all = bindings.iter().cloned().map(Arc::new);
    let fleet = Fleet {
        clusters: clusters.clone(),
        bindings: all.collect(),
        // A drain asks every workload to leave, whatever its policy says of failed clusters: the
        // question is whether there is room.
        policies: Vec::new(),
        needs: Ok(HashMap::new()),
        jobs: Jobs::default(),
    };
    for cluster in clusters {
        let name = cluster.name_any();
        if !cluster.is_true(READY) {
            category.skipped("room", format!("{name} is lost already"));
            continue;
        }
        let disaster = Disaster {
            drained: BTreeSet::from([name.clone()]),
            ..Disaster::default()
        };
        let forecast = forecast(&fleet, &disaster, &facts.settings, facts.now);
        judge(category, &name, &fleet.bindings, &forecast);
    }
    let namespaced = bindings.iter().filter(|it| it.namespace().is_some());
    if namespaced.count() >= MOST {
        category.skipped("room", format!("of further bindings than {MOST}"));
    }
}

fn judge(
    category: &mut Category,
    cluster: &str,
    bindings: &[Arc<AnyBinding>],
    forecast: &Forecast,
) {
    let has_it = |it: &&Arc<AnyBinding>| {
        it.spec.target(cluster).is_some() && it.metadata.deletion_timestamp.is_none()
    };
    let workloads = bindings.iter().filter(has_it).count();
    if workloads == 0 {
        category.ok("room", format!("{cluster} has no workloads"));
        return;
    }
    let stuck = forecast.stranded.iter().chain(&forecast.held);
    let (stuck, unread): (Vec<_>, Vec<_>) = stuck.partition(|it| it.is_known);
    // Their Works are not read here.
    if !unread.is_empty() {
        let message = format!(
            "without {cluster}, of {} divided Jobs that go at once (purgeMode: Directly): kubectl muster simulate --drain {cluster} shows it",
            unread.len()
        );
        category.skipped("room", message);
    }
    let judged = workloads - unread.len();
    if judged == 0 {
        return;
    }
    if !stuck.is_empty() {
        let named = stuck.into_iter().map(|it| {
            let namespace = it.workload.namespace.as_deref().unwrap_or_default();
            let name = namespaced_key(namespace, &it.workload.name);
            format!("{name} ({})", it.reason)
        });
        let named: Vec<String> = named.collect();
        let message = format!(
            "without {cluster}, workloads with no other place: {} of {judged}: {}",
            named.len(),
            listed(&named, NAMED)
        );
        category.warning("room", message, HINT);
        return;
    }
    let stay = match forecast.stays.len() {
        0 => String::new(),
        number => format!(" ({number} tolerate every taint, or are finished, and stay there)"),
    };
    let others = if unread.is_empty() { "" } else { "other " };
    let message =
        format!("without {cluster}, each of its {others}workloads ({judged}) fits elsewhere{stay}");
    category.ok("room", message);
}
