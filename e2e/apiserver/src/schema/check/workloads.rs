//! Workloads: their selectors and templates fit together, and what may not change does not.

use serde_json::Value;

use super::Check;
use super::pods;
use crate::catalog::Kind;
use crate::wire::field_error::FieldError;
use crate::wire::selectors::Selector;

/// Checks a workload that runs for ever.
pub fn apps(check: &mut Check<'_>, kind: &Kind) {
    if kind.kind == "StatefulSet" {
        stateful_set(check);
    } else {
        check.immutable("spec.selector");
    }
    check.at_least(
        0,
        &[
            "spec.replicas",
            "spec.minReadySeconds",
            "spec.revisionHistoryLimit",
        ],
    );
    selector(check, &kind.kind.to_lowercase());
    pods::spec(check, "spec.template.spec", &["Always"]);
    if kind.kind == "Deployment" {
        strategy(check);
    }
}

/// Checks that every pod that the template makes is selected; otherwise the workload would make
/// pods for ever.
fn selector(check: &mut Check<'_>, kind: &str) {
    let selector = check.at("spec.selector");
    if selector.is_null() {
        check.push(FieldError::required("spec.selector", ""));
        return;
    }
    let read = Selector::read(selector);
    if read.is_empty() {
        let detail = format!("empty selector is invalid for {kind}");
        check.invalid("spec.selector", selector, &detail);
        return;
    }
    check.selector("spec.selector", selector);
    let labels = &check.at("spec.template")["metadata"]["labels"];
    if !read.selects(labels) {
        let detail = "`selector` does not match template `labels`";
        check.invalid("spec.template.metadata.labels", labels, detail);
    }
}

fn strategy(check: &mut Check<'_>) {
    let strategy = check.at("spec.strategy");
    let kinds = ["Recreate", "RollingUpdate"];
    check.one_of("spec.strategy.type", &strategy["type"], &kinds);
    let rolling = &strategy["rollingUpdate"];
    if strategy["type"] == "Recreate" && rolling.is_object() {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        check.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
    }
    let zero = |value: &Value| *value == 0 || *value == "0%";
    if rolling.is_object() && zero(&rolling["maxUnavailable"]) && zero(&rolling["maxSurge"]) {
        let path = "spec.strategy.rollingUpdate.maxUnavailable";
        let detail = "may not be 0 when `maxSurge` is 0";
        check.invalid(path, &rolling["maxUnavailable"], detail);
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
