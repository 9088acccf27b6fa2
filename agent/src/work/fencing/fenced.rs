//! Reads of a fenced object what it takes to stop it.

use std::sync::LazyLock;

use muster_shared::fencing::{self, Orders};
use muster_shared::finished;
use muster_shared::k8s::GroupVersionKind;
use muster_shared::merge;
use muster_shared::names::{annotation, label};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::work::{dependents, partial};

/// A fenced object: its identity, its orders, whether it is marked as stopped, and the fields that
/// its orders change. What its users wrote is kept as text: as values it would take many times the
/// memory.
#[derive(Clone, Debug)]
pub struct Fenced {
    /// Identity, orders, deletion and mark.
    pub head: Value,
    /// The fields of its status that say whether it has run to its end, as JSON.
    status: Box<str>,
    /// The fields that the orders change, as JSON.
    fields: Box<str>,
}

impl Fenced {
    /// Returns the object, as much of it as was read.
    pub fn object(&self) -> Value {
        let mut object = self.head.clone();
        if let Ok(fields) = serde_json::from_str(&self.fields) {
            merge::apply(&mut object, &fields);
        }
        object
    }

    /// Returns whether the status says that the object, which is of a kind, has run to its end.
    pub fn has_ended(&self, kind: &GroupVersionKind) -> bool {
        // An object whose status cannot be read may still run.
        let status: Value = serde_json::from_str(&self.status).unwrap_or_default();
        match (&*kind.group, &*kind.kind) {
            ("", "Pod") | ("batch", "Job") => dependents::has_ended(&status),
            _ => finished::finish(&kind.api_version(), &kind.kind, &status["status"]).is_some(),
        }
    }
}

impl<'de> Deserialize<'de> for Fenced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static SHAPE: LazyLock<Value> = LazyLock::new(|| {
            json!({ "metadata": {
                "name": true, "namespace": true, "uid": true, "deletionTimestamp": true,
                "ownerReferences": true,
                "labels": { label::FENCED: true, label::KUEUE_QUEUE: true },
                "annotations": { annotation::FENCING: true, annotation::FLEET: true, annotation::STOPPED: true,
                    annotation::WORK_NAME: true },
            }})
        });
        static STATUS: LazyLock<Value> = LazyLock::new(|| {
            json!({ "status": {
                "phase": true, "conditions": true, "state": { "phase": true },
                "applicationState": { "state": true },
                "jobStatus": true, "jobDeploymentStatus": true,
            }})
        });
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let mut head = partial::fields(text.get(), &SHAPE).map_err(D::Error::custom)?;
        let stop = Orders::of(&head).and_then(|orders| orders.stop);
        let fields = match stop {
            Some(stop) => partial::fields(text.get(), &stop).map_err(D::Error::custom)?,
            None => json!({}),
        };
        // The mark remembers the fields of before the stop, which are long and not needed here.
        if fencing::stopped(&head).is_some() {
            head["metadata"]["annotations"][annotation::STOPPED] = json!("{}");
        }
        let status = partial::fields(text.get(), &STATUS).unwrap_or_default();
        Ok(Self {
            head,
            status: status.to_string().into(),
            fields: fields.to_string().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: &Value) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&object.to_string()).map(|read: Fenced| read.object())
    }

    fn deployment(stop: Option<Value>) -> Value {
        let mut object = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u",
                "creationTimestamp": "9999-12-31T23:59:59Z", "managedFields": [{ "time": 7 }] },
            "spec": { "replicas": 3, "paused": true, "template": { "x": "y".repeat(1 << 20) } },
        });
        crate::testing::fence(&mut object, stop);
        object
    }

    #[test]
    fn what_stops_an_object_is_the_same_as_if_all_of_it_had_been_read() {
        for stop in [
            json!({ "spec": { "replicas": 0 } }),
            json!({ "spec": { "replicas": 0, "paused": null, "template": { "new": 1 } } }),
            json!({ "metadata": { "annotations": { "a": "b" } } }),
            json!({ "spec": { "replicas": { "odd": 1 } } }),
        ] {
            let mut whole = deployment(Some(stop.clone()));
            for is_marked in [false, true] {
                let part = read(&whole).unwrap();
                assert!(part.to_string().len() < 1_000);
                assert_eq!(Orders::of(&part), Orders::of(&whole));
                assert_eq!(fencing::stop(&part, &stop), fencing::stop(&whole, &stop));
                assert_eq!(fencing::stopped(&part).is_some(), is_marked);
                whole["metadata"]["annotations"][annotation::STOPPED] = json!("{\"spec\":{}}");
            }
        }
    }

    #[test]
    fn an_object_has_run_to_its_end_as_its_kind_says() {
        let is = |kind: &str| json!({ "conditions": [{ "type": kind, "status": "True" }] });
        let spark = json!({ "applicationState": { "state": "COMPLETED" } });
        let ray = json!({ "jobStatus": "FAILED", "jobDeploymentStatus": "Retrying" });
        for (group, kind, status, expected) in [
            ("", "Pod", json!({ "phase": "Succeeded" }), true),
            ("batch", "Job", is("Failed"), true),
            ("batch", "Job", is("SuccessCriteriaMet"), false),
            ("kubeflow.org", "TFJob", is("Succeeded"), true),
            ("kubeflow.org", "TFJob", is("Running"), false),
            ("sparkoperator.k8s.io", "SparkApplication", spark, true),
            ("ray.io", "RayJob", ray, false),
            ("apps", "Deployment", is("Complete"), false),
            ("batch", "Job", json!("odd"), false),
        ] {
            let mut object = deployment(None);
            object["status"] = status;
            let read: Fenced = serde_json::from_str(&object.to_string()).unwrap();
            let of = GroupVersionKind::gvk(group, "v1", kind);
            assert_eq!(
                read.has_ended(&of),
                expected,
                "{kind}: {}",
                object["status"]
            );
        }
    }

    #[test]
    fn fields_that_nothing_could_remember_are_refused() {
        assert!(read(&deployment(Some(json!({ "spec": { "template": null } })))).is_err());
    }
}
