//! Rate of its own at which a drained cluster is left (`kubectl muster drain --rate`).
//!
//! The rate is in an annotation of the Cluster, so that it outlives the command and the control
//! plane. It slows a drain down; the rate of the fleet holds in any case.

use muster_shared::api::cluster::Cluster;
use muster_shared::names::annotation::DRAIN_RATE;
use muster_shared::taints::is_drain;

use super::fleet_view::effective_taints;
use super::judge::Switches;

/// Highest rate that can be stated, in evictions per second: far beyond what an API server bears.
const HIGHEST: f64 = 10_000.0;

/// A rate that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{DRAIN_RATE} is {0:?}: write evictions per second, more than 0 and at most {HIGHEST}, such as 0.2"
)]
pub struct NoRate(String);

/// Reads a rate, in evictions per second.
///
/// # Errors
/// The text is no number, or one that cannot be a rate.
pub fn parse(text: &str) -> Result<f64, NoRate> {
    let rate = text.trim().parse::<f64>().ok();
    rate.filter(|rate| *rate > 0.0 && *rate <= HIGHEST)
        .ok_or_else(|| NoRate(text.chars().take(64).collect()))
}

/// Returns the rate at which workloads may leave a cluster, `None` if only that of the fleet
/// counts: without an annotation, without a drain, and where another taint drives workloads out as
/// well (a drained cluster that fails is left as fast as any other).
///
/// # Errors
/// The annotation cannot be read. Nothing should be evicted then: a typing error must not make a
/// slow drain a fast one.
pub fn rate(cluster: &Cluster, switches: &Switches) -> Result<Option<f64>, NoRate> {
    let annotations = cluster.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(DRAIN_RATE)) else {
        return Ok(None);
    };
    let taints = effective_taints(cluster);
    let mut counted = taints.iter().filter(|taint| switches.counts(taint));
    if !taints.iter().any(is_drain) || !counted.all(is_drain) {
        return Ok(None);
    }
    parse(text).map(Some)
}

#[cfg(test)]
mod tests {
    use muster_shared::api::policy::PurgeMode;
    use serde_json::json;

    use super::*;
    use crate::clusters::taint::default_tolerations::DefaultTolerations;

    #[test]
    fn a_rate_is_a_positive_number_of_evictions_per_second() {
        for (text, expected) in [
            ("0.2", Some(0.2)),
            (" 5 ", Some(5.0)),
            ("1e-3", Some(0.001)),
            ("0", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("10001", None),
            ("1/s", None),
            ("", None),
        ] {
            let read = parse(text);
            assert_eq!(read.clone().ok(), expected, "{text:?}");
            if let Err(error) = read {
                assert!(error.to_string().contains(text), "{error}");
            }
        }
    }

    #[test]
    fn the_rate_holds_while_the_drain_is_the_only_reason_to_leave() {
        let drain = json!({"key": "failover.muster.io/drain", "effect": "NoExecute"});
        let cordon = json!({"key": "failover.muster.io/drain", "effect": "NoSchedule"});
        let failed = json!({"key": "failed", "effect": "NoExecute"});
        let preferred = json!({"key": "failed", "effect": "PreferNoExecute"});
        for (taints, failover, rate_text, expected) in [
            (json!([drain]), true, Some("0.5"), Ok(Some(0.5))),
            (json!([drain, cordon]), false, Some("0.5"), Ok(Some(0.5))),
            (json!([drain]), true, None, Ok(None)),
            (json!([drain, failed]), true, Some("0.5"), Ok(None)),
            (json!([drain, preferred]), true, Some("0.5"), Ok(None)),
            // The gate keeps that one from moving anything.
            (json!([drain, failed]), false, Some("0.5"), Ok(Some(0.5))),
            (json!([cordon]), true, Some("0.5"), Ok(None)),
            (json!([]), true, Some("fast"), Ok(None)),
            (
                json!([drain]),
                true,
                Some("fast"),
                Err(NoRate("fast".into())),
            ),
        ] {
            let annotations = rate_text.map(|text| json!({ DRAIN_RATE: text }));
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": {"name": "m1", "annotations": annotations},
                "spec": {"syncMode": "Pull", "taints": taints},
            }))
            .unwrap();
            let switches = Switches {
                failover,
                no_execute: true,
                purge_mode: PurgeMode::Gracefully,
                tolerations: DefaultTolerations::default(),
            };
            assert_eq!(rate(&cluster, &switches), expected, "{taints} {failover}");
        }
    }
}
