//! Decides whether a cluster is available to a workload: whether it can take a new copy, or keep
//! the copy that it has.
//!
//! One rule for every part that relies on a cluster before something is given up elsewhere:
//! eviction, scheduling for an eviction, graceful eviction, application failover. A cluster that is
//! not known is not available. Whether it is *gone* is another question, which is not answered
//! here.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Taint, Toleration};
use muster_shared::names::condition;
use muster_shared::taints::{
    NO_EXECUTE, NO_SCHEDULE, PREFER_NO_EXECUTE, describe, is_drain, tolerates,
};

use super::Fleet;

/// Parts of a workload that decide in which clusters it may be.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// API version of its resource.
    pub api_version: &'a str,
    /// Kind of its resource.
    pub kind: &'a str,
    /// The tolerations of its placement; none where the placement is not known.
    pub tolerations: &'a [Toleration],
    /// Whether taints of effect `NoExecute` make it leave (gate `Failover`,
    /// `--enable-no-execute-taint-eviction`). That of `kubectl muster drain` always does.
    pub leaves_no_execute: bool,
    /// Whether taints of effect `PreferNoExecute` make it leave: its policy has `failover.cluster`.
    pub leaves_prefer_no_execute: bool,
}

impl<'a> Workload<'a> {
    /// Returns the workload of a binding with the placement that counts, where failover is on.
    pub fn of(spec: &'a ResourceBindingSpec, placement: Option<&'a Placement>) -> Self {
        Self {
            api_version: &spec.resource.api_version,
            kind: &spec.resource.kind,
            tolerations: placement.map_or(&[], |placement| &placement.cluster_tolerations),
            leaves_no_execute: true,
            leaves_prefer_no_execute: spec.cluster_failover().is_some(),
        }
    }

    /// Returns the workload as it is under these switches: the gate `Failover`, and
    /// `--enable-no-execute-taint-eviction`.
    #[must_use]
    pub fn under(self, failover: bool, no_execute: bool) -> Self {
        Self {
            leaves_no_execute: self.leaves_no_execute && failover && no_execute,
            leaves_prefer_no_execute: self.leaves_prefer_no_execute && failover,
            ..self
        }
    }
}

/// Reason why a cluster is not available. The texts complete the sentence "`<cluster>` ...".
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Unavailable<'a> {
    /// The cluster is not in the cache: it never existed, left the fleet, or cannot be read.
    #[error("is not known to the control plane")]
    Unknown,
    /// The cluster is being deleted.
    #[error("is being deleted")]
    Deleting,
    /// `Ready` is not True; `Unknown` also if it was never reported.
    #[error("has Ready={0}")]
    NotReady(&'a str),
    /// `WorksUpToDate` is False: the agent would not learn of a new copy. Existing copies continue
    /// to run.
    #[error("cannot read its Works (WorksUpToDate=False)")]
    WorksUnread,
    /// The agent could not apply the workload, and no copy of before is healthy there.
    #[error("could not apply it (Applied=False)")]
    Refused,
    /// A taint keeps the workload out, or evicts it.
    #[error("has taint {}, which is not tolerated", describe(.0))]
    Tainted(&'a Taint),
    /// The cluster does not serve the workload's kind.
    #[error("does not serve {api_version} {kind}")]
    KindNotServed {
        /// API version of the kind.
        api_version: &'a str,
        /// Name of the kind.
        kind: &'a str,
    },
}

/// Checks whether a cluster can take a new copy of a workload now: it is there and ready, reads its
/// Works, no taint keeps the workload out, and it serves the kind.
///
/// # Errors
/// The first reason why it cannot.
pub fn can_take<'a>(
    cluster: Option<&'a Cluster>,
    workload: &Workload<'a>,
) -> Result<(), Unavailable<'a>> {
    let cluster = is_live(cluster)?;
    if !reads_works(cluster) {
        return Err(Unavailable::WorksUnread);
    }
    admits(cluster, workload.tolerations)?;
    let Workload {
        api_version, kind, ..
    } = *workload;
    let mut groups = cluster
        .status
        .iter()
        .flat_map(|status| &status.api_enablements)
        .filter(|group| group.group_version == api_version);
    if groups.any(|group| group.resources.iter().any(|it| it.kind == kind)) {
        Ok(())
    } else {
        Err(Unavailable::KindNotServed { api_version, kind })
    }
}

