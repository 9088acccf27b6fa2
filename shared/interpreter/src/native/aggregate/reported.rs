//! What the health rules of other tools read of a template's status, and no sum of counters says.
//!
//! Argo CD and Flux judge what they have applied to the fleet API by its status. Karmada leaves out
//! what only controllers of a cluster write: to Flux (kstatus) no Deployment is ever ready, to Argo
//! CD no suspended Job and no PodDisruptionBudget is, and what runs nowhere may be called healthy.

use jiff::Timestamp;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceHealth};
use muster_shared::names::label;
use muster_shared::work_status::REPLICAS_LEFT;
use serde_json::{Map, Value, json};

use super::super::kind::Kind;
use super::batch::holds;
use crate::read::field;

/// Returns the wanted status of a template, as the native rules aggregate it, with what health
/// rules read besides. `members` are all clusters that are to have it or still do.
///
/// Conditions of a Deployment of other types stay. Times stay where nothing changed, so that a
/// status which is as it was is equal to the stored one.
pub fn reported_status(
    template: &Value,
    wanted: Value,
    members: &[AggregatedStatusItem],
    now: Timestamp,
) -> Value {
    let Value::Object(mut wanted) = wanted else {
        return wanted;
    };
    match Kind::of(template) {
        Some(Kind::Deployment) => {
            for one in deployment(template, &wanted, members) {
                put(template, &mut wanted, &one, now);
            }
        }
        // That nothing is to be scheduled where nothing is placed is no observation: with it a
        // DaemonSet that runs nowhere would be complete.
        Some(Kind::DaemonSet) if members.is_empty() => {
            wanted.remove("observedGeneration");
        }
        // Of a cluster that reports nothing it is not known.
        Some(Kind::PersistentVolumeClaim)
            if wanted.get("phase").is_some_and(|it| it == "Bound")
                && (members.is_empty() || is_partly_unknown(members)) =>
        {
            wanted.insert("phase".to_owned(), json!("Pending"));
        }
        Some(Kind::PodDisruptionBudget) if !members.is_empty() => {
            let one = budget(&wanted);
            put(template, &mut wanted, &one, now);
        }
        // Only that it is suspended is ever said: Argo CD takes one that is not for healthy while
        // it runs.
        Some(Kind::Job) if is_suspended(template, members) => {
            let message = "Job suspended";
            let one = Observed::new("Suspended", true, "JobSuspended", message);
            put(template, &mut wanted, &one, now);
        }
        _ => {}
    }
    Value::Object(wanted)
}

/// A condition without its times.
struct Observed {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: &'static str,
}

impl Observed {
    fn new(kind: &'static str, holds: bool, reason: &'static str, message: &'static str) -> Self {
        Self {
            kind,
            holds,
            reason,
            message,
        }
    }
}

/// Returns the conditions that the controller of Deployments writes, by the sums over all clusters.
///
/// Where members scale it, the number of the template says nothing: all replicas that they want are
/// there if every copy is healthy.
fn deployment(
    template: &Value,
    status: &Map<String, Value>,
    members: &[AggregatedStatusItem],
) -> [Observed; 2] {
    let sum = |key: &str| status.get(key).and_then(Value::as_i64).unwrap_or(0);
    let is_observed = sum("observedGeneration") >= number(template, &["metadata", "generation"]);
    let (all, updated) = (sum("replicas"), sum("updatedReplicas"));
    let available = sum("availableReplicas");
    let is_scaled = is_scaled_by(members, template);
    let is_healthy = |it: &AggregatedStatusItem| it.health == Some(ResourceHealth::Healthy);
    let is_well = !is_scaled || members.iter().all(is_healthy);
    let replicas = if is_scaled {
        // Beside them, a rolling update has those of the other revision.
        updated.max(all.saturating_sub(updated))
    } else {
        field(template, &["spec", "replicas"])
            .and_then(Value::as_i64)
            .unwrap_or(1)
    };
    let is_complete =
        is_observed && is_well && all >= replicas && updated == all && available == all;
    let progressing = if is_complete {
        let message = "every cluster has the replicas that it is to have, and they are available";
        Observed::new("Progressing", true, "NewReplicaSetAvailable", message)
    } else {
        let message = "not every cluster has the replicas that it is to have";
        Observed::new("Progressing", true, "ReplicaSetUpdated", message)
    };
    let least = replicas.saturating_sub(most_unavailable(template, replicas));
    let is_available = available >= least && (replicas > 0 || is_well);
    let available = if is_available {
        let message = "the clusters together have minimum availability";
        Observed::new("Available", true, "MinimumReplicasAvailable", message)
    } else {
        let message = "the clusters together do not have minimum availability";
        Observed::new("Available", false, "MinimumReplicasUnavailable", message)
    };
    [progressing, available]
}

