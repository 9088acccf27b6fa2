//! Events on templates: `SyncFailed` if a member rejects the object, `SyncSucceed` if all have
//! applied it.
//!
//! An agent has no rights in the namespaces of templates, so the control plane publishes these
//! events from the Works. Pure.

use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingStatus};
use muster_shared::check::{few, listed};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::names::condition;

/// Clusters that an event names at most.
const MOST: usize = 5;
/// Characters of one cluster's message in an event.
const LONGEST: usize = 160;

/// Type, reason and text of an event about a template.
pub(super) type Note = (EventType, &'static str, String);

/// Returns what is new for the template once `items` are written in place of what `held` says;
/// `None` when nothing is.
pub(super) fn reported(
    held: &ResourceBindingStatus,
    items: &[AggregatedStatusItem],
    fully_applied: bool,
) -> Option<Note> {
    let known = |item: &AggregatedStatusItem| {
        held.aggregated_status
            .iter()
            .any(|it| it.cluster_name == item.cluster_name && failure(it) == failure(item))
    };
    let failed: Vec<String> = items
        .iter()
        .filter(|item| !known(item))
        .filter_map(|item| {
            let words: String = failure(item)?.chars().take(LONGEST).collect();
            Some(format!("{}: {words}", item.cluster_name))
        })
        .collect();
    if !failed.is_empty() {
        let more = |more| format!("; and {more} more clusters");
        let note = few(&failed, MOST, "; ", more);
        return Some((EventType::Warning, "SyncFailed", note));
    }
    let was = conditions::get(&held.conditions, condition::FULLY_APPLIED);
    let is_new = fully_applied && was.is_none_or(|it| it.status != "True");
    is_new.then(|| {
        let names: Vec<String> = items.iter().map(|it| it.cluster_name.clone()).collect();
        let note = format!("applied in {}", listed(&names, MOST));
        (EventType::Normal, "SyncSucceed", note)
    })
}

/// Returns why a cluster has not applied the template; `None` where it has, or has not said
/// anything yet.
fn failure(item: &AggregatedStatusItem) -> Option<&str> {
    item.applied_message
        .as_deref()
        .filter(|message| !item.applied && !message.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::only_condition;

    fn item(cluster: &str, applied: bool, message: &str) -> Value {
        json!({ "clusterName": cluster, "applied": applied, "appliedMessage": message })
    }

    #[test]
    fn a_template_is_reported_of_what_is_new_and_of_nothing_twice() {
        let refused = || item("m1", false, "forbidden");
        let full = only_condition("FullyApplied", "True");
        let applied = || item("m1", true, "");
        let (new, full) = (json!({}), json!({ "conditions": full }));
        let known = json!({ "aggregatedStatus": [refused()] });
        let others = vec![item("m1", false, "too large"), item("m2", true, "")];
        for (held, items, fully, expected) in [
            (&new, vec![item("m1", false, "")], false, ""),
            (&new, vec![refused()], false, "SyncFailed m1: forbidden"),
            (&known, vec![refused()], false, ""),
            (&known, others, false, "SyncFailed m1: too large"),
            (&known, vec![applied()], true, "SyncSucceed applied in m1"),
            (&full, vec![applied()], true, ""),
        ] {
            let held = serde_json::from_value(held.clone()).unwrap();
            let items: Vec<AggregatedStatusItem> = serde_json::from_value(items.into()).unwrap();
            let said = reported(&held, &items, fully);
            let said = said.map(|(_, reason, note)| format!("{reason} {note}"));
            assert_eq!(said.as_deref().unwrap_or(""), expected, "{items:?}");
        }
    }

    #[test]
    fn an_event_stays_short_however_many_clusters_refuse() {
        let items: Vec<Value> = (0..3_000)
            .map(|it| item(&format!("m{it}"), false, &"x".repeat(10_000)))
            .collect();
        let items: Vec<AggregatedStatusItem> = serde_json::from_value(items.into()).unwrap();
        let (_, _, note) = reported(&ResourceBindingStatus::default(), &items, false).unwrap();
        assert!(
            note.len() < 1024 && note.ends_with("and 2995 more clusters"),
            "{note}"
        );
    }
}
