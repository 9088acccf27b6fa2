//! What single kinds do on their way into the store: statuses that only their subresource writes,
//! fields that the server fills in, deletions that need more than one step.

use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::auth::certificates;
use crate::auth::escalation;
use crate::auth::rbac;
use crate::context::Call;
use crate::wire::conditions;
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// Counts the changes of a daemon set's template, from before there were controller revisions.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The finalizer that keeps a CRD until its objects are gone.
pub const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Certificate requests.
const CSR: (&str, &str) = ("certificates.k8s.io", "certificatesigningrequests");

fn kind<'a>(call: &'a Call<'_>) -> (&'a str, &'a str) {
    let resource = &call.served.resource;
    (&resource.group, &resource.plural)
}

/// Takes the status out of an object that is to be made: only the subresource writes it.
pub fn forget_status(call: &Call<'_>, object: &mut Value) {
    let is_new =
        || call.path.name.is_empty() || call.served.resource.collection.get(&call.key()).is_none();
    // Nodes report for themselves and may bring a status along.
    let writes = !call.served.version().has_status() || kind(call) == ("", "nodes");
    if !writes && call.path.subresource.is_empty() && is_new() {
        remove(object, "status");
    }
}

/// Reads a new object: what the API's decoder and defaults do beyond the schema. What is set here
/// counts as said by the client.
pub fn read(call: &Call<'_>, object: &mut Value) {
    match kind(call) {
        ("", "namespaces") => name_label(object),
        ("", "secrets") => fold_strings(object),
        ("", "services") if object["spec"]["type"] != "ExternalName" => {
            let policy = &mut object["spec"]["internalTrafficPolicy"];
            if policy.is_null() {
                *policy = "Cluster".into();
            }
        }
        ("batch", "jobs") if object["spec"]["manualSelector"].is_null() => {
            object["spec"]["manualSelector"] = false.into();
        }
        ("apps", "daemonsets") => {
            object["metadata"]["annotations"][TEMPLATE_GENERATION] = "1".into();
        }
        _ => {}
    }
}

/// What the server's own admission plugins change in a new object, before any webhook is asked.
pub fn admit(call: &Call<'_>, object: &mut Value) {
    if kind(call) == ("", "pods") && call.path.subresource.is_empty() {
        settle_account(object);
    }
}

/// Fills in what is the server's to say about a new object.
pub fn create(call: &Call<'_>, object: &mut Value) {
    match kind(call) {
        ("", "services") => give_address(call, object),
        ("batch", "jobs") => generate_selector(object),
        ("", "namespaces") => {
            object["status"] = json!({ "phase": "Active" });
            let finalizers = &mut object["spec"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(list) if list.iter().any(|f| f == "kubernetes") => {}
                Some(list) => list.push("kubernetes".into()),
                None => *finalizers = json!(["kubernetes"]),
            }
        }
        ("", "pods") => {
            object["status"] = json!({ "phase": "Pending", "qosClass": qos(object) });
            if object["spec"]["schedulingGates"][0].is_object() {
                object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": null,
                }]);
            }
        }
        ("", "persistentvolumes" | "persistentvolumeclaims") => {
            object["status"] = json!({ "phase": "Pending" });
        }
        CSR => certificates::stamp(call, object),
        ("apiextensions.k8s.io", _) => {
            let versions = object["spec"]["versions"].as_array().into_iter().flatten();
            let stored: Vec<Value> = versions
                .filter(|v| v["storage"] == true)
                .map(|v| v["name"].clone())
                .collect();
            object["status"] = json!({
                "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": stored,
            });
        }
        _ => {}
    }
}

