//! Takes objects over from Karmada's agent, and from whoever wrote what is to be overwritten.
//!
//! Karmada's agent writes whole objects, which records its fields as updates. The server-side apply
//! of this agent would own the same fields a second time, and a field that the template drops would
//! stay in the member. The ownership record is therefore rewritten first, as `kubectl` does when it
//! changes from client-side to server-side apply: Karmada's update becomes this agent's apply.

use serde_json::{Value, json};

use super::member::FIELD_MANAGER;

/// Field managers of Karmada's processes in members: the names of the binaries, as client-go
/// chooses them. This agent's own writes whole objects where an apply is refused.
const PREDECESSORS: [&str; 3] = ["karmada-agent", "karmada-controller-manager", FIELD_MANAGER];

/// Returns the merge patch that changes Karmada's record in `managedFields` to this agent's; `None`
/// when there is none, or when this agent has applied the object already.
///
/// The patch has the resourceVersion that was read, because it replaces the whole list.
pub fn takeover(observed: &Value) -> Option<Value> {
    let entries = observed.pointer("/metadata/managedFields")?.as_array()?;
    if entries.iter().any(is_ours) {
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

/// Field managers of a cluster's own controllers, whose fields stay theirs: the volume of a claim,
/// for example.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Returns the merge patch that makes what others wrote into an object this agent's, so that what
/// its template does not have goes with the next apply; `None` when there is nothing of theirs.
/// Metadata and subresources stay with their writers.
pub fn adoption(observed: &Value) -> Option<Value> {
    let entries = observed.pointer("/metadata/managedFields")?.as_array()?;
    let is_left = |entry: &Value| {
        entry.get("subresource").is_some_and(|it| it != "")
            || entry["apiVersion"] != observed["apiVersion"]
            || CONTROLLERS.iter().any(|name| entry["manager"] == *name)
    };
    let (mut fields, mut rest) = (json!({}), Vec::with_capacity(entries.len()));
    let mut is_any = false;
    for mut entry in entries.iter().cloned() {
        if is_left(&entry) {
            rest.push(entry);
            continue;
        }
        if is_ours(&entry) {
            add(&mut fields, &entry["fieldsV1"]);
            continue;
        }
        let Some(owned) = entry["fieldsV1"].as_object_mut() else {
            continue;
        };
        let metadata = owned.remove("f:metadata");
        is_any |= !owned.is_empty();
        add(&mut fields, &entry["fieldsV1"]);
        if let Some(metadata) = metadata {
            entry["fieldsV1"] = json!({ "f:metadata": metadata });
            rest.push(entry);
        }
    }
    if !is_any {
        return None;
    }
    rest.push(json!({
        "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": observed["apiVersion"],
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
    let version = observed.pointer("/metadata/resourceVersion")?;
    Some(json!({"metadata": {"managedFields": rest, "resourceVersion": version}}))
}

/// Adds a set of fields to another one.
fn add(to: &mut Value, fields: &Value) {
    for (name, below) in fields.as_object().into_iter().flatten() {
        let held = &mut to[name];
        if held.is_null() {
            held.clone_from(below);
        } else {
            add(held, below);
        }
    }
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply"
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

    #[test]
    fn what_others_wrote_is_adopted_but_for_metadata_subresources_and_what_the_cluster_itself_wrote()
     {
        let mut kubectl = entry("kubectl", "Update", "f:k");
        kubectl["fieldsV1"]["f:metadata"] = json!({"f:labels": {"f:a": {}}});
        let mut scale = entry("autoscaler", "Update", "f:replicas");
        scale["subresource"] = json!("scale");
        let volume = entry("kube-controller-manager", "Update", "f:volumeName");
        let ours = entry(FIELD_MANAGER, "Apply", "f:x");
        let mut before = observed(&[kubectl.clone(), scale.clone(), volume.clone(), ours]);
        before["apiVersion"] = json!("v1");
        kubectl["fieldsV1"] = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let mut adopted = entry(FIELD_MANAGER, "Apply", "f:k");
        adopted["fieldsV1"]["f:data"]["f:x"] = json!({});
        let mut after = before.clone();
        after["metadata"]["managedFields"] = json!([kubectl, scale, volume, adopted]);
        let patch = adoption(&before).unwrap();
        assert_eq!(patch["metadata"], after["metadata"]);
        assert_eq!(adoption(&after), None, "nothing of others is left");
    }
}