/// Checks whether a cluster that has a copy of a workload would do as the only one: it is there and
/// ready, and no taint keeps the workload out. Kinds are not asked for: what a cluster has, it
/// serves, even when a report of kinds was cut short.
///
/// # Errors
/// The first reason why it would not.
pub fn can_replace<'a>(
    cluster: Option<&'a Cluster>,
    workload: &Workload<'a>,
) -> Result<(), Unavailable<'a>> {
    admits(is_live(cluster)?, workload.tolerations)
}

/// Checks whether a cluster can go on holding a copy that runs there: it is there and ready, and no
/// taint drives the workload out. A taint that only keeps new workloads away takes nothing from a
/// copy that is there.
///
/// # Errors
/// The first reason why it cannot.
pub fn can_hold<'a>(
    cluster: Option<&'a Cluster>,
    workload: &Workload<'a>,
) -> Result<(), Unavailable<'a>> {
    let cluster = is_live(cluster)?;
    let leaves = |taint: &&Taint| {
        let counts = match taint.effect.as_str() {
            NO_EXECUTE => workload.leaves_no_execute || is_drain(taint),
            PREFER_NO_EXECUTE => workload.leaves_prefer_no_execute,
            _ => false,
        };
        counts && drives_out(taint, workload.tolerations)
    };
    let taint = cluster.spec.taints.iter().find(leaves);
    taint.map_or(Ok(()), |taint| Err(Unavailable::Tainted(taint)))
}

/// Checks whether a cluster exists, is not being deleted, and is ready as far as the control plane
/// knows. Returns the cluster, or the reason why it is not.
///
/// # Errors
/// The first reason why it is not.
pub fn is_live(cluster: Option<&Cluster>) -> Result<&Cluster, Unavailable<'_>> {
    let cluster = cluster.ok_or(Unavailable::Unknown)?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(Unavailable::Deleting);
    }
    match readiness(cluster) {
        conditions::TRUE => Ok(cluster),
        other => Err(Unavailable::NotReady(other)),
    }
}

/// Returns whether a cluster is ready as far as the control plane knows, so that it can remove what
/// it has.
pub fn is_ready(fleet: &Fleet, cluster: &str) -> bool {
    let cluster = fleet.clusters.get(None, cluster);
    cluster.is_some_and(|cluster| readiness(&cluster) == conditions::TRUE)
}

/// Returns whether a cluster is ready as far as the control plane knows, and its agent reads its
/// Works, so that a copy that is ordered there will be made.
pub fn applies_works(fleet: &Fleet, cluster: &str) -> bool {
    let known = fleet.clusters.get(None, cluster);
    known.is_some_and(|it| readiness(&it) == conditions::TRUE && reads_works(&it))
}

/// Returns the status of the condition `Ready`; `Unknown` where the cluster never reported.
pub fn readiness(cluster: &Cluster) -> &str {
    let ready = cluster.condition_status(condition::READY);
    ready.unwrap_or(conditions::UNKNOWN)
}

/// Returns whether the agent of a cluster reads its Works. An agent that does not say counts as one
/// that does: only our own says so.
pub fn reads_works(cluster: &Cluster) -> bool {
    cluster.condition_status(condition::WORKS_UP_TO_DATE) != Some(conditions::FALSE)
}

/// Returns the condition by which a cluster needs attention although its API is healthy: its agent
/// cannot read its Works, so that nothing is placed there; it is another member's twin; or nobody
/// watches its lease.
pub fn concern(cluster: &Cluster) -> Option<&Condition> {
    [
        condition::WORKS_UP_TO_DATE,
        condition::UNIQUE_IDENTITY,
        condition::MONITORED,
    ]
    .iter()
    .filter_map(|kind| cluster.condition(kind))
    .find(|it| it.status == conditions::FALSE)
}

