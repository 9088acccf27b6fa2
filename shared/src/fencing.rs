//! What control plane and agent agree on about fencing: which objects are stopped, when and how,
//! and what confirms it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::conditions;
use crate::k8s::Condition;
use crate::merge::object_in;
use crate::names::{annotation, condition, label};

/// Orders to the agent about one object, in the annotation [`annotation::FENCING`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orders {
    /// Seconds without a renewal of the lease after which the object is stopped.
    pub after_seconds: u32,
    /// Seconds that its pods may take to end.
    #[serde(default)]
    pub grace_seconds: u32,
    /// Merge patch that stops the object; `None` if it is deleted instead.
    #[serde(default)]
    pub stop: Option<Value>,
}

impl Orders {
    /// Reads the orders about an object; `None` if it is not fenced, or they are no orders.
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        metadata.get("labels")?.get(label::FENCED)?;
        let text = metadata.get("annotations")?.get(annotation::FENCING)?;
        let orders: Self = serde_json::from_str(text.as_str()?).ok()?;
        orders
            .stop
            .as_ref()
            .is_none_or(Value::is_object)
            .then_some(orders)
    }

    /// Writes the orders into a manifest.
    pub fn write(&self, manifest: &mut Value) {
        let metadata = &mut manifest["metadata"];
        object_in(metadata, "labels")[label::FENCED] = json!("true");
        object_in(metadata, "annotations")[annotation::FENCING] = json!(json!(self).to_string());
    }

    /// Returns the time without a renewal of the lease after which the object is stopped.
    pub fn after(&self) -> Duration {
        Duration::from_secs(self.after_seconds.into())
    }
}

/// Returns whether an object is in a queue of Kueue, which starts what it has admitted again
/// whenever it is suspended: nothing but its deletion stops it.
pub fn is_queued(object: &Value) -> bool {
    object["metadata"]["labels"][label::KUEUE_QUEUE].is_string()
}

/// Returns the merge patch that stops an object and remembers what it was; `None` if it is stopped
/// already. What an earlier stop remembered is kept.
pub fn stop(object: &Value, stop: &Value) -> Option<Value> {
    let undo = inverse(object, stop);
    if undo == *stop {
        return None;
    }
    let mut patch = stop.clone();
    let metadata = object_in(&mut patch, "metadata");
    if stopped(object).is_none() {
        object_in(metadata, "annotations")[annotation::STOPPED] = json!(undo.to_string());
    }
    Some(patch)
}

/// Returns the merge patch that undoes the stop of an object; `None` if the object is not stopped.
pub fn stopped(object: &Value) -> Option<Value> {
    let annotations = object.get("metadata")?.get("annotations")?;
    let text = annotations.get(annotation::STOPPED)?.as_str()?;
    let undo = serde_json::from_str(text).ok().filter(Value::is_object);
    Some(undo.unwrap_or_else(|| json!({})))
}

/// Returns the merge patch that releases a stopped object, before its desired state is applied;
/// `None` if it is not stopped. Fields that the desired state has become what it says, unless it
/// `retains` the values of the member, which the patch that undoes the stop has; the others become
/// what they were. No field stays as the stop has set it: the apply may fail, or keep what it finds
/// in the member.
pub fn release(
    object: &Value,
    desired: &Value,
    retains: impl FnOnce(&Value) -> bool,
) -> Option<Value> {
    let undo = stopped(object)?;
    let mut patch = if retains(&undo) {
        undo
    } else {
        as_in(undo, desired)
    };
    let metadata = object_in(&mut patch, "metadata");
    object_in(metadata, "annotations")[annotation::STOPPED] = Value::Null;
    Some(patch)
}

/// Returns a patch with the values that an object has for its fields; fields that the object does
/// not have stay as they are.
fn as_in(patch: Value, object: &Value) -> Value {
    match (patch, object) {
        (patch, Value::Null) => patch,
        (Value::Object(fields), Value::Object(has)) => {
            let fields = fields.into_iter().map(|(name, change)| {
                let has = has.get(&name).unwrap_or(&Value::Null);
                let change = as_in(change, has);
                (name, change)
            });
            fields.collect()
        }
        (_, object) => object.clone(),
    }
}

/// Returns the patch that gives the fields of another one the values that they have now.
fn inverse(object: &Value, patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let inverse = fields.iter().map(|(name, change)| {
                let now = object.get(name).unwrap_or(&Value::Null);
                (name.clone(), inverse(now, change))
            });
            Value::Object(inverse.collect::<Map<_, _>>())
        }
        _ => object.clone(),
    }
}

/// Type of the condition of a Work by which its agent confirms that it fences.
pub const CONFIRMED: &str = condition::FENCED;

/// Times that an agent confirms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Seconds without a renewal of the lease after which the objects are stopped.
    pub after: u32,
    /// Seconds that their pods may take to end.
    pub grace: u32,
}

