//! Takes objects over from Karmada's agent, and from whoever wrote what is to be overwritten.
//!
//! Karmada's agent writes whole objects, which records its fields as updates. The server-side apply
//! of this agent would own the same fields a second time, and a field that the template drops would
//! stay in the member. The ownership record is therefore rewritten first, as `kubectl` does when it
//! changes from client-side to server-side apply: Karmada's update becomes this agent's apply.

use serde_json::{Map, Value, json};

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
    // Of several records the last one has all fields of Karmada's last write. This agent's own may
    // be of patches, and has all only where there is none of Karmada's.
    let is_karmadas = |entry: &Value| is_predecessor(entry) && entry["manager"] != FIELD_MANAGER;
    let karmadas = entries.iter().rposition(is_karmadas);
    let last = karmadas.or_else(|| entries.iter().rposition(is_predecessor))?;
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
/// Metadata and subresources stay with their writers, as does all but a list, if one is given.
pub fn adoption(observed: &Value, list: Option<&[String]>) -> Option<Value> {
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
        let taken = if let Some(list) = list {
            take(owned, list)
        } else {
            let metadata = owned.remove_entry("f:metadata").into_iter();
            let all = std::mem::replace(owned, metadata.collect());
            (!all.is_empty()).then_some(Value::Object(all))
        };
        if !owned.is_empty() {
            rest.push(entry);
        }
        is_any |= taken.is_some();
        add(&mut fields, &taken.unwrap_or_default());
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

/// Returns a merge patch with what is wanted that takes out what this agent wrote before and what
/// is wanted no more: a merge patch leaves what it does not name, unlike a server-side apply.
pub fn without_dropped(mut wanted: Value, observed: &Value) -> Value {
    let entries = observed.pointer("/metadata/managedFields");
    for entry in entries.and_then(Value::as_array).into_iter().flatten() {
        let is_own = entry["manager"] == FIELD_MANAGER;
        if is_own && entry.get("subresource").is_none_or(|it| it == "") {
            take_out(&mut wanted, &entry["fieldsV1"], observed);
        }
    }
    wanted
}

/// Has a merge patch remove those of a set of fields that are there and that it does not name.
fn take_out(patch: &mut Value, owned: &Value, observed: &Value) {
    let (Some(patch), Some(owned)) = (patch.as_object_mut(), owned.as_object()) else {
        return;
    };
    for (name, below) in owned {
        let Some(name) = name.strip_prefix("f:") else {
            continue;
        };
        let held = &observed[name];
        if held.is_null() {
            continue;
        }
        match patch.get_mut(name) {
            Some(named) => take_out(named, below, held),
            None => _ = patch.insert(name.to_owned(), Value::Null),
        }
    }
}

/// Takes what lies below a path out of a set of fields, and leaves nothing empty behind.
fn take(fields: &mut Map<String, Value>, path: &[String]) -> Option<Value> {
    let (name, rest) = path.split_first()?;
    let taken = if rest.is_empty() {
        fields.remove(name)?
    } else {
        let below = fields.get_mut(name)?.as_object_mut()?;
        let taken = take(below, rest)?;
        if below.is_empty() {
            fields.remove(name);
        }
        taken
    };
    Some(json!({ (name.clone()): taken }))
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
    fn what_karmadas_agent_wrote_is_taken_over_although_this_one_has_patched_the_object_since() {
        // The agent has started an object again that a fence had stopped, and applied nothing yet.
        let before = observed(&[
            entry("karmada-agent", "Update", "f:k"),
            entry(FIELD_MANAGER, "Update", "f:replicas"),
        ]);
        let patch = takeover(&before).unwrap();
        let after = patch["metadata"]["managedFields"].as_array().unwrap();
        let applied = after.iter().find(|it| it["operation"] == "Apply").unwrap();
        assert_eq!(applied["fieldsV1"]["f:data"]["f:k"], json!({}));
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
        let patch = adoption(&before, None).unwrap();
        assert_eq!(patch["metadata"], after["metadata"]);
        assert_eq!(adoption(&after, None), None, "nothing of others is left");
    }
}
