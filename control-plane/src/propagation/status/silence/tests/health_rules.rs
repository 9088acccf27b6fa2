//! What Argo CD and Flux read from a Deployment and from its binding while clusters are silent.

use super::*;

fn count(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns Argo CD's health of a Deployment: generation, then the updated, all and available
/// replicas.
fn argo_deployment(it: &Value) -> &'static str {
    let wanted = it.pointer("/spec/replicas").and_then(Value::as_i64);
    let updated = count(it, "/status/updatedReplicas");
    let conditions = it.pointer("/status/conditions").and_then(Value::as_array);
    let is_late =
        |it: &Value| it["type"] == "Progressing" && it["reason"] == "ProgressDeadlineExceeded";
    if count(it, "/metadata/generation") > count(it, "/status/observedGeneration") {
        "Progressing"
    } else if conditions.into_iter().flatten().any(is_late) {
        "Degraded"
    } else if wanted.is_some_and(|wanted| updated < wanted)
        || count(it, "/status/replicas") > updated
        || count(it, "/status/availableReplicas") < updated
    {
        "Progressing"
    } else {
        "Healthy"
    }
}

/// Returns the counters that Flux (kstatus) wants of a Deployment before it reads its
/// conditions.
fn flux_counts_are_current(it: &Value) -> bool {
    let wanted = it.pointer("/spec/replicas").and_then(Value::as_i64);
    let wanted = wanted.unwrap_or(1);
    let of = |name: &str| count(it, &format!("/status/{name}"));
    count(it, "/metadata/generation") == of("observedGeneration")
        && of("replicas") >= wanted
        && of("updatedReplicas") >= wanted
        && of("replicas") <= of("updatedReplicas")
        && of("availableReplicas") >= of("updatedReplicas")
        && of("readyReplicas") >= wanted
}

/// Returns Argo CD's health of a ResourceBinding: every cluster reports, none `Unhealthy`, and none
/// `Unknown` without having applied.
fn argo_binding(targets: usize, items: &[AggregatedStatusItem]) -> &'static str {
    if targets == 0 || targets != items.len() {
        return "Progressing";
    }
    let is_bad = |item: &AggregatedStatusItem| match item.health {
        Some(ResourceHealth::Unhealthy) => true,
        Some(ResourceHealth::Unknown) => !item.applied,
        _ => false,
    };
    if items.iter().any(is_bad) {
        "Degraded"
    } else {
        "Healthy"
    }
}

#[test]
fn nothing_reads_healthy_while_copies_are_on_silent_clusters_and_all_does_when_they_are_back() {
    let template = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "generation": 4 }, "spec": { "replicas": 3 },
    });
    let report = |cluster: &str, n: u64| {
        json!({ "clusterName": cluster, "applied": true, "health": "Healthy", "status": {
            "replicas": n, "readyReplicas": n, "updatedReplicas": n, "availableReplicas": n,
            "generation": 2, "observedGeneration": 2, "resourceTemplateGeneration": 4,
        } })
    };
    let reported = items(&json!([report("m1", 2), report("m2", 1)]));
    let mut held = template;
    for (silent_ones, deployment, flux, binding) in [
        (&[][..], "Healthy", true, "Healthy"),
        (&["m1"], "Progressing", false, "Degraded"),
        (&["m1", "m2"], "Progressing", false, "Degraded"),
        (&["m2"], "Progressing", false, "Degraded"),
        (&[], "Healthy", true, "Healthy"),
    ] {
        let silent = silent(silent_ones);
        held["status"] = shown(&held, &reported, &silent);
        let mut said = reported.clone();
        mark(&mut said, &silent);
        let found = (argo_deployment(&held), flux_counts_are_current(&held));
        assert_eq!(found, (deployment, flux), "{silent_ones:?}: {held}");
        assert_eq!(argo_binding(2, &said), binding, "{silent_ones:?}: {said:?}");
    }
}