fn admits<'a>(cluster: &'a Cluster, tolerations: &[Toleration]) -> Result<(), Unavailable<'a>> {
    let taints = cluster.spec.taints.iter();
    let mut refusing = taints.filter(|taint| keeps_out(taint, tolerations));
    refusing
        .next()
        .map_or(Ok(()), |taint| Err(Unavailable::Tainted(taint)))
}

/// Returns whether a taint keeps a new workload with these tolerations out.
///
/// `PreferNoExecute` knows no tolerations (proposal "Optimize Cluster Failover"): it drives out
/// only what asked for it, and as it is stronger than `NoSchedule`, it lets nothing new in.
pub fn keeps_out(taint: &Taint, tolerations: &[Toleration]) -> bool {
    match taint.effect.as_str() {
        NO_SCHEDULE => !tolerations.iter().any(|it| tolerates(it, taint)),
        _ => drives_out(taint, tolerations),
    }
}

/// Returns whether a taint drives a workload with these tolerations out, now or when a toleration
/// for a limited time has run out. Such a toleration lets a workload stay for that time; it does
/// not let one in.
pub fn drives_out(taint: &Taint, tolerations: &[Toleration]) -> bool {
    match taint.effect.as_str() {
        NO_EXECUTE => !tolerations
            .iter()
            .any(|it| it.toleration_seconds.is_none() && tolerates(it, taint)),
        PREFER_NO_EXECUTE => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::only_condition;

    fn cluster(ready: Option<&str>, change: impl FnOnce(&mut Value)) -> Cluster {
        let mut cluster = json!({
            "metadata": {"name": "m1"},
            "spec": {},
            "status": {"apiEnablements": [
                {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            ]},
        });
        if let Some(ready) = ready {
            cluster["status"]["conditions"] = only_condition("Ready", ready);
        }
        change(&mut cluster);
        serde_json::from_value(cluster).unwrap()
    }

    fn tainted(effect: &str) -> Cluster {
        cluster(Some("True"), |it| {
            it["spec"]["taints"] = json!([{"key": "x", "effect": effect}]);
        })
    }

    fn workload(kind: &str, tolerations: &Value, failover: &Value) -> ResourceBindingSpec {
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": kind, "name": "web"},
            "placement": {"clusterTolerations": tolerations},
            "failover": failover,
        }))
        .unwrap()
    }

    /// Returns whether the cluster can take a new copy, whether it would do as the only one, and
    /// whether it can go on holding one.
    fn answers(cluster: Option<&Cluster>, spec: &ResourceBindingSpec) -> [bool; 3] {
        let workload = Workload::of(spec, spec.placement.as_deref());
        [
            can_take(cluster, &workload).is_ok(),
            can_replace(cluster, &workload).is_ok(),
            can_hold(cluster, &workload).is_ok(),
        ]
    }

    #[test]
    fn only_a_cluster_that_is_there_and_ready_is_available() {
        let web = workload("Deployment", &json!([]), &Value::Null);
        let leaving = cluster(Some("True"), |it| {
            it["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        });
        let as_it_is = |_: &mut Value| {};
        let silent = cluster(Some("Unknown"), as_it_is);
        for (what, cluster, expected) in [
            ("sound", Some(&cluster(Some("True"), as_it_is)), true),
            ("ill", Some(&cluster(Some("False"), as_it_is)), false),
            ("silent", Some(&silent), false),
            ("new", Some(&cluster(None, as_it_is)), false),
            ("leaving", Some(&leaving), false),
            ("not in the cache", None, false),
        ] {
            assert_eq!(answers(cluster, &web), [expected; 3], "{what}");
        }
    }

    #[test]
    fn a_member_that_cannot_read_its_works_takes_nothing_new_and_keeps_what_it_has() {
        let web = workload("Deployment", &json!([]), &Value::Null);
        for (works, expected) in [
            ("False", [false, true, true]),
            ("True", [true; 3]),
            ("Unknown", [true; 3]),
        ] {
            let member = cluster(Some("True"), |it| {
                let mut works_up_to_date = it["status"]["conditions"][0].clone();
                works_up_to_date["type"] = json!("WorksUpToDate");
                works_up_to_date["status"] = json!(works);
                let conditions = it["status"]["conditions"].as_array_mut().unwrap();
                conditions.push(works_up_to_date);
            });
            assert_eq!(answers(Some(&member), &web), expected, "{works}");
        }
    }

    #[test]
    fn taints_keep_out_or_drive_out_unless_they_are_tolerated_for_ever() {
        let asked = json!({"cluster": {}});
        let for_ever = json!([{"operator": "Exists"}]);
        let for_a_while = json!([{"operator": "Exists", "tolerationSeconds": 60}]);
        for (effect, tolerations, failover, expected) in [
            ("NoSchedule", json!([]), Value::Null, [false, false, true]),
            ("NoSchedule", for_ever.clone(), Value::Null, [true; 3]),
            ("NoExecute", json!([]), Value::Null, [false; 3]),
            ("NoExecute", for_a_while, Value::Null, [false; 3]),
            ("NoExecute", for_ever.clone(), Value::Null, [true; 3]),
            (
                "PreferNoExecute",
                for_ever.clone(),
                Value::Null,
                [false, false, true],
            ),
            ("PreferNoExecute", for_ever, asked, [false; 3]),
            ("Other", json!([]), Value::Null, [true; 3]),
        ] {
            let web = workload("Deployment", &tolerations, &failover);
            let got = answers(Some(&tainted(effect)), &web);
            assert_eq!(got, expected, "{effect} {tolerations} {failover}");
        }
    }

    #[test]
    fn a_new_copy_needs_its_kind_and_a_copy_that_is_there_does_not() {
        let sound = cluster(Some("True"), |_| {});
        let job = workload("Job", &json!([]), &Value::Null);
        assert_eq!(answers(Some(&sound), &job), [false, true, true]);
    }

    #[test]
    fn taints_that_move_nothing_take_nothing_from_a_copy_that_is_there() {
        let web = workload("Deployment", &json!([]), &Value::Null);
        let switched_off = Workload {
            leaves_no_execute: false,
            ..Workload::of(&web, web.placement.as_deref())
        };
        let drained = tainted("NoExecute");
        assert!(can_hold(Some(&drained), &switched_off).is_ok());
        assert!(can_take(Some(&drained), &switched_off).is_err());
    }

    #[test]
    fn a_refusal_says_why() {
        let web = workload("Job", &json!([]), &Value::Null);
        let workload = Workload::of(&web, web.placement.as_deref());
        let sound = cluster(Some("True"), |_| {});
        for (cluster, expected) in [
            (None, "is not known to the control plane"),
            (Some(&cluster(Some("Unknown"), |_| {})), "has Ready=Unknown"),
            (
                Some(&tainted("NoExecute")),
                "has taint x:NoExecute, which is not tolerated",
            ),
            (Some(&sound), "does not serve apps/v1 Job"),
        ] {
            let refused = can_take(cluster, &workload).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }

    #[test]
    fn a_taint_that_moves_nothing_under_the_switches_makes_no_workload_leave() {
        let asks = workload("Deployment", &json!([]), &json!({"cluster": {}}));
        let plain = workload("Deployment", &json!([]), &Value::Null);
        for (spec, failover, no_execute, by_no_execute, by_prefer_no_execute) in [
            (&asks, true, true, true, true),
            (&asks, true, false, false, true),
            (&asks, false, true, false, false),
            (&asks, false, false, false, false),
            (&plain, true, true, true, false),
            (&plain, false, true, false, false),
        ] {
            let workload = Workload::of(spec, None).under(failover, no_execute);
            let leaves = [
                workload.leaves_no_execute,
                workload.leaves_prefer_no_execute,
            ];
            let expected = [by_no_execute, by_prefer_no_execute];
            assert_eq!(leaves, expected, "{failover} {no_execute}");
        }
    }
}
