//! Compares an object in the member with its desired state. Pure.

use muster_interpreter::{Interpreters, Operation};
use muster_shared::merge::object_in;
use serde_json::Value;

use super::grown::with_grown;
use super::pods::with_admitted;
use super::queued::with_queued;
use super::scaled::{with_note, with_start, without_scaled};
use crate::work::ownership;

/// Reason why an object has to be applied: the fields that differ, as what has to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Object to apply; `None` if the fields of the agent are as desired.
    pub apply: Option<Value>,
    /// Merge patch that removes leftovers of Karmada's agent; `None` if there are none.
    pub leftovers: Option<Value>,
}

/// Returns the difference between an object and its desired state (see
/// [`desired`](crate::work::desired::desired)); `None` if there is none. `is_settled` says whether
/// the apply of a desired state would leave an object as it is.
///
/// Fields that the member decides (a cluster IP, the replicas under an autoscaler) are taken over
/// only if an apply is needed: fields that an apply does not mention and that the agent never set
/// stay as they are.
///
/// # Errors
/// When the interpreter cannot determine the fields that the member decides.
pub(super) fn difference(
    desired: &Value,
    observed: &Value,
    interpreters: &Interpreters,
    is_settled: impl Fn(&Value, &Value) -> bool,
) -> Result<Option<Difference>, muster_interpreter::Error> {
    let leftovers = ownership::leftovers(desired, observed);
    let possible = with_grown(with_admitted(desired, observed), observed);
    let desired = with_queued(without_scaled(possible, observed), observed);
    let apply = fields(&desired, observed, interpreters, is_settled)?;
    let apply = apply.map(|apply| with_note(apply, &desired, observed));
    let differs = apply.is_some() || leftovers.is_some();
    Ok(differs.then_some(Difference { apply, leftovers }))
}

/// Returns the object to apply; `None` if its fields are as desired.
fn fields(
    desired: &Value,
    observed: &Value,
    interpreters: &Interpreters,
    is_settled: impl Fn(&Value, &Value) -> bool,
) -> Result<Option<Value>, muster_interpreter::Error> {
    if is_settled(desired, observed) {
        return Ok(None);
    }
    if !interpreters.has_for(desired, Operation::Retain) {
        return Ok(Some(desired.clone()));
    }
    // A status that changes all the time is no reason to wait for a webhook.
    let interpreters = interpreters.accepting_late();
    let mut retained = interpreters.retain(desired.clone(), &with_start(desired, observed))?;
    keep_marks(&mut retained, desired);
    if is_settled(&retained, observed) {
        return Ok(None);
    }
    // Of one object the member may decide some fields that the agent once sent (the selector of a
    // Job) and others that it never did (labels of the Job's pods).
    let mut plain = observed.clone();
    leave_out_retained(&mut plain, desired, &retained);
    Ok((!is_settled(desired, &plain)).then_some(retained))
}

/// Puts the desired value in the place of each value of an object that would be retained as it is,
/// so that what remains different is what an apply would change.
fn leave_out_retained(observed: &mut Value, desired: &Value, retained: &Value) {
    if desired == retained {
        return;
    }
    let (Some(observed), Some(desired), Some(retained)) = (
        observed.as_object_mut(),
        desired.as_object(),
        retained.as_object(),
    ) else {
        if observed == retained {
            observed.clone_from(desired);
        }
        return;
    };
    let added = retained.keys().filter(|key| !desired.contains_key(*key));
    for key in added {
        if observed.get(key) == retained.get(key) {
            observed.remove(key);
        }
    }
    for (key, desired) in desired {
        if let (Some(observed), Some(retained)) = (observed.get_mut(key), retained.get(key)) {
            leave_out_retained(observed, desired, retained);
        }
    }
}

/// Restores the labels and annotations of the desired object, by which its Work is found, and
/// removes what the server keeps of its owners: a rule that retains all metadata of the member must
/// not make the object ownerless.
fn keep_marks(retained: &mut Value, desired: &Value) {
    let Some(metadata) = retained.get_mut("metadata") else {
        return;
    };
    let Some(fields) = metadata.as_object_mut() else {
        return;
    };
    fields.remove("managedFields");
    for field in ["labels", "annotations"] {
        let Some(wanted) = desired["metadata"][field].as_object() else {
            continue;
        };
        let pairs = object_in(metadata, field);
        for (key, value) in wanted {
            pairs[key] = value.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::MANAGED_LABELS;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_keeps_its_marks_whatever_a_rule_retains() {
        let desired = json!({"metadata": {"labels": {"work": "w"}, "annotations": {"of": "w"}}});
        for metadata in [
            json!({}),
            json!({"labels": {"work": "other", "own": "1"}, "annotations": null, "managedFields": []}),
            json!({"labels": "none"}),
        ] {
            let mut retained = json!({"metadata": metadata});
            keep_marks(&mut retained, &desired);
            let kept = &retained["metadata"];
            assert_eq!(kept["labels"]["work"], "w", "{metadata}");
            assert_eq!(kept["annotations"]["of"], "w", "{metadata}");
            assert!(kept.get("managedFields").is_none());
        }
    }

    #[test]
    fn an_object_is_applied_for_fields_or_leftovers_and_with_what_the_member_decides() {
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let desired = service(json!({"type": "ClusterIP"}));
        let observed = service(json!({"type": "ClusterIP", "clusterIP": "10.0.0.1"}));
        let mut karmadas = observed.clone();
        karmadas["metadata"]["labels"] = json!({"old": "1"});
        karmadas["metadata"]["annotations"] = json!({MANAGED_LABELS: "old"});
        let leftovers = json!({"metadata": {"labels": {"old": null}}});
        let both = [&desired, &observed];
        for (what, found, settled, apply, patch) in [
            ("as desired", &observed, &both[..], None, None),
            ("fields differ", &observed, &[], Some(&observed), None),
            (
                "an apply of the cluster IP changes nothing",
                &observed,
                &both[1..],
                None,
                None,
            ),
            (
                "a label of Karmada's is left",
                &karmadas,
                &both,
                None,
                Some(&leftovers),
            ),
            ("both", &karmadas, &[], Some(&observed), Some(&leftovers)),
        ] {
            let interpreters = Interpreters::default();
            let is_settled = |desired: &Value, _: &Value| settled.contains(&desired);
            let found = difference(&desired, found, &interpreters, is_settled);
            let expected = (apply.is_some() || patch.is_some()).then(|| Difference {
                apply: apply.cloned(),
                leftovers: patch.cloned(),
            });
            assert_eq!(found.unwrap(), expected, "{what}");
        }
    }
}
