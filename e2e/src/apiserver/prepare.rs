//! What single kinds do on their way into the store: statuses that only their subresource writes, fields that the server
//! fills in, deletions that need more than one step.

use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::metadata;
use super::refusal::{GroupName, Refusal};
use super::verbs::Call;

/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The finalizer that keeps a CRD until its objects are gone.
pub const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn kind<'a>(call: &'a Call<'_>) -> (&'a str, &'a str) {
    let resource = &call.served.resource;
    (&resource.group, &resource.plural)
}

/// Before the defaults of a new object.
pub fn create(call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
    // Nodes report for themselves and may bring a status along.
    if call.served.version().has_status() && kind(call) != ("", "nodes") {
        remove(object, "status");
    }
    match kind(call) {
        ("", "namespaces") => {
            object["status"] = json!({ "phase": "Active" });
            let finalizers = &mut object["spec"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(list) if list.iter().any(|f| f == "kubernetes") => {}
                Some(list) => list.push("kubernetes".into()),
                None => *finalizers = json!(["kubernetes"]),
            }
        }
        ("", "pods") => object["status"] = json!({ "phase": "Pending", "qosClass": qos(object) }),
        ("", "persistentvolumes" | "persistentvolumeclaims") => {
            object["status"] = json!({ "phase": "Pending" });
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            object["spec"]["username"] = call.user.name.as_str().into();
            object["spec"]["groups"] = json!(call.user.groups);
            if !call.user.uid.is_empty() {
                object["spec"]["uid"] = call.user.uid.as_str().into();
            }
        }
        ("apiextensions.k8s.io", _) => {
            let finalizers = &mut metadata::of(object)
                .entry("finalizers")
                .or_insert(json!([]));
            if let Some(list) = finalizers.as_array_mut()
                && !list.iter().any(|f| f == CRD_FINALIZER)
            {
                list.push(CRD_FINALIZER.into());
            }
            let versions = object["spec"]["versions"].as_array().into_iter().flatten();
            let stored: Vec<Value> = versions
                .filter(|v| v["storage"] == true)
                .map(|v| v["name"].clone())
                .collect();
            object["status"] = json!({ "storedVersions": stored });
        }
        _ => {}
    }
    Ok(())
}

/// After the defaults of a new object.
pub fn created(call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
    match kind(call) {
        ("", "namespaces") => name_label(object),
        ("", "secrets") => fold_strings(object),
        ("", "services") => give_address(call, object),
        ("", "pods") => settle_account(object),
        _ => {}
    }
    Ok(())
}

/// Before the defaults of a changed object: the parts that this path doesn't write are put back.
pub fn update(call: &Call<'_>, old: &Value, new: &mut Value) {
    let traits = call.served.resource.traits;
    match call.path.subresource.as_ref() {
        "status" => {
            let status = new.get("status").cloned();
            let written = std::mem::replace(new, old.clone());
            put(new, "status", status);
            if traits.status_keeps_metadata {
                // Who owns the status may still be said.
                keep(&written, new, "managedFields");
            } else {
                let labels = old["metadata"].get("labels").cloned();
                new["metadata"] = written["metadata"].clone();
                if traits.status_keeps_labels {
                    let fields = metadata::of(new);
                    match labels {
                        Some(labels) => fields.insert("labels".to_owned(), labels),
                        None => fields.remove("labels"),
                    };
                }
            }
            keep(&written, new, "resourceVersion");
        }
        "" if call.served.version().has_status() => {
            put(new, "status", old.get("status").cloned());
        }
        _ => {}
    }
    if kind(call) == ("", "namespaces") && call.path.subresource.is_empty() {
        put(new, "spec", old.get("spec").cloned());
    }
}

