//! Aggregates Pods and volumes: one phase for the whole fleet.

use muster_shared::api::binding::AggregatedStatusItem;
use serde_json::{Map, Value, json};

use super::{Collected, Error};
use crate::read::{field, list, text};

/// Phases of a Pod, the one that matters most first.
const POD_PHASES: &[&str] = &["Failed", "Pending", "Running", "Succeeded"];
/// Phases of a PersistentVolume, the one that matters most first.
const VOLUME_PHASES: &[&str] = &["Failed", "Pending", "Available", "Bound", "Released"];
/// What of a container's status is shown on the template. Karmada keeps only readiness and state,
/// which leaves containers without names.
const CONTAINER: &[&str] = &["name", "image", "imageID", "ready", "restartCount", "state"];

pub(super) fn pod(
    template: &Value,
    members: &[AggregatedStatusItem],
    collected: &[Collected<'_>],
) -> Result<Option<Value>, Error> {
    if members.is_empty() {
        return Ok(None);
    }
    let mut status = phased(template, "qosClass", POD_PHASES, members, collected)?;
    for key in ["containerStatuses", "initContainerStatuses"] {
        let mut containers = Vec::new();
        for member in collected {
            for container in member.blame(list(member.status, &[key]))? {
                let kept: Map<String, Value> = CONTAINER
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), field(container, &[key])?.clone())))
                    .collect();
                containers.push(Value::Object(kept));
            }
        }
        if !containers.is_empty() {
            status.insert(key.to_owned(), Value::Array(containers));
        }
    }
    Ok(Some(Value::Object(status)))
}

/// Returns the wanted status of a Pod without the containers that an API server does not let run
/// again: one that has ended and is not restarted runs no more, and the Pod of another
/// cluster has containers of the same names. Once such a name is left out, it is free again.
pub(super) fn accepted_pod(template: &Value, mut wanted: Map<String, Value>) -> Map<String, Value> {
    let policy = template["spec"]["restartPolicy"].as_str();
    if policy.is_none_or(|it| it == "Always") {
        return wanted;
    }
    let has_ended = |container: &Value| {
        let end = &container["state"]["terminated"];
        end.is_object() && (policy != Some("OnFailure") || end["exitCode"] == 0)
    };
    for key in ["containerStatuses", "initContainerStatuses"] {
        let held = template["status"][key].as_array();
        let ended: Vec<&Value> = held
            .into_iter()
            .flatten()
            .filter(|it| has_ended(it))
            .collect();
        let is_refused = |container: &Value| {
            container["state"]["terminated"].is_null()
                && ended.iter().any(|it| it["name"] == container["name"])
        };
        if let Some(list) = wanted.get_mut(key).and_then(Value::as_array_mut) {
            list.retain(|it| !is_refused(it));
        }
    }
    wanted
}

pub(super) fn volume(
    template: &Value,
    members: &[AggregatedStatusItem],
    collected: &[Collected<'_>],
) -> Result<Option<Value>, Error> {
    if members.is_empty() {
        return Ok(None);
    }
    let kept = "lastPhaseTransitionTime";
    let status = phased(template, kept, VOLUME_PHASES, members, collected)?;
    Ok(Some(Value::Object(status)))
}

/// Returns the phase of a claim: Bound when all are; a lost claim outweighs all else, then the last
/// one that is not bound.
pub(super) fn claim(collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut phase = "Bound";
    for member in collected {
        let one = member
            .blame(text(member.status, &["phase"]))?
            .unwrap_or_default();
        if one != "Bound" {
            phase = one;
        }
        if one == "Lost" {
            break;
        }
    }
    Ok(Some(if phase.is_empty() {
        json!({})
    } else {
        json!({ "phase": phase })
    }))
}

/// Returns the status with the first phase of `ranking` that some member is in, a member without a
/// status counting as Pending. The field `kept` of the stored status stays: the API server keeps it
/// by itself, and taking it away would be tried for ever.
fn phased(
    template: &Value,
    kept: &str,
    ranking: &[&'static str],
    members: &[AggregatedStatusItem],
    collected: &[Collected<'_>],
) -> Result<Map<String, Value>, Error> {
    let mut present = Vec::new();
    if collected.len() < members.len() {
        present.push("Pending");
    }
    for member in collected {
        present.extend(member.blame(text(member.status, &["phase"]))?);
    }
    let mut status = Map::new();
    if let Some(value) = field(template, &["status", kept]) {
        status.insert(kept.to_owned(), value.clone());
    }
    let mut ranking = ranking.iter().copied();
    if let Some(phase) = ranking.find(|phase| present.contains(phase)) {
        status.insert("phase".to_owned(), phase.into());
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::super::acceptable_status;
    use super::*;

    #[test]
    fn a_container_that_has_ended_and_is_not_restarted_is_not_said_to_run() {
        let ended = |code: i64| json!({"name": "c", "state": {"terminated": {"exitCode": code}}});
        let runs = json!({"name": "c", "state": {"running": {}}});
        // The Pod left a cluster in which it had ended, and runs in another one.
        for (policy, held, said) in [
            ("Never", ended(1), false),
            ("Never", runs.clone(), true),
            ("OnFailure", ended(0), false),
            ("OnFailure", ended(1), true),
            ("Always", ended(1), true),
        ] {
            let template = json!({
                "apiVersion": "v1", "kind": "Pod", "spec": {"restartPolicy": policy},
                "status": {"phase": "Failed", "containerStatuses": [held]},
            });
            let wanted = json!({"phase": "Running", "containerStatuses": [runs]});
            let now = jiff::Timestamp::UNIX_EPOCH;
            let status = acceptable_status(&template, wanted, now);
            let all = status["containerStatuses"].as_array();
            let is_said = all.into_iter().flatten().any(|it| *it == runs);
            assert_eq!(is_said, said, "{policy} {held}");
            assert_eq!(status["phase"], "Running");
        }
    }
}
