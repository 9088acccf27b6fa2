//! Reports of clusters that are not heard, as bindings show them.

use std::collections::HashMap;

use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingSpec, ResourceHealth};

/// How the message of such a report begins.
pub const UNHEARD: &str = "unknown since ";

/// Whether a report is that of a cluster which is not heard.
fn is_unheard(report: &AggregatedStatusItem) -> bool {
    let message = report.applied_message.as_deref().unwrap_or_default();
    !report.applied
        && report.health == Some(ResourceHealth::Unknown)
        && message.starts_with(UNHEARD)
}

fn by_name(reports: &[AggregatedStatusItem]) -> HashMap<&str, &AggregatedStatusItem> {
    let mut by_name = HashMap::with_capacity(reports.len());
    for report in reports {
        by_name.entry(&*report.cluster_name).or_insert(report);
    }
    by_name
}

/// Message about the first of the clusters that a resource is placed in, if none of them is heard.
pub fn unheard<'a>(
    spec: &ResourceBindingSpec,
    reports: &'a [AggregatedStatusItem],
) -> Option<&'a str> {
    let (mut first, mut by_cluster) = (None, None);
    for target in &spec.clusters {
        // Where one is heard, as is nearly always so, not all are sorted.
        let report = match (&by_cluster, first) {
            (None, None) => reports.iter().find(|it| it.cluster_name == target.name)?,
            _ => *by_cluster
                .get_or_insert_with(|| by_name(reports))
                .get(&*target.name)?,
        };
        if !is_unheard(report) {
            return None;
        }
        first = first.or(report.applied_message.as_deref());
    }
    first
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_not_heard_of_if_all_its_clusters_are_silent() {
        let silent = |name: &str| {
            let message = format!("{UNHEARD}noon in {name}");
            json!({"clusterName": name, "health": "Unknown", "appliedMessage": message})
        };
        let well = |name: &str| json!({"clusterName": name, "applied": true, "health": "Healthy"});
        let failed = |name: &str| json!({"clusterName": name, "health": "Unknown", "appliedMessage": "forbidden"});
        for (what, clusters, reports, expected) in [
            (
                "all",
                vec!["a", "b"],
                json!([silent("a"), silent("b")]),
                Some("unknown since noon in a"),
            ),
            ("one", vec!["a", "b"], json!([silent("a"), well("b")]), None),
            (
                "one has not reported yet",
                vec!["a", "b"],
                json!([silent("a")]),
                None,
            ),
            ("one is refused", vec!["a"], json!([failed("a")]), None),
            (
                "an old copy",
                vec!["b"],
                json!([silent("a"), well("b")]),
                None,
            ),
            ("nowhere", vec![], json!([silent("a")]), None),
        ] {
            let targets: Vec<_> = clusters.iter().map(|it| json!({"name": it})).collect();
            let spec: ResourceBindingSpec =
                serde_json::from_value(json!({"clusters": targets})).unwrap();
            let reports: Vec<AggregatedStatusItem> = serde_json::from_value(reports).unwrap();
            assert_eq!(unheard(&spec, &reports), expected, "{what}");
        }
    }
}
