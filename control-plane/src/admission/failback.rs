//! Validation of `failover.cluster.failback` at admission: what its schema does not refuse.

use muster_shared::api::policy::PropagationSpec;

use super::problem::Findings;
use crate::settings::failback_times::faults;

/// Adds what is wrong with the failback of a policy.
pub fn check(spec: &PropagationSpec, found: &mut Findings) {
    let cluster = spec.cluster_failover();
    let window = cluster.and_then(|it| it.failback.as_ref()?.window.as_ref());
    for (field, value, detail) in window.into_iter().flat_map(faults) {
        let at = format!("spec.failover.cluster.failback.window.{field}");
        found.invalid(at, &value, detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(failback: &Value) -> Vec<String> {
        let spec = json!({
            "resourceSelectors": [], "failover": {"cluster": {"failback": failback}},
        });
        let mut found = Findings::default();
        check(&serde_json::from_value(spec).unwrap(), &mut found);
        found.problems.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn what_a_failback_says_has_to_be_readable() {
        let window = |start: &str, day: &str, zone: &str| {
            json!({"mode": "WhenHealthy", "window": {
                "days": [day], "start": start, "end": "04:00", "timeZone": zone,
            }})
        };
        for (failback, expected) in [
            (Value::Null, None),
            (json!({"mode": "Never"}), None),
            (json!({"mode": "WhenHealthy", "afterSeconds": 1}), None),
            (window("22:00", "Friday", "Europe/Berlin"), None),
            (window("22", "Friday", "UTC"), Some("failback.window.start")),
            (window("22:00", "Fri", "UTC"), Some("failback.window.days")),
            (
                window("22:00", "Friday", "Mars/Base"),
                Some("failback.window.timeZone"),
            ),
        ] {
            let found = problems(&failback);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            if let Some(field) = expected {
                let field = format!("spec.failover.cluster.{field}");
                assert_eq!(found[0], field);
            }
        }
    }
}
