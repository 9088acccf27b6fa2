//! Pods.

use serde_json::{Value, json};

use super::Strategy;
use crate::context::RequestContext;

pub(super) struct Pods;

impl Strategy for Pods {
    fn prepare_status(&self, new: &mut Value) {
        agree_on_addresses(new);
    }

    fn admit(&self, object: &mut Value) {
        settle_account(object);
    }

    fn complete(&self, _: &RequestContext<'_>, object: &mut Value) {
        object["status"] = json!({ "phase": "Pending", "qosClass": qos(object) });
        if object["spec"]["schedulingGates"][0].is_object() {
            object["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": null,
            }]);
        }
    }

    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
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
}

/// Makes the one address of a pod and the list of them say the same.
fn agree_on_addresses(pod: &mut Value) {
    let one = pod["status"]["podIP"].clone();
    let first = pod["status"]["podIPs"][0]["ip"].clone();
    if one.is_string() && first != one {
        pod["status"]["podIPs"] = json!([{ "ip": one }]);
    } else if one.is_null() && first.is_string() {
        pod["status"]["podIP"] = first;
    }
}

/// Does the part of the ServiceAccount admission that others read: it sets the account's name.
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

/// Adds tolerations so that every pod tolerates five minutes of trouble with its node, unless it
/// says otherwise (DefaultTolerationSeconds admission).
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

/// Returns the quality of service class of a pod, from requests and limits of cpu and memory.
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
