//! Statuses as the real controllers write them: only when something differs, zeros left out, times
//! kept while nothing changes.

use kube::api::{Api, Patch, PatchParams};
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Failed;

/// Returns a number of a status that is left out when it is zero, as `omitempty` does.
pub(super) fn count(number: usize) -> Value {
    if number == 0 {
        Value::Null
    } else {
        json!(number)
    }
}

/// Returns a condition, with the times of `current` where its status is the same.
pub(super) fn condition(
    current: &Value,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
) -> Value {
    let status = if status { "True" } else { "False" };
    let now = json!(Time(calendar()));
    let known = current["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|known| known["type"] == kind);
    if let Some(known) = known
        && known["status"] == status
        && known["reason"] == reason
        && known["message"] == message
    {
        return known.clone();
    }
    let since = known
        .filter(|known| known["status"] == status)
        .map_or_else(|| now.clone(), |known| known["lastTransitionTime"].clone());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since, "lastUpdateTime": now,
    })
}

/// Returns the members of `wanted` that `current` lacks or has differently; `null` and absent are
/// the same.
fn difference(current: &Value, wanted: &Value) -> Map<String, Value> {
    let members = wanted.as_object().into_iter().flatten();
    let differing = members.filter(|(name, value)| current[name.as_str()] != **value);
    differing
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Writes a status if it differs from the one that the object has. An object that is gone is
/// nobody's concern.
pub(super) async fn write<K>(
    api: &Api<K>,
    name: &str,
    current: &Value,
    wanted: &Value,
) -> Result<(), Failed>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = difference(current, wanted);
    if patch.is_empty() {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": patch}));
    match api
        .patch_status(name, &PatchParams::default(), &patch)
        .await
    {
        Err(error) if !client::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns a status as JSON; no status is an empty one.
pub(super) fn current(status: Option<&impl Serialize>) -> Value {
    status
        .and_then(|status| serde_json::to_value(status).ok())
        .unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written_and_absent_is_null() {
        let current = json!({"replicas": 2, "readyReplicas": 1});
        let wanted = json!({"replicas": 2, "readyReplicas": null, "availableReplicas": null});
        assert_eq!(
            Value::Object(difference(&current, &wanted)),
            json!({"readyReplicas": null})
        );
    }

    #[test]
    fn a_condition_keeps_its_times_until_it_changes() {
        let since = "2026-01-01T00:00:00Z";
        let current = json!({"conditions": [
            {"type": "Available", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": since, "lastUpdateTime": since},
        ]});
        assert_eq!(
            condition(&current, "Available", true, "R", "m"),
            current["conditions"][0]
        );
        let reworded = condition(&current, "Available", true, "R", "other");
        assert_eq!(reworded["lastTransitionTime"], since);
        assert_ne!(reworded["lastUpdateTime"], since);
        assert_ne!(
            condition(&current, "Available", false, "R", "m")["lastTransitionTime"],
            since
        );
    }
}