/// Before the defaults of a changed object: the parts that this path doesn't write are put back.
pub fn update(call: &Call<'_>, old: &Value, new: &mut Value) {
    if call.path.subresource.is_empty() {
        read_change(call, old, new);
    }
    let facts = call.served.resource.facts;
    match call.path.subresource.as_ref() {
        "status" => {
            agree_on_addresses(call, new);
            let status = new.get("status").cloned();
            let written = std::mem::replace(new, old.clone());
            put(new, "status", status);
            if facts.status_keeps_metadata {
                // Who owns the status may still be said.
                keep(&written, new, "managedFields");
            } else {
                let labels = old["metadata"].get("labels").cloned();
                new["metadata"] = written["metadata"].clone();
                if facts.status_keeps_labels {
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
    if kind(call) == CSR {
        let now = metadata::time(call.server.clock.now());
        certificates::settle(&call.path.subresource, old, new, &now);
    }
}

/// What is wrong with a change beyond what its kind's schema knows.
pub fn check_update(call: &Call<'_>, old: &Value, new: &Value) -> Vec<FieldError> {
    if kind(call) == CSR {
        return certificates::conditions(&call.path.subresource, Some(old), new);
    }
    Vec::new()
}

/// Refuses what RBAC lets nobody grant who doesn't have it. Before validation.
pub fn may_grant(call: &Call<'_>, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    if kind(call).0 == rbac::GROUP {
        return escalation::may_grant(call, old, new);
    }
    Ok(())
}

/// Refuses what a plugin of the server's own refuses. After validation.
pub fn may_write(call: &Call<'_>, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    if kind(call) == CSR {
        return certificates::admit(call, old, new);
    }
    Ok(())
}

fn read_change(call: &Call<'_>, old: &Value, new: &mut Value) {
    match kind(call) {
        ("", "namespaces") => name_label(new),
        ("", "secrets") => fold_strings(new),
        ("apps", "daemonsets") => {
            let count = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
            let count: u64 = count.and_then(|c| c.parse().ok()).unwrap_or(1);
            let grown = u64::from(old["spec"]["template"] != new["spec"]["template"]);
            new["metadata"]["annotations"][TEMPLATE_GENERATION] =
                (count + grown).to_string().into();
        }
        _ => {}
    }
}

/// After the defaults of a changed object.
pub fn updated(call: &Call<'_>, old: &Value, new: &mut Value) {
    if kind(call) != ("", "services") {
        return;
    }
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

/// Refuses deletions that are never allowed.
pub fn may_delete(call: &Call<'_>, name: &str) -> Result<(), StatusError> {
    if kind(call) == ("", "namespaces") && IMMORTAL.contains(&name) {
        let namespaces = GroupName {
            group: "",
            name: "namespaces",
        };
        return Err(StatusError::forbidden(
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
    if is_definition(call) && !object["metadata"]["deletionTimestamp"].is_string() {
        let message =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        let now = metadata::time(call.server.clock.now());
        let condition = ("True", "InstanceDeletionPending", message);
        conditions::set(&mut object["status"], "Terminating", condition, &now);
    }
}

/// Whether an object's deletion begins without grace and without counting as a change of what is
/// wanted: the registries of namespaces and CRDs mark them by themselves.
pub fn goes_its_own_way(call: &Call<'_>, object: &Value) -> bool {
    is_definition(call) || holds(call, object)
}

fn is_definition(call: &Call<'_>) -> bool {
    kind(call).1 == "customresourcedefinitions"
}

/// Finalizers that an object gets when its deletion begins: a CRD stays until its objects are gone.
pub fn finalizers(call: &Call<'_>, begun: bool) -> Option<&'static str> {
    (is_definition(call) && !begun).then_some(CRD_FINALIZER)
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
    // Without a selector somebody else says where a headless service leads, by either family.
    let open = spec["clusterIP"] == "None" && spec["selector"].is_null();
    let (families, policy) = if open {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", policy.into())] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
}

/// One address of a pod and the list of them say the same.
fn agree_on_addresses(call: &Call<'_>, pod: &mut Value) {
    if kind(call) != ("", "pods") {
        return;
    }
    let one = pod["status"]["podIP"].clone();
    let first = pod["status"]["podIPs"][0]["ip"].clone();
    if one.is_string() && first != one {
        pod["status"]["podIPs"] = json!([{ "ip": one }]);
    } else if one.is_null() && first.is_string() {
        pod["status"]["podIP"] = first;
    }
}

/// A job finds its pods by its own identity, unless its author wants otherwise.
fn generate_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (
        job["metadata"]["name"].clone(),
        job["metadata"]["uid"].clone(),
    );
    let labels = &mut job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = value.clone();
    }
    let labels = labels.clone();
    if job["metadata"]["labels"].is_null() {
        job["metadata"]["labels"] = labels;
    }
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
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
    }
    tolerate_trouble(spec);
}

/// Every pod stands five minutes of trouble with its node, unless it says otherwise
/// (DefaultTolerationSeconds admission).
fn tolerate_trouble(spec: &mut Value) {
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerations = spec["tolerations"].as_array();
        let said = tolerations.into_iter().flatten().any(|t| {
            let effect = t["effect"].as_str().unwrap_or_default();
            let own = t["key"].as_str().unwrap_or_default();
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if said {
            continue;
        }
        let toleration = json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
        });
        match spec["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => spec["tolerations"] = json!([toleration]),
        }
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
