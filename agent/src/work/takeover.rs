//! Takes objects over from Karmada's agent.
//!
//! Karmada's agent writes whole objects, which records its fields as updates. The server-side apply
//! of this agent would own the same fields a second time, and a field that the template drops would
//! stay in the member. The ownership record is therefore rewritten first, as `kubectl` does when it
//! changes from client-side to server-side apply: Karmada's update becomes this agent's apply.

use serde_json::{Value, json};

use super::member::FIELD_MANAGER;

/// Field managers of Karmada's processes in members: the names of the binaries, as client-go
/// chooses them.
const PREDECESSORS: [&str; 2] = ["karmada-agent", "karmada-controller-manager"];

/// Returns the merge patch that changes Karmada's record in `managedFields` to this agent's; `None`
/// when there is none, or when this agent has applied the object already.
///
/// The patch has the resourceVersion that was read, because it replaces the whole list.
pub fn takeover(observed: &Value) -> Option<Value> {
    let entries = observed.pointer("/metadata/managedFields")?.as_array()?;
    let ours = |entry: &Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
    if entries.iter().any(ours) {
        return None;
    }
    // Of several records the last one has all fields of Karmada's last write.
    let last = entries.iter().rposition(is_predecessor)?;
    let mut rewritten = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        if position == last {
            let mut entry = entry.clone();
            entry["manager"] = json!(FIELD_MANAGER);
            entry["operation"] = json!("Apply");
            rewritten.push(entry);
        } else if !is_predecessor(entry) {
            rewritten.push(entry.clone());
        }
    }
    let version = observed.pointer("/metadata/resourceVersion")?;
    Some(json!({"metadata": {"managedFields": rewritten, "resourceVersion": version}}))
}

fn is_predecessor(entry: &Value) -> bool {
    PREDECESSORS.iter().any(|name| entry["manager"] == *name)
        && entry["operation"] == "Update"
        && entry
            .get("subresource")
            .is_none_or(|subresource| subresource == "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, field: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {field: {}}}})
    }

    fn observed(entries: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": "7", "managedFields": entries}})
    }

    #[test]
    fn karmadas_update_becomes_our_apply_and_the_rest_stays() {
        let kubelet = entry("kubelet", "Update", "f:x");
        let before = observed(&[entry("karmada-agent", "Update", "f:k"), kubelet.clone()]);
        assert_eq!(
            takeover(&before),
            Some(json!({"metadata": {"resourceVersion": "7",
                "managedFields": [entry(FIELD_MANAGER, "Apply", "f:k"), kubelet]}}))
        );
    }

    #[test]
    fn of_two_predecessors_the_last_counts() {
        let before = observed(&[
            entry("karmada-controller-manager", "Update", "f:old"),
            entry("karmada-agent", "Update", "f:k"),
        ]);
        let patch = takeover(&before).unwrap();
        assert_eq!(
            patch["metadata"]["managedFields"],
            json!([entry(FIELD_MANAGER, "Apply", "f:k")])
        );
    }

    #[test]
    fn an_object_that_is_ours_or_was_never_karmadas_is_left_alone() {
        for entries in [
            vec![],
            vec![entry("kubectl", "Update", "f:k")],
            vec![
                entry(FIELD_MANAGER, "Apply", "f:k"),
                entry("karmada-agent", "Update", "f:k"),
            ],
        ] {
            assert_eq!(takeover(&observed(&entries)), None);
        }
    }
}
