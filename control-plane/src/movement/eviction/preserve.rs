//! Preserved state: labels for the new copy, from the status of the old one.
//!
//! The rule is Karmada's (feature gate `StatefulFailoverInjection`): without that status the
//! workload is not evicted, because a copy that starts without its state may do harm. Unlike in
//! Karmada, a value that is not a valid label value has the same effect: the member would reject
//! it, and the new copy would never start.

use std::collections::BTreeMap;

use muster_shared::api::binding::ResourceBindingStatus;
use muster_shared::api::policy::StatePreservationRule;
use muster_shared::jsonpath;
use muster_shared::selectors::{is_label_key, is_label_value};

/// Returns the labels by a policy's `statePreservation`; without rules there are none. Of two rules
/// for one label the later wins.
///
/// # Errors
/// The reason why the state cannot be preserved. One rule that fails is enough: half a state is
/// none.
pub fn labels(
    rules: &[StatePreservationRule],
    status: &ResourceBindingStatus,
    cluster: &str,
) -> Result<BTreeMap<String, String>, String> {
    let read = read(rules, status, cluster)?;
    match read
        .iter()
        .find(|(label, value)| !is_label_key(label) || !is_label_value(value))
    {
        Some((label, value)) => Err(format!("label {label:?} cannot have the value {value:?}")),
        None => Ok(read),
    }
}

/// Returns the values that the rules find, whether or not they can be labels.
pub fn read(
    rules: &[StatePreservationRule],
    status: &ResourceBindingStatus,
    cluster: &str,
) -> Result<BTreeMap<String, String>, String> {
    if rules.is_empty() {
        return Ok(BTreeMap::new());
    }
    let report = status.report(cluster).and_then(|it| it.status.as_ref());
    let report = report.ok_or_else(|| {
        format!("the application status has not yet been collected from Cluster({cluster})")
    })?;
    let rule = |rule: &StatePreservationRule| {
        let label = rule.alias_label_name.clone();
        match jsonpath::render(&rule.json_path, &report.0) {
            Ok(value) => Ok((label, value)),
            Err(error) => Err(format!("label {label:?}: {error}")),
        }
    };
    rules.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn preserve(rules: &Value, reported: &Value) -> Result<Value, String> {
        let rules: Vec<StatePreservationRule> = serde_json::from_value(rules.clone()).unwrap();
        let status = json!({"aggregatedStatus": reported});
        labels(&rules, &serde_json::from_value(status).unwrap(), "member1")
            .map(|labels| json!(labels))
    }

    #[test]
    fn the_new_copy_gets_what_the_old_one_reported_or_the_workload_stays() {
        let id = json!([{"aliasLabelName": "job-id", "jsonPath": "{.jobStatus.jobID}"}]);
        let twice = json!([{"aliasLabelName": "id", "jsonPath": "{.a}"}, {"aliasLabelName": "id", "jsonPath": "{.b}"}]);
        let from =
            |cluster: &str, status: Value| json!([{"clusterName": cluster, "status": status}]);
        let job = |id: &str| json!({"jobStatus": {"jobID": id}});
        let of_other = from("member2", job("7f"));
        let unsaid = json!([{"clusterName": "member1"}]);
        let uncollected =
            Err("the application status has not yet been collected from Cluster(member1)");
        for (rules, reported, expected) in [
            (&json!([]), json!([]), Ok(json!({}))),
            (&id, from("member1", job("7f")), Ok(json!({"job-id": "7f"}))),
            (
                &twice,
                from("member1", json!({"a": 1, "b": 2})),
                Ok(json!({"id": "2"})),
            ),
            (&id, of_other, uncollected.clone()),
            (&id, unsaid, uncollected),
            (
                &id,
                from("member1", json!({})),
                Err("label \"job-id\": \"jobStatus\" is not found"),
            ),
            (
                &id,
                from("member1", job("not a label")),
                Err("label \"job-id\" cannot have the value \"not a label\""),
            ),
        ] {
            assert_eq!(
                preserve(rules, &reported),
                expected.map_err(str::to_owned),
                "{rules} of {reported}"
            );
        }
    }
}
