//! Validation of `failover.cluster.fencing` at admission.

use std::time::Duration;

use muster_shared::api::policy::{PropagationSpec, PurgeMode};

use super::problem::Findings;
use crate::fleet::fencing::needs_rule;

/// Names that one warning lists.
const MOST_NAMES: usize = 5;

/// Adds what is wrong with the fencing of a policy. `monitor_grace` is the time after which a
/// cluster counts as silent.
pub fn check(spec: &PropagationSpec, monitor_grace: Duration, found: &mut Findings) {
    let cluster = spec.cluster_failover();
    let Some(fencing) = cluster.and_then(|it| it.fencing.as_ref()) else {
        return;
    };
    let at = "spec.failover.cluster.fencing.afterSeconds";
    let value = fencing.after_seconds;
    let least = monitor_grace.as_secs_f64().ceil();
    if f64::from(value) < least {
        let detail = format!(
            "must be at least {least} (--cluster-monitor-grace-period): a cluster that is silent for less does not count as failed"
        );
        found.invalid(at, &value, &detail);
    }
    let why = "spec.failover.cluster.fencing: the old copy would run beside the new one";
    forbid_old_copies(spec, why, found);
}

/// Refuses what leaves old copies where they are, with the part of the policy that it does not go
/// with, and the reason.
pub fn forbid_old_copies(spec: &PropagationSpec, why: &str, found: &mut Findings) {
    let (cluster, application) = (spec.cluster_failover(), spec.application_failover());
    let of_cluster = cluster.and_then(|it| it.purge_mode.as_ref());
    let of_application = application.and_then(|it| it.purge_mode.as_ref());
    for (part, mode) in [("cluster", of_cluster), ("application", of_application)] {
        if mode == Some(&PurgeMode::Never) {
            let field = format!("spec.failover.{part}.purgeMode");
            found.invalid(field, &PurgeMode::Never, &format!("cannot be with {why}"));
        }
    }
    if spec.preserve_resources_on_deletion == Some(true) {
        let detail = format!("cannot be true with {why}");
        found.forbidden("spec.preserveResourcesOnDeletion", &detail);
    }
}

/// Returns warnings about copies that would not be fenced. `pushed` has the clusters of sync mode
/// Push that the policy may choose, and `has_rule` says whether the replicas of a kind are known.
pub fn advice(
    spec: &PropagationSpec,
    pushed: &[String],
    has_rule: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let cluster = spec.cluster_failover();
    if cluster.is_none_or(|cluster| cluster.fencing.is_none()) {
        return Vec::new();
    }
    let at = "spec.failover.cluster.fencing";
    let mut warnings = Vec::new();
    if !pushed.is_empty() {
        let more = if pushed.len() > MOST_NAMES {
            ", ..."
        } else {
            ""
        };
        let names = pushed[..pushed.len().min(MOST_NAMES)].join(", ");
        warnings.push(format!(
            "{at}: no agent could stop the copy in a cluster of sync mode Push; a workload that is placed there does not leave it before it \
             is ready: {names}{more}"
        ));
    }
    let unknown = spec.resource_selectors.iter().filter(|selector| {
        let (api_version, kind) = (&selector.api_version, &selector.kind);
        needs_rule(api_version, kind) && !has_rule(api_version, kind)
    });
    let unknown: Vec<_> = unknown
        .map(|selector| &*selector.kind)
        .take(MOST_NAMES)
        .collect();
    if !unknown.is_empty() {
        warnings.push(format!(
            "{at}: objects of a custom kind are fenced only if a rule returns their replicas (replicaResource of a \
             ResourceInterpreterCustomization, or a webhook); there is none for: {}",
            unknown.join(", ")
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde_json::{Value, json};

    use super::*;

    fn problems(failover: &Value, more: &Value) -> Vec<String> {
        let mut spec = json!({ "resourceSelectors": [], "failover": failover });
        merge::apply(&mut spec, more);
        let spec: PropagationSpec = serde_json::from_value(spec).unwrap();
        let mut found = Findings::default();
        check(&spec, Duration::from_secs(40), &mut found);
        found.problems.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn what_cannot_be_fenced_is_refused_by_the_name_of_the_field() {
        let after = "spec.failover.cluster.fencing.afterSeconds";
        for (seconds, expected) in [
            (-1, &[after][..]),
            (0, &[after]),
            (39, &[after]),
            (40, &[]),
            (86_400, &[]),
        ] {
            let failover = json!({ "cluster": { "fencing": { "afterSeconds": seconds } } });
            assert_eq!(problems(&failover, &json!({})), expected, "{seconds}");
        }
        let fencing = json!({ "afterSeconds": 60 });
        for (mode, expected) in [
            ("Directly", &[][..]),
            ("Gracefully", &[]),
            ("Never", &["spec.failover.cluster.purgeMode"]),
        ] {
            let failover = json!({ "cluster": { "fencing": fencing, "purgeMode": mode } });
            assert_eq!(problems(&failover, &json!({})), expected, "{mode}");
        }
        let failover =
            json!({ "cluster": { "fencing": fencing }, "application": { "purgeMode": "Never" } });
        assert_eq!(
            problems(&failover, &json!({})),
            ["spec.failover.application.purgeMode"]
        );
        let failover = json!({ "cluster": { "fencing": fencing } });
        let kept = json!({ "preserveResourcesOnDeletion": true });
        assert_eq!(
            problems(&failover, &kept),
            ["spec.preserveResourcesOnDeletion"]
        );
        assert!(problems(&json!({ "cluster": { "purgeMode": "Never" } }), &kept).is_empty());
    }

    #[test]
    fn who_asks_for_fencing_is_reported_where_there_would_be_none() {
        let spec = |kind: &str, fencing: Value| -> PropagationSpec {
            serde_json::from_value(json!({
                "resourceSelectors": [{ "apiVersion": "example.com/v1", "kind": kind }],
                "failover": { "cluster": { "fencing": fencing } },
            }))
            .unwrap()
        };
        let asks = json!({ "afterSeconds": 60 });
        let names: Vec<_> = (0..7).map(|n| format!("m{n}")).collect();
        for (what, kind, fencing, pushed, expected) in [
            ("sound", "Known", &asks, &[][..], &[][..]),
            (
                "a push cluster",
                "Known",
                &asks,
                &names[..1],
                &["is ready: m0"],
            ),
            ("many", "Known", &asks, &names, &["m0, m1, m2, m3, m4, ..."]),
            ("no rule", "Other", &asks, &[], &["none for: Other"]),
            ("nobody asks", "Other", &Value::Null, &names, &[]),
        ] {
            let found = advice(&spec(kind, fencing.clone()), pushed, |_, kind| {
                kind == "Known"
            });
            assert_eq!(found.len(), expected.len(), "{what}: {found:?}");
            for (warning, part) in found.iter().zip(expected) {
                assert!(warning.ends_with(part), "{what}: {warning}");
            }
        }
    }
}
