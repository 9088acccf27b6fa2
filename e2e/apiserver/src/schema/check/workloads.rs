//! Workloads: their selectors and templates fit together, and what may not change does not.

use serde_json::{Value, json};

use super::Check;
use super::pods::{self, Restarts};
use crate::kinds::catalog::Kind;
use crate::wire::field_error::FieldError;

/// Deployments and their like.
pub fn apps(check: &mut Check<'_>, kind: &Kind) {
    if kind.kind == "ControllerRevision" {
        return;
    }
    let selector = check.at("spec.selector");
    let changed = check
        .was("spec.selector")
        .is_some_and(|old| old != selector);
    if kind.kind == "StatefulSet" {
        stateful_set(check);
    } else if changed && kind.group == "apps" {
        check.invalid("spec.selector", selector, "field is immutable");
    }
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        check.at_least(
            &format!("spec.{field}"),
            check.at(&format!("spec.{field}")),
            0,
        );
    }
    if kind.group == "apps" {
        self::selector(check, &kind.kind.to_lowercase());
    } else {
        let labels = &check.at("spec.template")["metadata"]["labels"];
        if !selector
            .as_object()
            .into_iter()
            .flatten()
            .all(|(k, v)| labels[k] == *v)
        {
            check.push(mismatch(labels));
        }
    }
    pods::spec(check, "spec.template.spec", Restarts::Always);
    match kind.kind {
        "Deployment" => deployment_strategy(check),
        "DaemonSet" => strategy_type(
            check,
            "spec.updateStrategy.type",
            &["RollingUpdate", "OnDelete"],
        ),
        "StatefulSet" => {
            strategy_type(
                check,
                "spec.updateStrategy.type",
                &["RollingUpdate", "OnDelete"],
            );
            let policy = check.at("spec.podManagementPolicy");
            check.one_of(
                "spec.podManagementPolicy",
                policy,
                &["OrderedReady", "Parallel"],
            );
        }
        _ => {}
    }
}

/// Checks that every pod that the template makes is selected; otherwise the workload would make
/// pods for ever.
fn selector(check: &mut Check<'_>, kind: &str) {
    let selector = check.at("spec.selector");
    let empty = |name: &str| {
        selector[name]
            .as_object()
            .is_none_or(serde_json::Map::is_empty)
    };
    let no_expressions = selector["matchExpressions"]
        .as_array()
        .is_none_or(Vec::is_empty);
    if selector.is_null() {
        check.push(FieldError::required("spec.selector", ""));
        return;
    }
    if empty("matchLabels") && no_expressions {
        let detail = format!("empty selector is invalid for {kind}");
        check.invalid("spec.selector", selector, &detail);
        return;
    }
    expressions(check, "spec.selector");
    let labels = &check.at("spec.template")["metadata"]["labels"];
    if !selects(selector, labels) {
        check.push(mismatch(labels));
    }
}

fn mismatch(labels: &Value) -> FieldError {
    let detail = "`selector` does not match template `labels`";
    FieldError::invalid("spec.template.metadata.labels", labels, detail)
}