/// After the defaults of a changed object.
pub fn updated(call: &Call<'_>, old: &Value, new: &mut Value) -> Result<(), Refusal> {
    match kind(call) {
        ("", "namespaces") => name_label(new),
        ("", "secrets") => fold_strings(new),
        ("", "services") => {
            for field in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "internalTrafficPolicy",
            ] {
                if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                    new["spec"][field] = old["spec"][field].clone();
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Refuses deletions that are never allowed.
pub fn may_delete(call: &Call<'_>, name: &str) -> Result<(), Refusal> {
    if kind(call) == ("", "namespaces") && IMMORTAL.contains(&name) {
        let namespaces = GroupName {
            group: "",
            name: "namespaces",
        };
        return Err(Refusal::forbidden(
            namespaces,
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// Seconds that a deletion leaves the object; `None` for kinds that go at once.
pub fn grace(call: &Call<'_>, object: &Value, asked: Option<i64>) -> Option<i64> {
    if kind(call) != ("", "pods") {
        return None;
    }
    let unassigned = object["spec"]["nodeName"]
        .as_str()
        .is_none_or(str::is_empty);
    let finished = matches!(
        object["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if unassigned || finished {
        return Some(0);
    }
    let own = object["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    // A negative period means the shortest.
    Some(asked.map_or(own, |s| if s < 0 { 1 } else { s }))
}

/// What changes in an object besides its metadata when its deletion begins.
pub fn deleting(call: &Call<'_>, object: &mut Value) {
    if kind(call) == ("", "namespaces") && holds(call, object) {
        object["status"]["phase"] = "Terminating".into();
    }
}

/// Whether something besides finalizers in the metadata holds the object.
pub fn holds(call: &Call<'_>, object: &Value) -> bool {
    kind(call) == ("", "namespaces")
        && object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
}

fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match value {
        Some(value) => object[member] = value,
        None => remove(object, member),
    }
}

fn remove(object: &mut Value, member: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(member);
    }
}

fn keep(from: &Value, to: &mut Value, field: &str) {
    let fields = metadata::of(to);
    match from["metadata"].get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn name_label(object: &mut Value) {
    let name = metadata::text(object, "name").to_owned();
    if !name.is_empty() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    }
}

/// `stringData` is for writing only: it ends up in `data`.
fn fold_strings(object: &mut Value) {
    let Some(Value::Object(strings)) = object.as_object_mut().and_then(|o| o.remove("stringData"))
    else {
        return;
    };
    for (key, value) in strings {
        object["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

/// Cluster addresses are handed out in order; nothing listens on them.
fn give_address(call: &Call<'_>, object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
        let mut next = call
            .server
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *next = next.wrapping_add(1);
        let [_, _, high, low] = next.to_be_bytes();
        spec["clusterIP"] = format!("10.96.{high}.{low}").into();
    }
    if spec["clusterIPs"].is_null() {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    for (field, value) in [
        ("ipFamilies", json!(["IPv4"])),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("internalTrafficPolicy", json!("Cluster")),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
}

/// The part of the ServiceAccount admission that others read: the account's name.
fn settle_account(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["serviceAccountName"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        spec["serviceAccountName"] = "default".into();
    }
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    if spec["priority"].is_null() {
        spec["priority"] = 0.into();
        spec["preemptionPolicy"] = "PreemptLowerPriority".into();
        spec["enableServiceLinks"] = spec
            .get("enableServiceLinks")
            .cloned()
            .unwrap_or(true.into());
    }
}

/// The quality of service class of a pod, from requests and limits of cpu and memory.
fn qos(pod: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|field| pod["spec"][field].as_array().into_iter().flatten());
    let (mut any, mut guaranteed, mut seen) = (false, true, false);
    for container in containers {
        seen = true;
        for name in ["cpu", "memory"] {
            let limit = &container["resources"]["limits"][name];
            let request = match &container["resources"]["requests"][name] {
                Value::Null => limit,
                request => request,
            };
            any |= !limit.is_null() || !request.is_null();
            guaranteed &= !limit.is_null() && request == limit;
        }
    }
    match (any, guaranteed && seen) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quality_of_service_follows_requests_and_limits() {
        let pod =
            |resources: Value| json!({ "spec": { "containers": [{ "resources": resources }] } });
        let both = json!({ "cpu": "1", "memory": "1Gi" });
        let cases = [
            (json!({}), "BestEffort"),
            (json!({ "requests": { "cpu": "1" } }), "Burstable"),
            (json!({ "limits": both }), "Guaranteed"),
            (
                json!({ "limits": both, "requests": { "cpu": "500m", "memory": "1Gi" } }),
                "Burstable",
            ),
        ];
        for (resources, expected) in cases {
            assert_eq!(qos(&pod(resources.clone())), expected, "{resources}");
        }
    }

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({ "data": { "a": "eA==" }, "stringData": { "b": "y" } });
        fold_strings(&mut secret);
        assert_eq!(secret, json!({ "data": { "a": "eA==", "b": "eQ==" } }));
    }
}
