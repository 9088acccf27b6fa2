//! Pods and pod templates.

use muster_quantity::Quantity;
use serde_json::{Value, json};

use super::{Check, each, get, label, port};
use crate::wire::field_error::FieldError;

/// Which restart policies a pod spec may have; it depends on what owns the pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    /// Pods and pod templates.
    Any,
    /// Workloads that run for ever.
    Always,
    /// Jobs.
    NotAlways,
}

/// Checks a pod.
pub fn pod(check: &mut Check<'_>) {
    if check.old.is_none() {
        spec(check, "spec", Restarts::Any);
    } else {
        update(check);
    }
}

/// Checks an update of a pod: of a running pod little can be changed.
fn update(check: &mut Check<'_>) {
    let Some(old) = check.was("spec") else {
        return;
    };
    let new = check.at("spec");
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(old) != count(new) {
            let detail = "pod updates may not add or remove containers";
            check.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return;
        }
        for (path, container) in check.each(&format!("spec.{list}")) {
            check.required(&format!("{path}.image"), &container["image"]);
        }
    }
    if !keeps_tolerations(old, new) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        check.push(FieldError::forbidden("spec.tolerations", detail));
        return;
    }
    if fixed_part(old, new) != fixed_part(new, new) {
        check.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

fn keeps_tolerations(old: &Value, new: &Value) -> bool {
    let list = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let same = |a: &Value, b: &Value| {
        let bare = |toleration: &Value| {
            let mut bare = toleration.clone();
            bare.as_object_mut()
                .map(|fields| fields.remove("tolerationSeconds"));
            bare
        };
        bare(a) == bare(b)
    };
    let new = list(new);
    list(old)
        .iter()
        .all(|kept| new.iter().any(|toleration| same(toleration, kept)))
}

/// Returns the spec with what may change taken from `like`.
fn fixed_part(spec: &Value, like: &Value) -> Value {
    let mut fixed = spec.clone();
    for field in ["activeDeadlineSeconds", "tolerations"] {
        match like.get(field) {
            Some(value) => fixed[field] = value.clone(),
            None => {
                fixed.as_object_mut().map(|fields| fields.remove(field));
            }
        }
    }
    let gated = spec["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    if gated {
        for field in ["schedulingGates", "nodeSelector", "affinity"] {
            if let Some(fields) = fixed.as_object_mut() {
                fields.remove(field);
                fields.extend(
                    like.get(field)
                        .map(|value| (field.to_owned(), value.clone())),
                );
            }
        }
    }
    if spec["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|s| s < 0)
        && like["terminationGracePeriodSeconds"] == 1
    {
        fixed["terminationGracePeriodSeconds"] = json!(1);
    }
    for list in ["containers", "initContainers"] {
        let like = like[list].as_array().cloned().unwrap_or_default();
        let containers = fixed
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for (container, like) in containers.zip(like) {
            container["image"] = like["image"].clone();
        }
    }
    fixed
}

/// Checks the pod spec at `path` (`spec.template.spec`).
pub fn spec(check: &mut Check<'_>, path: &str, restarts: Restarts) {
    let spec = check.at(path);
    let volumes = volumes(check, path);
    let mut names: Vec<&Value> = Vec::new();
    let mut ports: Vec<(Value, Value)> = Vec::new();
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        check.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for list in ["containers", "initContainers"] {
        for (path, container) in check.each(&format!("{path}.{list}")) {
            if check.required(&format!("{path}.name"), &container["name"]) {
                label(check, &format!("{path}.name"), &container["name"]);
                if names.contains(&&container["name"]) {
                    check.push(FieldError::duplicate(
                        format!("{path}.name"),
                        &container["name"],
                    ));
                }
                names.push(&container["name"]);
            }
            self::container(check, &path, container, &volumes, &mut ports);
        }
    }
    restart_policy(check, path, restarts);
    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    check.one_of(&format!("{path}.dnsPolicy"), &spec["dnsPolicy"], &dns);
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline
        .as_i64()
        .is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds))
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        check.invalid(&format!("{path}.activeDeadlineSeconds"), deadline, detail);
    }
    for (path, toleration) in check.each(&format!("{path}.tolerations")) {
        self::toleration(check, &path, toleration);
    }
}

fn restart_policy(check: &mut Check<'_>, path: &str, restarts: Restarts) {
    let at = format!("{path}.restartPolicy");
    let policy = &check.at(path)["restartPolicy"];
    match restarts {
        Restarts::Any => check.one_of(&at, policy, &["Always", "OnFailure", "Never"]),
        Restarts::Always => check.one_of(&at, policy, &["Always"]),
        Restarts::NotAlways => {
            if !matches!(policy.as_str(), Some("OnFailure" | "Never")) {
                let detail = "valid values: \"OnFailure\", \"Never\"";
                check.push(FieldError::required(at, detail));
            }
        }
    }
}

