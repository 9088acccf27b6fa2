//! Takes objects over from Karmada's agent, and from whoever wrote what is to be overwritten.
//!
//! Karmada's agent writes whole objects, which records its fields as updates. The server-side apply
//! of this agent would own the same fields a second time, and a field that the template drops would
//! stay in the member. The ownership record is therefore rewritten first, as `kubectl` does when it
//! changes from client-side to server-side apply: Karmada's update becomes this agent's apply.

use serde_json::{Map, Value, json};

use super::member::{Clash, FIELD_MANAGER};

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
/// Metadata and subresources stay with their writers, as does all that clashes with nothing
/// applied, if clashes are given.
pub fn adoption(observed: &Value, clashes: Option<(&Value, &[Clash])>) -> Option<Value> {
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
        let taken: Vec<_> = if let Some((applied, clashes)) = clashes {
            let parts = clashes.iter();
            let parts = parts.map(|it| take(owned, applied, &it.path, it.is_of_entries));
            parts.collect()
        } else {
            let metadata = owned.remove_entry("f:metadata").into_iter();
            vec![std::mem::replace(owned, metadata.collect())]
        };
        if !owned.is_empty() {
            rest.push(entry);
        }
        for taken in taken.into_iter().filter(|it| !it.is_empty()) {
            is_any = true;
            add(&mut fields, &Value::Object(taken));
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

/// Returns the merge patch that has the record of fields name the version in which an object was
/// read in the place of one that is not served any more; `None` when nothing names that.
pub fn without_version(observed: &Value, gone: &str) -> Option<Value> {
    let mut entries = observed
        .pointer("/metadata/managedFields")?
        .as_array()?
        .clone();
    let mut is_any = false;
    for entry in entries.iter_mut().filter(|it| it["apiVersion"] == gone) {
        entry["apiVersion"] = observed["apiVersion"].clone();
        is_any = true;
    }
    let version = observed.pointer("/metadata/resourceVersion")?;
    is_any.then(|| json!({"metadata": {"managedFields": entries, "resourceVersion": version}}))
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

/// Takes out of a set of fields what clashes below a path with what is applied: entries of a list
/// that are not applied, or fields that are not beside others that are. Leaves nothing empty
/// behind.
fn take(
    fields: &mut Map<String, Value>,
    applied: &Value,
    path: &[String],
    is_of_entries: bool,
) -> Map<String, Value> {
    let mut taken = Map::new();
    for (name, mut below) in std::mem::take(fields) {
        match Step::of(&name, applied, path, is_of_entries) {
            Step::Take => _ = taken.insert(name, below),
            Step::Leave => _ = fields.insert(name, below),
            Step::Into(applied, path) => {
                let inner = below.as_object_mut();
                let found = inner.map(|it| take(it, applied, path, is_of_entries));
                let found = found.unwrap_or_default();
                let is_left = found.is_empty() || below != json!({});
                if !found.is_empty() {
                    taken.insert(name.clone(), Value::Object(found));
                }
                if is_left {
                    fields.insert(name, below);
                }
            }
        }
    }
    taken
}

/// What becomes of one name in a set of fields.
enum Step<'a> {
    /// It stays.
    Leave,
    /// It is taken with all below it.
    Take,
    /// What is below it is looked at, with what is applied there and the rest of the path.
    Into(&'a Value, &'a [String]),
}

impl<'a> Step<'a> {
    fn of(name: &str, applied: &'a Value, path: &'a [String], is_of_entries: bool) -> Self {
        if let Value::Array(entries) = applied {
            return match find(entries, name) {
                Some(entry) => Self::Into(entry, path),
                None if path.is_empty() && is_of_entries && name != "." => Self::Take,
                None => Self::Leave,
            };
        }
        let Some(name) = name.strip_prefix("f:") else {
            return Self::Leave;
        };
        let held = &applied[name];
        match path.split_first() {
            Some((first, _)) if first != name => Self::Leave,
            Some(_) if held.is_null() => Self::Take,
            Some((_, rest)) => Self::Into(held, rest),
            None if held.is_null() && !is_of_entries => Self::Take,
            None => Self::Leave,
        }
    }
}

/// Returns the entry of a list that a set of fields names. A key that the entry leaves out is a
/// default of the server's.
fn find<'a>(entries: &'a [Value], name: &str) -> Option<&'a Value> {
    if let Some(value) = name.strip_prefix("v:") {
        let value: Value = serde_json::from_str(value).ok()?;
        return entries.iter().find(|it| **it == value);
    }
    let keys: Map<String, Value> = serde_json::from_str(name.strip_prefix("k:")?).ok()?;
    let is_it = |entry: &Value, is_open: bool| {
        let mut keys = keys.iter();
        keys.all(|(key, value)| entry[key] == *value || is_open && entry[key].is_null())
    };
    let found = entries.iter().find(|it| is_it(it, false));
    found.or_else(|| entries.iter().find(|it| is_it(it, true)))
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

    #[test]
    fn of_what_others_wrote_that_alone_is_adopted_which_clashes_with_what_is_applied() {
        let web = "k:{\"name\":\"web\"}";
        let theirs = json!({"f:spec": {"f:paused": {}, "f:containers": {
            web: {
                "f:env": {
                    "k:{\"name\":\"A\"}": {"f:value": {}},
                    "k:{\"name\":\"RELOADED\"}": {".": {}, "f:name": {}, "f:value": {}},
                },
                "f:livenessProbe": {"f:exec": {"f:command": {}}, "f:periodSeconds": {}},
                "f:ports": {"k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}},
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:hostIP": {}}},
            },
            "k:{\"name\":\"proxy\"}": {".": {}, "f:image": {}},
        }}});
        let probe = json!({"httpGet": {"port": 80}, "periodSeconds": 5});
        let applied = json!({"spec": {"containers": [{
            "name": "web", "env": [{"name": "A", "valueFrom": {}}], "livenessProbe": probe,
            "ports": [{"containerPort": 80}],
        }]}});
        for (path, is_of_entries, expected) in [
            (
                "env",
                false,
                json!({"f:env": {"k:{\"name\":\"A\"}": {"f:value": {}}}}),
            ),
            (
                "livenessProbe",
                false,
                json!({"f:livenessProbe": {"f:exec": {"f:command": {}}}}),
            ),
            (
                "ports",
                true,
                json!({"f:ports": {"k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}}}}),
            ),
            ("volumeMounts", false, json!(null)),
        ] {
            let observed = json!({"apiVersion": "v1", "metadata": {"resourceVersion": "7",
                "managedFields": [{"manager": "kubectl-set", "operation": "Update",
                    "apiVersion": "v1", "fieldsV1": theirs}]}});
            let path = ["spec", "containers", path].map(str::to_owned).to_vec();
            let clash = Clash {
                path,
                is_of_entries,
            };
            let adopting = adoption(&observed, Some((&applied, &[clash])));
            let managers = adopting.map(|it| it["metadata"]["managedFields"].clone());
            let taken = managers
                .as_ref()
                .map(|it| &it[1]["fieldsV1"]["f:spec"]["f:containers"]);
            assert_eq!(
                taken.unwrap_or(&Value::Null)[web],
                expected,
                "{is_of_entries}"
            );
            let left = managers.as_ref().map(|it| &it[0]["fieldsV1"]["f:spec"]);
            assert!(left.is_none_or(|it| it.get("f:paused").is_some()));
        }
    }
}
