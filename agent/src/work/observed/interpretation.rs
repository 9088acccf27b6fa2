//! Result of interpreting one object in the member.

use std::time::Duration;

use muster_interpreter::webhook::Pending;
use muster_interpreter::{Error, Interpreters};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::fencing;
use muster_shared::work_status::{self, SeenRole};
use serde_json::{Value, json};

use crate::work::desired::ObjectKey;
use crate::work::{completed, drift};

/// Reason and text of an event, in Karmada's words.
pub type Note = (&'static str, String);

/// Trouble of an object that is reported beside its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The agent has stopped the object.
    Stopped,
    /// The status cannot be reflected.
    Status(String),
    /// The health cannot be judged; it is reported as unknown.
    Health(String),
}

impl Trouble {
    /// Returns the warning event.
    pub fn note(&self, object: &ObjectKey) -> Note {
        let object = format!("{}/{}/{}", object.kind.kind, object.namespace, object.name);
        match self {
            Self::Status(error) => {
                let text = format!("Reflect status for object({object}) failed, err: {error}.");
                ("ReflectStatusFailed", text)
            }
            Self::Stopped => {
                let text = format!(
                    "The agent has stopped object({object}), because its cluster was cut off from the fleet. It is started again as soon as that is known to be over."
                );
                ("StoppedWhileCutOff", text)
            }
            Self::Health(error) => {
                let text = format!("Interpret health of object({object}) failed, err: {error}.");
                ("InterpretHealthFailed", text)
            }
        }
    }
}

/// Report about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    /// The reported part of its status, as JSON text: one is kept for every object, and a tree of
    /// values takes many times as much memory.
    status: Option<Box<str>>,
    /// Health of the object.
    pub health: ResourceHealth,
    /// Whether the member has no object of this Work, although the Work wants one.
    pub lost: bool,
    /// Whether the last reported status stays, because the present one cannot be reflected.
    pub stays: bool,
    /// Whether the agent has stopped the object, because the member was cut off.
    stopped: bool,
}

impl ObjectStatus {
    /// Makes a status; `status` is the reported part, `None` for an object without one.
    pub fn new(status: Option<&Value>, health: ResourceHealth) -> Self {
        Self {
            status: status.map(|status| status.to_string().into()),
            health,
            lost: false,
            stays: false,
            stopped: false,
        }
    }

    /// Makes the status of an object of which the health alone is known.
    fn of_health(health: ResourceHealth) -> Self {
        Self {
            stays: true,
            ..Self::new(None, health)
        }
    }

    /// Returns the status beside what was known of the object before: that stays, where the health
    /// alone is known now.
    pub(super) fn beside(self, known: Option<&Self>) -> Self {
        match known.filter(|known| self.stays && !known.lost) {
            Some(known) => Self {
                health: self.health,
                stopped: self.stopped,
                ..known.clone()
            },
            None => self,
        }
    }

    /// Makes the status of an object that is gone: it is unhealthy, and counts nothing.
    pub fn lost() -> Self {
        Self {
            lost: true,
            ..Self::new(None, ResourceHealth::Unhealthy)
        }
    }

    /// Returns whether the agent has stopped the object, because the member was cut off.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the reported part of its status; `None` when it has none.
    pub fn status(&self) -> Option<Value> {
        // The text was written by `new`, so it parses.
        serde_json::from_str(self.status.as_deref()?).ok()
    }
}

/// Result of the interpretation of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interpretation {
    /// The report; `None` if the object cannot be interpreted, so that the last report stays.
    pub status: Option<ObjectStatus>,
    /// Reason why the object, or a part of it, cannot be interpreted.
    pub trouble: Option<Trouble>,
    /// Time after which another interpretation may find more, because a script is not run, or a
    /// webhook not asked, until then.
    pub again: Option<Duration>,
    /// Question to a webhook that is not answered yet. Until it is, nothing is learned, or what its
    /// answers about an earlier version of the object say.
    pub pending: Option<Pending>,
}

impl Interpretation {
    /// Interprets an object. A kind without a health rule is as healthy as its conditions say, and
    /// healthy where they say nothing; an object that cannot be judged is of unknown health. One
    /// that the agent has stopped is not healthy, whatever its own status says.
    pub fn at(object: &Value, interpreters: &Interpreters) -> Self {
        let mut check = Self::interpret(object, interpreters);
        if fencing::stopped(object).is_some() {
            if let Some(status) = &mut check.status {
                (status.health, status.stopped) = (ResourceHealth::Unhealthy, true);
            }
            check.trouble.get_or_insert(Trouble::Stopped);
        }
        check
    }