/// Returns the names by which volumes can be mounted, and reports the faults of the volumes. The
/// names of the claims of a StatefulSet are among them: each of its pods gets a volume for each
/// claim.
fn volumes<'a>(check: &mut Check<'a>, path: &str) -> Vec<&'a Value> {
    let mut names: Vec<&Value> = Vec::new();
    for (path, volume) in check.each(&format!("{path}.volumes")) {
        let name = &volume["name"];
        if check.required(&format!("{path}.name"), name) {
            label(check, &format!("{path}.name"), name);
            if names.contains(&name) {
                check.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
        }
        let sources: Vec<&String> = volume
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(|key| *key != "name")
            .collect();
        match sources.as_slice() {
            [] => check.push(FieldError::required(path, "must specify a volume type")),
            [_] => {}
            [_, extra, ..] => {
                let detail = "may not specify more than 1 volume type";
                check.push(FieldError::forbidden(format!("{path}.{extra}"), detail));
            }
        }
    }
    let claims = check.each("spec.volumeClaimTemplates").into_iter();
    names.extend(claims.map(|(_, claim)| &claim["metadata"]["name"]));
    names
}

fn container(
    check: &mut Check<'_>,
    path: &str,
    container: &Value,
    volumes: &[&Value],
    host_ports: &mut Vec<(Value, Value)>,
) {
    if check.required(&format!("{path}.image"), &container["image"]) {
        let image = container["image"].as_str().unwrap_or_default();
        if image.trim() != image {
            let detail = "must not have leading or trailing whitespace";
            check.invalid(&format!("{path}.image"), &container["image"], detail);
        }
    }
    check.one_of(
        &format!("{path}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
    );
    check.one_of(
        &format!("{path}.terminationMessagePolicy"),
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
    );
    let mut names: Vec<&Value> = Vec::new();
    for (path, declared) in each(&container["ports"], &format!("{path}.ports")) {
        let name = &declared["name"];
        if name.is_string() {
            if names.contains(&name) {
                check.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
        }
        if declared["containerPort"] == 0 {
            check.push(FieldError::required(format!("{path}.containerPort"), ""));
        } else {
            port(
                check,
                &format!("{path}.containerPort"),
                &declared["containerPort"],
            );
        }
        port(check, &format!("{path}.hostPort"), &declared["hostPort"]);
        check.one_of(
            &format!("{path}.protocol"),
            &declared["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if declared["hostPort"].is_i64() {
            let taken = (declared["hostPort"].clone(), declared["protocol"].clone());
            if host_ports.contains(&taken) {
                check.push(FieldError::duplicate(format!("{path}.hostPort"), &taken.0));
            }
            host_ports.push(taken);
        }
    }
    for (path, variable) in each(&container["env"], &format!("{path}.env")) {
        check.required(&format!("{path}.name"), &variable["name"]);
        if variable["value"].is_string() && variable["valueFrom"].is_object() {
            let detail = "may not be specified when `value` is not empty";
            check.invalid(&format!("{path}.valueFrom"), &json!(""), detail);
        }
    }
    let mut mounted: Vec<&Value> = Vec::new();
    for (path, mount) in each(&container["volumeMounts"], &format!("{path}.volumeMounts")) {
        if check.required(&format!("{path}.name"), &mount["name"])
            && !volumes.contains(&&mount["name"])
        {
            check.push(FieldError::not_found(
                format!("{path}.name"),
                &mount["name"],
            ));
        }
        if check.required(&format!("{path}.mountPath"), &mount["mountPath"]) {
            if mounted.contains(&&mount["mountPath"]) {
                check.invalid(
                    &format!("{path}.mountPath"),
                    &mount["mountPath"],
                    "must be unique",
                );
            }
            mounted.push(&mount["mountPath"]);
        }
    }
    resources(check, path, &container["resources"]);
}

/// Checks that no amount is negative, and that no request is above its limit.
fn resources(check: &mut Check<'_>, path: &str, resources: &Value) {
    let amount = |value: &Value| {
        value
            .as_str()
            .and_then(|text| text.parse::<Quantity>().ok())
    };
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
            let detail = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            check.invalid(&format!("{path}.resources.requests"), request, &detail);
        }
    }
}

fn toleration(check: &mut Check<'_>, path: &str, toleration: &Value) {
    let text = |name: &str| toleration[name].as_str().unwrap_or_default();
    let operator = &toleration["operator"];
    if text("key").is_empty() && text("operator") != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        check.invalid(
            &format!("{path}.operator"),
            &json!(text("operator")),
            detail,
        );
    }
    if !toleration["tolerationSeconds"].is_null() && text("effect") != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        check.invalid(&format!("{path}.effect"), &json!(text("effect")), detail);
    }
    match text("operator") {
        "Exists" if !text("value").is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            check.invalid(&format!("{path}.operator"), &toleration["value"], detail);
        }
        "" | "Equal" | "Exists" => {}
        _ => check.one_of(&format!("{path}.operator"), operator, &["Equal", "Exists"]),
    }
    check.one_of(
        &format!("{path}.effect"),
        get(toleration, "effect"),
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
    );
}