/// Returns whether members decide on the number of replicas: by the label of the template, or since
/// somebody there has scaled a copy.
fn is_scaled_by(members: &[AggregatedStatusItem], template: &Value) -> bool {
    let is_left = |it: &AggregatedStatusItem| {
        let status = it.status.as_ref();
        status.is_some_and(|it| it.0.get(REPLICAS_LEFT).is_some())
    };
    let is_labelled = template["metadata"]["labels"][label::RETAIN_REPLICAS] == "true";
    !members.is_empty() && (is_labelled || members.iter().any(is_left))
}

/// Returns the replicas that a rolling update may take away (a quarter if the template does not
/// say), as the controller of Deployments counts them: one at least where it may add none either.
fn most_unavailable(template: &Value, replicas: i64) -> i64 {
    let strategy = |path: &[&str]| {
        let path: Vec<&str> = ["spec", "strategy"].iter().chain(path).copied().collect();
        field(template, &path)
    };
    if strategy(&["type"]).is_some_and(|it| it == "Recreate") {
        return 0;
    }
    // In hundredths of a replica.
    let share = |of: &str| match strategy(&["rollingUpdate", of]) {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(0).saturating_mul(100),
        Some(Value::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|it| it.parse().ok());
            replicas.saturating_mul(percent.unwrap_or(0))
        }
        _ => replicas.saturating_mul(25),
    };
    let most = share("maxUnavailable") / 100;
    let most = if most == 0 && share("maxSurge") <= 0 {
        1
    } else {
        most
    };
    most.clamp(0, replicas.max(0))
}

fn budget(status: &Map<String, Value>) -> Observed {
    let allowed = status.get("disruptionsAllowed").and_then(Value::as_i64);
    if allowed.unwrap_or(0) > 0 {
        Observed::new("DisruptionAllowed", true, "SufficientPods", "")
    } else {
        Observed::new("DisruptionAllowed", false, "InsufficientPods", "")
    }
}

fn is_suspended(template: &Value, members: &[AggregatedStatusItem]) -> bool {
    let reports = |member: &AggregatedStatusItem| {
        let status = member.status.as_ref();
        let conditions = status.and_then(|it| field(&it.0, &["conditions"]));
        let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.any(|condition| holds(condition, "Suspended"))
    };
    field(template, &["spec", "suspend"]).is_some_and(|it| it == true)
        && !members.is_empty()
        && members.iter().all(reports)
}

fn is_partly_unknown(members: &[AggregatedStatusItem]) -> bool {
    let is_unknown = |it: &AggregatedStatusItem| it.status.as_ref().is_none_or(|it| it.0.is_null());
    members.iter().any(is_unknown)
}

fn number(object: &Value, path: &[&str]) -> i64 {
    field(object, path).and_then(Value::as_i64).unwrap_or(0)
}