    /// Interprets an object of a manifest: a task that has run to its end is reported as that of
    /// the manifest, replicas that are left to an autoscaler with the name of that, and an object
    /// that has a role by the place of a workload with the step in which it got the role.
    pub fn of(object: &Value, manifest: &Value, interpreters: &Interpreters) -> Self {
        let mut check = Self::at(object, interpreters);
        if let (Some(role), Some(seen)) = (SeenRole::of(object), &mut check.status) {
            let mut status = seen.status().unwrap_or_else(|| json!({}));
            if !seen.stays && status.is_object() {
                status[work_status::DATA_ROLE] = json!(role);
                seen.status = Some(status.to_string().into());
            }
        }
        let left_to = drift::left_to(manifest, object);
        // A status that is too long still says that its task has run to its end.
        let brief = |stays: bool| completed::brief(object, manifest).filter(|_| !stays);
        let noted = |mut status: Value| {
            completed::note(&mut status, object, manifest);
            if let (Some(manager), Some(status)) = (left_to, status.as_object_mut()) {
                status.insert(drift::LEFT_TO.into(), manager.into());
            }
            status.to_string()
        };
        if (completed::is_task(manifest) || left_to.is_some())
            && let Some(seen) = &mut check.status
            && let Some(status) = seen.status().or_else(|| brief(seen.stays))
        {
            let mut text = noted(status);
            // The status may be too long with what was added.
            if text.len() > work_status::LONGEST_STATUS
                && let Some(brief) = brief(seen.stays)
            {
                text = noted(brief);
            }
            seen.status = Some(text.into());
        }
        check
    }