/// Checks that the expressions of a label selector make sense.
fn expressions(check: &mut Check<'_>, path: &str) {
    for (path, expression) in check.each(&format!("{path}.matchExpressions")) {
        let values = expression["values"].as_array().map_or(0, Vec::len);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                check.push(FieldError::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                check.push(FieldError::forbidden(format!("{path}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let detail = "not a valid selector operator";
                check.invalid(&format!("{path}.operator"), &expression["operator"], detail);
            }
        }
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let all = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(k, v)| labels[k] == *v);
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    all && expressions.into_iter().all(|expression| {
        let label = &labels[expression["key"].as_str().unwrap_or_default()];
        let listed = || {
            expression["values"]
                .as_array()
                .is_some_and(|values| values.contains(label))
        };
        match expression["operator"].as_str() {
            Some("In") => label.is_string() && listed(),
            Some("NotIn") => !listed(),
            Some("Exists") => label.is_string(),
            Some("DoesNotExist") => label.is_null(),
            _ => true,
        }
    })
}

fn strategy_type(check: &mut Check<'_>, path: &str, allowed: &[&str]) {
    check.one_of(path, check.at(path), allowed);
}

fn deployment_strategy(check: &mut Check<'_>) {
    let strategy = check.at("spec.strategy");
    strategy_type(check, "spec.strategy.type", &["Recreate", "RollingUpdate"]);
    let rolling = &strategy["rollingUpdate"];
    if strategy["type"] == "Recreate" && rolling.is_object() {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        check.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
    }
    let zero = |value: &Value| *value == 0 || *value == "0%";
    if rolling.is_object() && zero(&rolling["maxUnavailable"]) && zero(&rolling["maxSurge"]) {
        let path = "spec.strategy.rollingUpdate.maxUnavailable";
        check.invalid(
            path,
            &rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        );
    }
    let seconds = |name: &str| check.at("spec")[name].as_i64();
    if let (Some(deadline), Some(ready)) = (
        seconds("progressDeadlineSeconds"),
        seconds("minReadySeconds").or(Some(0)),
    ) && deadline <= ready
    {
        let path = "spec.progressDeadlineSeconds";
        check.invalid(
            path,
            &json!(deadline),
            "must be greater than minReadySeconds",
        );
    }
}

fn stateful_set(check: &mut Check<'_>) {
    const MUTABLE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut fixed = spec.clone();
        if let Some(fields) = fixed.as_object_mut() {
            fields.retain(|name, _| !MUTABLE.contains(&name.as_str()));
        }
        fixed
    };
    if check
        .was("spec")
        .is_some_and(|old| fixed(old) != fixed(check.at("spec")))
    {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        check.push(FieldError::forbidden("spec", detail));
    }
}

/// Jobs run to an end: their pods do not restart always, and what they do does not change.
pub fn job(check: &mut Check<'_>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        check.at_least(
            &format!("spec.{field}"),
            check.at(&format!("spec.{field}")),
            0,
        );
    }
    if check.old.is_none() {
        pods::spec(check, "spec.template.spec", Restarts::NotAlways);
    }
    let mode = check.at("spec.completionMode");
    check.one_of("spec.completionMode", mode, &["NonIndexed", "Indexed"]);
    if mode == "Indexed" && check.at("spec.completions").is_null() {
        let detail = "when completion mode is Indexed";
        check.push(FieldError::required("spec.completions", detail));
    }
    for path in ["spec.selector", "spec.completionMode"] {
        check.immutable(path);
    }
    if mode != "Indexed" {
        check.immutable("spec.completions");
    }
    // While a job is suspended, where and how its pods will run may still be decided.
    let suspended = check
        .was("spec.suspend")
        .is_some_and(|suspend| *suspend == true);
    if !suspended {
        check.immutable("spec.template");
    }
}

/// Jobs by the clock.
pub fn cron_job(check: &mut Check<'_>) {
    let schedule = check.at("spec.schedule");
    if check.required("spec.schedule", schedule) {
        let text = schedule.as_str().unwrap_or_default();
        let fields: Vec<&str> = text.split_whitespace().collect();
        if !text.starts_with('@') && fields.len() != 5 {
            let detail = format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            );
            check.invalid("spec.schedule", schedule, &detail);
        }
    }
    let policy = check.at("spec.concurrencyPolicy");
    check.one_of(
        "spec.concurrencyPolicy",
        policy,
        &["Allow", "Forbid", "Replace"],
    );
    for field in [
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
        "startingDeadlineSeconds",
    ] {
        check.at_least(
            &format!("spec.{field}"),
            check.at(&format!("spec.{field}")),
            0,
        );
    }
    pods::spec(
        check,
        "spec.jobTemplate.spec.template.spec",
        Restarts::NotAlways,
    );
}

/// Autoscalers have a target and bounds that leave room.
pub fn autoscaler(check: &mut Check<'_>) {
    for field in ["kind", "name"] {
        let path = format!("spec.scaleTargetRef.{field}");
        check.required(&path, check.at(&path));
    }
    let (least, most) = (check.at("spec.minReplicas"), check.at("spec.maxReplicas"));
    check.at_least("spec.minReplicas", least, 1);
    if most.as_i64().is_some_and(|most| most < 1) {
        let detail = "must be set and greater than 0";
        check.push(FieldError::required("spec.maxReplicas", detail));
    }
    if let (Some(low), Some(high)) = (least.as_i64(), most.as_i64())
        && high < low
    {
        check.invalid(
            "spec.maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
}

/// Checks that a disruption budget sets only one of `minAvailable` and `maxUnavailable`.
pub fn disruption_budget(check: &mut Check<'_>) {
    let spec = check.at("spec");
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        check.invalid(
            "spec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    expressions(check, "spec.selector");
}