/// Puts a condition among those that are wanted, with the stored times as far as they are its own.
fn put(template: &Value, wanted: &mut Map<String, Value>, one: &Observed, now: Timestamp) {
    let stored = field(template, &["status", "conditions"]).and_then(Value::as_array);
    let stored = stored.into_iter().flatten();
    let stored = stored.into_iter().find(|it| it["type"] == one.kind);
    let status = if one.holds { "True" } else { "False" };
    let now = now.to_string();
    let mut condition = json!({
        "type": one.kind, "status": status, "reason": one.reason, "message": one.message,
        "lastTransitionTime": now,
    });
    // Where its kind has such a time: of the last change of any part.
    let updated = match one.kind {
        "Progressing" | "Available" => Some("lastUpdateTime"),
        "Suspended" => Some("lastProbeTime"),
        _ => None,
    };
    if let Some(key) = updated {
        condition[key] = json!(now);
    }
    if let Some(stored) = stored {
        let keep = |condition: &mut Value, key: &str| {
            if stored[key].is_string() {
                condition[key] = stored[key].clone();
            }
        };
        let is_same = |key: &str| stored[key] == condition[key];
        let (same_status, all) = (is_same("status"), ["status", "reason", "message"]);
        let same = all.into_iter().all(is_same);
        if same_status {
            keep(&mut condition, "lastTransitionTime");
        }
        if let Some(key) = updated.filter(|_| same) {
            keep(&mut condition, key);
        }
    }
    let conditions = wanted
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|it| it["type"] == one.kind) {
        Some(held) => *held = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::RawExtension;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns what is reported of a template in clusters that report this, as it is stored then.
    fn reported(template: &Value, wanted: Value, reports: &[Value], second: i64) -> Value {
        let members: Vec<_> = reports
            .iter()
            .map(|status| AggregatedStatusItem {
                status: Some(RawExtension(status.clone())),
                ..AggregatedStatusItem::default()
            })
            .collect();
        reported_status(template, wanted, &members, at(second))
    }

    fn conditions(status: &Value) -> String {
        let all = status["conditions"].as_array().into_iter().flatten();
        let all = all.map(|it| {
            let text = |key: &str| it[key].as_str().unwrap();
            format!("{}={} {}", text("type"), text("status"), text("reason"))
        });
        all.collect::<Vec<_>>().join(", ")
    }

    fn deployment(spec: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 2}, "spec": spec,
        })
    }

    fn counters(observed: i64, [all, updated, available]: [i64; 3]) -> Value {
        json!({
            "observedGeneration": observed, "replicas": all, "updatedReplicas": updated,
            "availableReplicas": available,
        })
    }

    #[test]
    fn a_deployment_is_complete_and_available_as_its_own_controller_would_say() {
        let four = json!({"replicas": 4});
        let strict = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}});
        let half = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
        let slow = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}}});
        let anew = json!({"replicas": 4, "strategy": {"type": "Recreate"}});
        let no_replicas = json!({"replicas": 0});
        let nothing = json!({"observedGeneration": 2});
        let of = |counts| counters(2, counts);
        let (complete, going) = ("NewReplicaSetAvailable", "ReplicaSetUpdated");
        for (what, spec, status, reason, is_available) in [
            ("well", &four, of([4, 4, 4]), complete, true),
            ("edited", &four, counters(1, [4, 4, 4]), going, true),
            ("rolled out", &four, of([4, 3, 4]), going, true),
            ("one is not available", &four, of([4, 4, 3]), going, true),
            ("two are not", &four, of([4, 4, 2]), going, false),
            ("none may be missing", &strict, of([4, 4, 3]), going, false),
            ("half may", &half, of([4, 4, 2]), going, true),
            ("one at a time", &slow, of([4, 4, 3]), going, true),
            ("all at once", &anew, of([4, 4, 3]), going, false),
            ("nowhere", &four, nothing.clone(), going, false),
            ("in each of two", &four, of([8, 8, 8]), complete, true),
            ("too few", &four, of([2, 2, 2]), going, false),
            ("none are wanted", &no_replicas, nothing, complete, true),
        ] {
            let status = reported(&deployment(spec), status, &[], 5);
            let available = if is_available {
                "Available=True MinimumReplicasAvailable"
            } else {
                "Available=False MinimumReplicasUnavailable"
            };
            let expected = format!("Progressing=True {reason}, {available}");
            assert_eq!(conditions(&status), expected, "{what}");
        }
    }

    #[test]
    fn a_deployment_that_members_scale_is_judged_by_what_they_want() {
        use ResourceHealth::{Healthy, Unhealthy};
        let label = json!({"resourcetemplate.karmada.io/retain-replicas": "true"});
        let (none, hpa) = (json!({}), json!({"replicasLeftToAutoscaler": "hpa"}));
        let (nobody, by_label, by_hpa) = ((&none, &none), (&label, &none), (&none, &hpa));
        let (complete, going) = ("NewReplicaSetAvailable", "ReplicaSetUpdated");
        for (what, (labels, report), health, counts, reason, is_available) in [
            ("by nobody", nobody, Healthy, [2; 3], going, false),
            ("by a label", by_label, Healthy, [2; 3], complete, true),
            ("down", by_hpa, Healthy, [2; 3], complete, true),
            ("to zero", by_hpa, Healthy, [0; 3], complete, true),
            ("and updated", by_hpa, Unhealthy, [3, 1, 2], going, true),
            ("and not whole", by_hpa, Unhealthy, [2; 3], going, true),
            ("and not there", by_hpa, Unhealthy, [0; 3], going, false),
        ] {
            let mut template = deployment(&json!({"replicas": 4}));
            template["metadata"]["labels"] = labels.clone();
            let member = AggregatedStatusItem {
                status: Some(RawExtension(report.clone())),
                health: Some(health),
                ..AggregatedStatusItem::default()
            };
            let status = reported_status(&template, counters(2, counts), &[member], at(5));
            let said = conditions(&status);
            let (progressing, available) = said.split_once(", ").unwrap();
            assert_eq!(progressing, format!("Progressing=True {reason}"), "{what}");
            assert_eq!(available.contains("=True"), is_available, "{what}");
        }
    }

    #[test]
    fn a_status_that_is_stored_is_reported_again_as_it_is_and_its_times_are_those_of_the_changes() {
        let mut template = deployment(&json!({"replicas": 2}));
        let aggregated = |template: &Value, counters: Value| {
            let mut wanted = counters;
            if let Some(held) = template["status"].get("conditions") {
                wanted["conditions"] = held.clone();
            }
            wanted
        };
        let well = counters(2, [2, 2, 2]);
        let wanted = aggregated(&template, well.clone());
        let first = reported(&template, wanted, &[], 10);
        template["status"] = first.clone();
        let wanted = aggregated(&template, well);
        assert_eq!(reported(&template, wanted, &[], 20), first);

        let wanted = aggregated(&template, counters(2, [2, 2, 0]));
        let lost = reported(&template, wanted, &[], 30);
        let times = |it: usize| {
            let time = |key: &str| lost["conditions"][it][key].as_str().unwrap().to_owned();
            (time("lastTransitionTime"), time("lastUpdateTime"))
        };
        let said = |transition, update| (at(transition).to_string(), at(update).to_string());
        assert_eq!(times(0), said(10, 30), "it is still Progressing=True");
        assert_eq!(times(1), said(30, 30));
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut template = deployment(&json!({"replicas": 1}));
        let other = json!({"type": "Audited", "status": "True", "reason": "Ours", "message": ""});
        template["status"] = json!({"conditions": [other]});
        let mut wanted = counters(2, [1, 1, 1]);
        wanted["conditions"] = template["status"]["conditions"].clone();
        let status = reported(&template, wanted, &[], 5);
        assert!(conditions(&status).starts_with("Audited=True Ours, Progressing=True"));
    }

    #[test]
    fn what_is_nowhere_or_not_known_is_not_complete() {
        let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet"});
        let seen = json!({"observedGeneration": 1, "numberReady": 0});
        assert_eq!(
            reported(&daemons, seen.clone(), &[], 5),
            json!({"numberReady": 0})
        );
        assert_eq!(
            reported(&daemons, seen.clone(), std::slice::from_ref(&seen), 5),
            seen
        );

        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim"});
        let phase = |phase: &str| json!({"phase": phase});
        let bound = [phase("Bound")];
        for (wanted, reports, expected) in [
            ("Bound", &bound[..], "Bound"),
            ("Bound", &[], "Pending"),
            ("Bound", &[Value::Null], "Pending"),
            ("Lost", &[Value::Null], "Lost"),
        ] {
            let status = reported(&claim, phase(wanted), reports, 5);
            assert_eq!(status, phase(expected), "{wanted} {reports:?}");
        }
    }

    #[test]
    fn a_budget_says_whether_it_allows_a_disruption() {
        let template = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"generation": 3},
        });
        for (allowed, expected) in [
            (0, "DisruptionAllowed=False InsufficientPods"),
            (2, "DisruptionAllowed=True SufficientPods"),
        ] {
            let wanted = json!({"disruptionsAllowed": allowed});
            let status = reported(&template, wanted.clone(), std::slice::from_ref(&wanted), 5);
            assert_eq!(conditions(&status), expected);
            assert_eq!(reported(&template, wanted.clone(), &[], 5), wanted);
        }
    }

    #[test]
    fn a_job_is_suspended_when_it_is_to_be_and_all_clusters_say_so_and_never_says_the_opposite() {
        let suspended = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
        let running = json!({"active": 1});
        for (suspend, reports, is_said) in [
            (true, vec![suspended.clone()], true),
            (true, vec![suspended.clone(), running.clone()], false),
            (true, vec![], false),
            (false, vec![suspended.clone()], false),
            (false, vec![running], false),
        ] {
            let template = json!({
                "apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": suspend},
            });
            let status = reported(&template, json!({}), &reports, 5);
            let expected = if is_said {
                "Suspended=True JobSuspended"
            } else {
                ""
            };
            assert_eq!(conditions(&status), expected, "{suspend} {reports:?}");
        }
    }
}