    fn interpret(object: &Value, interpreters: &Interpreters) -> Self {
        // Both are asked before either is waited for.
        let interpreters = interpreters.accepting_late();
        let status = interpreters.status(object);
        let health = interpreters.is_healthy(object);
        let late = interpreters.late();
        let asked = status.as_ref().err().and_then(Error::pending);
        let pending = asked.or_else(|| health.as_ref().err().and_then(Error::pending));
        if pending.is_some() {
            return Self {
                pending,
                ..Self::default()
            };
        }
        let (health, error) = match health {
            Ok(false) => (ResourceHealth::Unhealthy, None),
            Ok(true) => (ResourceHealth::Healthy, None),
            Err(error) => (ResourceHealth::Unknown, Some(error)),
        };
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                return Self {
                    status: Some(ObjectStatus::of_health(health)),
                    again: error.retry_after(),
                    trouble: Some(Trouble::Status(error.to_string())),
                    pending: late,
                };
            }
        };
        let again = error.as_ref().and_then(Error::retry_after);
        let excess = status.as_ref().map(work_status::check);
        if let Some(Err(excess)) = excess {
            return Self {
                status: Some(ObjectStatus::new(None, health)),
                trouble: Some(Trouble::Status(excess.to_string())),
                again,
                pending: late,
            };
        }
        Self {
            status: Some(ObjectStatus::new(status.as_ref(), health)),
            trouble: error.map(|error| Trouble::Health(error.to_string())),
            again,
            pending: late,
        }
    }

    /// Makes the interpretation of an object that is gone.
    pub fn lost() -> Self {
        Self {
            status: Some(ObjectStatus::lost()),
            ..Self::default()
        }
    }

    /// Makes the interpretation of an object of which nothing can be known: what was seen last
    /// stays, and its health is unknown.
    pub fn unknown() -> Self {
        Self {
            status: Some(ObjectStatus::of_health(ResourceHealth::Unknown)),
            ..Self::default()
        }
    }

    /// Makes the interpretation of an object that cannot be read.
    pub fn unreadable(reason: String) -> Self {
        Self {
            trouble: Some(Trouble::Status(reason)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_interpreter::Operation;
    use muster_interpreter::lua::Customization;
    use muster_shared::names::annotation;
    use serde_json::json;

    use super::*;

    #[test]
    fn health_is_what_the_rules_say_and_healthy_where_there_are_none() {
        let deployment = |available: u32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "generation": 1},
                "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": available}})
        };
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        for (object, expected) in [
            (deployment(2), ResourceHealth::Healthy),
            (deployment(1), ResourceHealth::Unhealthy),
            (config, ResourceHealth::Healthy),
        ] {
            let found = Interpretation::at(&object, &Interpreters::default());
            let found = found.status.map(|seen| seen.health);
            assert_eq!(found, Some(expected), "{object}");
        }
    }

    #[test]
    fn an_object_whose_status_cannot_be_reflected_has_its_present_health() {
        let script = |operation, text: &str| {
            Customization::new("w", ("example.io/v1", "Thing"), &[(operation, text)])
        };
        let thing = json!({"apiVersion": "example.io/v1", "kind": "Thing",
            "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let fails = "function ReflectStatus(o) return o.absent.field end";
        let status = script(Operation::InterpretStatus, fails);
        let fails = "function InterpretHealth(o) return o.absent.field end";
        let health = script(Operation::InterpretHealth, fails);
        let mut stopped = thing.clone();
        stopped["metadata"]["annotations"] = json!({annotation::STOPPED: "{}"});
        let check = Interpretation::at(&stopped, &Interpreters::of(std::slice::from_ref(&status)));
        let seen = check.status.unwrap();
        assert!(seen.stays && seen.is_stopped());
        for (scripts, expected) in [
            (vec![status.clone()], ResourceHealth::Unhealthy),
            (vec![status, health], ResourceHealth::Unknown),
        ] {
            let check = Interpretation::at(&thing, &Interpreters::of(&scripts));
            assert_eq!(check.status, Some(ObjectStatus::of_health(expected)));
            assert!(matches!(check.trouble, Some(Trouble::Status(_))));
        }
    }

    #[test]
    fn replicas_that_are_left_to_an_autoscaler_are_reported_with_its_name() {
        let manifest = |replicas: u32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web"}, "spec": {"replicas": replicas}})
        };
        let mut object = manifest(7);
        object["status"] = json!({"replicas": 7});
        object["metadata"]["annotations"] =
            json!({annotation::LEFT_TO_AUTOSCALER: "{\".spec.replicas\":3}"});
        object["metadata"]["managedFields"] = json!([{"manager": "hpa", "operation": "Update",
            "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        for (share, left_to) in [(3, json!("hpa")), (5, Value::Null)] {
            let check = Interpretation::of(&object, &manifest(share), &Interpreters::default());
            let status = check.status.unwrap().status().unwrap();
            assert_eq!(status["replicasLeftToAutoscaler"], left_to, "{share}");
            assert_eq!(status["replicas"], 7);
        }
    }

    #[test]
    fn the_step_of_a_role_is_reported_with_the_status_that_the_object_had_in_it() {
        let object = |step: &str, status: Value| {
            json!({
                "apiVersion": "example.io/v1", "kind": "Thing", "status": status,
                "metadata": {
                    "name": "a", "generation": 4, "annotations": {annotation::DATA_ROLE: step},
                },
            })
        };
        let role = json!({"step": 3, "generation": 4});
        let primary = object("3", json!({"state": "Primary"}));
        for (object, expected) in [
            (primary, json!({"state": "Primary", "dataRole": role})),
            (object("3", Value::Null), json!({"dataRole": role})),
            (object("x", json!({"state": "a"})), json!({"state": "a"})),
        ] {
            let check = Interpretation::of(&object, &object, &Interpreters::default());
            assert_eq!(check.status.unwrap().status(), Some(expected), "{object}");
        }
    }

    #[test]
    fn an_object_that_goes_is_not_healthy_and_a_status_that_is_too_long_is_left_out_and_reported() {
        let object = |status: Value, deleted: bool| {
            let mut object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "status": status});
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            object
        };
        let long = json!({"text": "x".repeat(work_status::LONGEST_STATUS)});
        let (short, healthy) = (json!({"a": 1}), ResourceHealth::Healthy);
        let (well, goes) = (object(short.clone(), false), object(short, true));
        for (what, object, health, has_status) in [
            ("well", well, healthy.clone(), true),
            ("it goes", goes, ResourceHealth::Unhealthy, true),
            ("too long", object(long, false), healthy, false),
        ] {
            let check = Interpretation::at(&object, &Interpreters::default());
            let seen = check.status.unwrap();
            assert_eq!(seen.health, health, "{what}");
            assert_eq!(seen.status().is_some(), has_status, "{what}");
            assert_eq!(check.trouble.is_none(), has_status, "{what}");
        }
    }

    #[test]
    fn a_status_that_is_too_long_still_says_that_its_task_has_run_to_its_end() {
        let manifest = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "a"}});
        for (phase, less, expected) in [
            ("Running", 0, false),
            ("Succeeded", 0, true),
            // The status is too long with the name of the manifest only.
            ("Succeeded", 40, true),
        ] {
            let mut object = manifest.clone();
            let nodes = "x".repeat(work_status::LONGEST_STATUS - less);
            object["status"] = json!({"phase": phase, "nodes": nodes});
            let check = Interpretation::of(&object, &manifest, &Interpreters::default());
            let is_reported = matches!(check.trouble, Some(Trouble::Status(_)));
            assert_eq!(is_reported, less == 0, "{phase} {less}");
            let status = check.status.unwrap().status();
            let length = status.as_ref().map_or(0, work_status::length);
            assert!(length <= work_status::LONGEST_STATUS, "{phase} {less}");
            let says = |status: &Value| {
                completed::says(status, &manifest) && status["phase"] == "Succeeded"
            };
            let is_said = status.as_ref().is_some_and(says);
            assert_eq!(is_said, expected, "{phase} {less}");
        }
    }

    #[test]
    fn what_cannot_be_interpreted_is_said_in_karmadas_words() {
        let named = |kind: &str, namespace: &str| {
            let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        let (reason, text) = Trouble::Status("too odd".into()).note(&named("Pod", "default"));
        assert_eq!(reason, "ReflectStatusFailed");
        let reported = "Reflect status for object(Pod/default/a) failed, err: too odd.";
        assert_eq!(text, reported);
        let (reason, text) = Trouble::Health("too odd".into()).note(&named("Node", ""));
        assert_eq!(reason, "InterpretHealthFailed");
        let reported = "Interpret health of object(Node//a) failed, err: too odd.";
        assert_eq!(text, reported);
    }
}
