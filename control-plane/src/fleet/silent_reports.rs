//! Reports of clusters that are silent, as bindings show them.

use std::collections::HashMap;

use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingSpec, ResourceHealth};

/// Beginning of the message of such a report.
pub const UNKNOWN_SINCE: &str = "unknown since ";

/// Returns whether a report is about a cluster that is silent.
fn is_silent(report: &AggregatedStatusItem) -> bool {
    let message = report.applied_message.as_deref().unwrap_or_default();
    !report.applied
        && report.health == Some(ResourceHealth::Unknown)
        && message.starts_with(UNKNOWN_SINCE)
}

/// Returns the message about the first of the clusters that a resource is placed in, if all of
/// them are silent.
pub fn all_silent<'a>(
    spec: &ResourceBindingSpec,
    reports: &'a [AggregatedStatusItem],
) -> Option<&'a str> {
    let (first, others) = spec.clusters.split_first()?;
    let first = reports
        .iter()
        .find(|it| it.cluster_name == first.name)
        .filter(|it| is_silent(it))?;
    // The first cluster is hardly ever silent, so that the reports seldom have to be sorted.
    let mut silent: HashMap<&str, bool> = HashMap::with_capacity(reports.len());
    for report in reports {
        let entry = silent.entry(&report.cluster_name);
        entry.or_insert_with(|| is_silent(report));
    }
    let are_silent = others.iter().all(|it| silent.get(&*it.name) == Some(&true));
    first.applied_message.as_deref().filter(|_| are_silent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_unknown_if_all_its_clusters_are_silent() {
        let silent = |name: &str| {
            let message = format!("{UNKNOWN_SINCE}noon in {name}");
            json!({"clusterName": name, "health": "Unknown", "appliedMessage": message})
        };
        let well = |name: &str| json!({"clusterName": name, "applied": true, "health": "Healthy"});
        let failed = |name: &str| json!({"clusterName": name, "health": "Unknown", "appliedMessage": "forbidden"});
        let (both, since) = (["a", "b"], Some("unknown since noon in a"));
        for (what, clusters, reports, expected) in [
            ("all", &both[..], vec![silent("a"), silent("b")], since),
            ("one", &both, vec![silent("a"), well("b")], None),
            ("one has not reported yet", &both, vec![silent("a")], None),
            ("one is refused", &["a"], vec![failed("a")], None),
            ("an old copy", &["b"], vec![silent("a"), well("b")], None),
            ("nowhere", &[], vec![silent("a")], None),
        ] {
            let targets: Vec<_> = clusters.iter().map(|it| json!({"name": it})).collect();
            let spec: ResourceBindingSpec =
                serde_json::from_value(json!({"clusters": targets})).unwrap();
            let reports: Vec<AggregatedStatusItem> =
                serde_json::from_value(reports.into()).unwrap();
            assert_eq!(all_silent(&spec, &reports), expected, "{what}");
        }
    }
}
