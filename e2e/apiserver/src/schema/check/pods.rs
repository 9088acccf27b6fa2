//! Pods and pod templates.

use muster_quantity::Quantity;
use serde_json::Value;

use super::{Check, each};
use crate::wire::field_error::FieldError;

/// Restart policies of pods that nothing owns.
const ANY: &[&str] = &["Always", "OnFailure", "Never"];

/// Checks a pod: of one that exists little can be changed.
pub fn pod(check: &mut Check<'_>) {
    let Some(old) = check.was("spec") else {
        return spec(check, "spec", ANY);
    };
    let new = check.at("spec");
    for (path, container) in check.each("spec.containers") {
        check.required(&format!("{path}.image"), &container["image"]);
    }
    if !keeps_tolerations(old, new) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        check.push(FieldError::forbidden("spec.tolerations", detail));
    } else if fixed_part(old) != fixed_part(new) {
        check.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

/// Returns a value without some of its fields.
fn without(value: &Value, names: &[&str]) -> Value {
    let mut rest = value.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
    rest
}

fn keeps_tolerations(old: &Value, new: &Value) -> bool {
    let list = |spec: &Value| -> Vec<Value> {
        let all = spec["tolerations"].as_array().into_iter().flatten();
        all.map(|it| without(it, &["tolerationSeconds"])).collect()
    };
    let new = list(new);
    list(old).iter().all(|kept| new.contains(kept))
}

/// Returns what of a pod's spec never changes.
fn fixed_part(spec: &Value) -> Value {
    let mut fixed = without(spec, &["activeDeadlineSeconds", "tolerations"]);
    for list in ["containers", "initContainers"] {
        if let Some(containers) = fixed.get_mut(list).and_then(Value::as_array_mut) {
            for container in containers {
                *container = without(container, &["image"]);
            }
        }
    }
    fixed
}

/// Checks the pod spec at `path` (`spec.template.spec`), whose restart policy depends on what owns
/// the pods.
pub fn spec(check: &mut Check<'_>, path: &str, restarts: &[&str]) {
    let spec = check.at(path);
    let volumes = volumes(check, path);
    let mut names: Vec<&Value> = Vec::new();
    check.filled(&format!("{path}.containers"), &spec["containers"], "");
    for list in ["containers", "initContainers"] {
        for (path, container) in check.each(&format!("{path}.{list}")) {
            check.unique_label(&format!("{path}.name"), &container["name"], &mut names);
            self::container(check, &path, container, &volumes);
        }
    }
    let (at, policy) = (format!("{path}.restartPolicy"), &spec["restartPolicy"]);
    if restarts.contains(&"Always") {
        check.one_of(&at, policy, restarts);
    } else if !policy.as_str().is_some_and(|it| restarts.contains(&it)) {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        check.push(FieldError::required(at, detail));
    }
    for (path, toleration) in check.each(&format!("{path}.tolerations")) {
        self::toleration(check, &path, toleration);
    }
}

/// Returns the names by which volumes can be mounted, and reports the faults of the volumes. The
/// names of the claims of a StatefulSet are among them: each of its pods gets a volume for each
/// claim.
fn volumes<'a>(check: &mut Check<'a>, path: &str) -> Vec<&'a Value> {
    let mut names: Vec<&Value> = Vec::new();
    for (path, volume) in check.each(&format!("{path}.volumes")) {
        check.unique_label(&format!("{path}.name"), &volume["name"], &mut names);
        let sources = volume.as_object().into_iter().flatten();
        let mut sources = sources.map(|(key, _)| key).filter(|key| *key != "name");
        match (sources.next(), sources.next()) {
            (None, _) => check.push(FieldError::required(path, "must specify a volume type")),
            (_, None) => {}
            (_, Some(extra)) => {
                let detail = "may not specify more than 1 volume type";
                check.push(FieldError::forbidden(format!("{path}.{extra}"), detail));
            }
        }
    }
    let claims = check.each("spec.volumeClaimTemplates").into_iter();
    names.extend(claims.map(|(_, claim)| &claim["metadata"]["name"]));
    names
}

fn container(check: &mut Check<'_>, path: &str, container: &Value, volumes: &[&Value]) {
    check.required(&format!("{path}.image"), &container["image"]);
    check.one_of(
        &format!("{path}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
    );
    for (path, declared) in each(&container["ports"], &format!("{path}.ports")) {
        let number = &declared["containerPort"];
        check.port(&format!("{path}.containerPort"), number);
    }
    for (path, variable) in each(&container["env"], &format!("{path}.env")) {
        check.required(&format!("{path}.name"), &variable["name"]);
    }
    for (path, mount) in each(&container["volumeMounts"], &format!("{path}.volumeMounts")) {
        let name = &mount["name"];
        if check.required(&format!("{path}.name"), name) && !volumes.contains(&name) {
            check.push(FieldError::not_found(format!("{path}.name"), name));
        }
        check.required(&format!("{path}.mountPath"), &mount["mountPath"]);
    }
    resources(check, path, &container["resources"]);
}

/// Checks that no amount is negative, and that no request is above its limit.
fn resources(check: &mut Check<'_>, path: &str, resources: &Value) {
    let amount = |value: &Value| value.as_str().and_then(|it| it.parse::<Quantity>().ok());
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            if amount(value).is_some_and(|amount| amount < Quantity::default()) {
                let path = format!("{path}.resources.{list}[{name}]");
                check.invalid(&path, value, "must be greater than or equal to 0");
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        if let (Some(wanted), Some(most)) = (amount(request), amount(limit))
            && wanted > most
        {
            let limit = limit.as_str().unwrap_or_default();
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            check.invalid(&format!("{path}.resources.requests"), request, &detail);
        }
    }
}

fn toleration(check: &mut Check<'_>, path: &str, toleration: &Value) {
    let text = |name: &str| toleration[name].as_str().unwrap_or_default();
    let (operator, effect) = (format!("{path}.operator"), format!("{path}.effect"));
    if text("key").is_empty() && text("operator") != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        check.invalid(&operator, &text("operator").into(), detail);
    }
    if !toleration["tolerationSeconds"].is_null() && text("effect") != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        check.invalid(&effect, &text("effect").into(), detail);
    }
    if text("operator") == "Exists" && !text("value").is_empty() {
        let detail = "value must be empty when `operator` is 'Exists'";
        check.invalid(&operator, &toleration["value"], detail);
    }
    check.one_of(&operator, &toleration["operator"], &["", "Equal", "Exists"]);
    check.one_of(
        &effect,
        &toleration["effect"],
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
    );
}