impl Times {
    /// Returns the longer one of both times.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            after: self.after.max(other.after),
            grace: self.grace.max(other.grace),
        }
    }

    /// Returns the reason of the condition [`CONFIRMED`] for the times.
    pub fn reason(self) -> String {
        format!("After{}Grace{}", self.after, self.grace)
    }

    /// Reads the times from the reason of the condition [`CONFIRMED`].
    pub fn of_reason(reason: &str) -> Option<Self> {
        let (after, grace) = reason.strip_prefix("After")?.split_once("Grace")?;
        Some(Self {
            after: after.parse().ok()?,
            grace: grace.parse().ok()?,
        })
    }

    /// Reads the times from the conditions of a Work, if its agent confirms any.
    pub fn confirmed(conditions: &[Condition]) -> Option<Self> {
        let known = conditions::get(conditions, CONFIRMED)?;
        Self::of_reason(&known.reason).filter(|_| known.status == conditions::TRUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge;

    fn object(replicas: i64) -> Value {
        json!({ "metadata": { "name": "web", "annotations": { "a": "b" } }, "spec": { "replicas": replicas, "x": 1 } })
    }

    #[test]
    fn an_object_that_was_stopped_and_released_is_what_it_was() {
        let suspend = json!({ "spec": { "suspend": true } });
        let scale = json!({ "spec": { "replicas": 0 } });
        for order in [scale, suspend] {
            let before = object(3);
            let mut now = before.clone();
            let patch = stop(&now, &order).unwrap();
            merge::apply(&mut now, &patch);
            assert_ne!(now["spec"], before["spec"]);
            assert_eq!(stop(&now, &order), None, "it is stopped already");
            let release = release(&now, &json!({}), |_| true).unwrap();
            merge::apply(&mut now, &release);
            assert_eq!(now, before);
        }
    }

    #[test]
    fn somebody_who_starts_a_stopped_object_does_not_change_what_is_remembered() {
        let order = json!({ "spec": { "replicas": 0 } });
        let mut now = object(3);
        let patch = stop(&now, &order).unwrap();
        merge::apply(&mut now, &patch);
        now["spec"]["replicas"] = json!(1);
        let patch = stop(&now, &order).unwrap();
        merge::apply(&mut now, &patch);
        assert_eq!(now["spec"]["replicas"], 0);
        let patch = release(&now, &json!({}), |_| true).unwrap();
        merge::apply(&mut now, &patch);
        assert_eq!(now["spec"]["replicas"], 3);
    }

    #[test]
    fn a_released_object_becomes_what_is_desired_by_now_or_else_what_it_was() {
        let (scale, suspend) = (
            json!({ "spec": { "replicas": 0 } }),
            json!({ "spec": { "suspend": true } }),
        );
        let five = json!({ "spec": { "replicas": 5 } });
        let other = json!({ "spec": { "x": 1 } });
        let going = json!({ "spec": { "suspend": false } });
        for (order, desired, retains, field, expected) in [
            (&scale, &five, false, "replicas", json!(5)),
            (&scale, &five, true, "replicas", json!(3)),
            (&scale, &other, false, "replicas", json!(3)),
            (&suspend, &other, false, "suspend", Value::Null),
            (&suspend, &going, false, "suspend", json!(false)),
        ] {
            let mut now = object(3);
            let patch = stop(&now, order).unwrap();
            merge::apply(&mut now, &patch);
            let patch = release(&now, desired, |_| retains).unwrap();
            merge::apply(&mut now, &patch);
            assert_eq!(stopped(&now), None);
            assert_eq!(now["spec"][field], expected, "{order} {desired} {retains}");
        }
    }

    #[test]
    fn an_object_that_never_ran_is_not_marked() {
        assert_eq!(
            stop(&object(0), &json!({ "spec": { "replicas": 0 } })),
            None
        );
        assert_eq!(release(&object(0), &json!({}), |_| true), None);
    }

    #[test]
    fn patches_that_somebody_else_wrote_are_made_into_ones_that_can_be_sent() {
        for odd in [
            json!({ "metadata": 5 }),
            json!({ "metadata": null }),
            json!({ "metadata": { "annotations": "x" } }),
            json!({ "metadata": { "annotations": null } }),
        ] {
            let mut now = object(3);
            let patch = stop(&now, &odd).unwrap();
            assert!(patch["metadata"]["annotations"].is_object(), "{patch}");
            now["metadata"]["annotations"][annotation::STOPPED] = json!(odd.to_string());
            let patch = release(&now, &json!({}), |_| true).unwrap();
            let expected = json!({ "metadata": { "annotations": { annotation::STOPPED: null } } });
            assert_eq!(patch, expected, "{odd}");
        }
        for stop in ["5", "\"x\"", "[]"] {
            let mut now = object(3);
            now["metadata"]["labels"][label::FENCED] = json!("true");
            let orders = format!("{{\"afterSeconds\":1,\"stop\":{stop}}}");
            now["metadata"]["annotations"][annotation::FENCING] = json!(orders);
            assert_eq!(Orders::of(&now), None, "{stop}");
        }
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        for stop in [None, Some(json!({ "spec": { "replicas": 0 } }))] {
            let orders = Orders {
                after_seconds: 60,
                grace_seconds: 5,
                stop,
            };
            let mut manifest = json!({ "metadata": { "name": "web" } });
            assert_eq!(Orders::of(&manifest), None);
            orders.write(&mut manifest);
            assert_eq!(Orders::of(&manifest), Some(orders));
        }
    }

    #[test]
    fn the_confirmed_times_are_read_from_the_reason() {
        let times = Times {
            after: 60,
            grace: 5,
        };
        assert_eq!(times.reason(), "After60Grace5");
        assert_eq!(Times::of_reason(&times.reason()), Some(times));
        for other in ["After60", "AfterGrace", "After-1Grace5", "After1Grace", ""] {
            assert_eq!(Times::of_reason(other), None, "{other}");
        }
    }
}
