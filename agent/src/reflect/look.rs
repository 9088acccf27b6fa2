//! Result of looking at one object in the member.

use std::time::Duration;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::interpreter::webhook::Pending;
use muster_shared::interpreter::{Error, Interpreters, general_health};
use muster_shared::work_status;
use serde_json::Value;

use super::news::Trouble;

/// Report about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    /// The reported part of its status, as JSON text: one is kept for every object, and a tree of
    /// values takes many times as much memory.
    status: Option<Box<str>>,
    /// Health of the object.
    pub health: ResourceHealth,
    /// Whether the object is gone and could not be created again. Its last reported status stays.
    pub lost: bool,
}

impl ObjectStatus {
    /// Makes a status; `status` is the reported part, `None` for an object without one.
    pub fn new(status: Option<&Value>, health: ResourceHealth) -> Self {
        Self {
            status: status.map(|status| status.to_string().into()),
            health,
            lost: false,
        }
    }

    /// Of an object that is gone and could not be made again.
    pub fn lost() -> Self {
        Self {
            lost: true,
            ..Self::new(None, ResourceHealth::Unhealthy)
        }
    }

    /// Returns the reported part of its status; `None` when it has none.
    pub fn status(&self) -> Option<Value> {
        // The text was written by `new`, so it parses.
        serde_json::from_str(self.status.as_deref()?).ok()
    }
}

/// Result of the interpretation of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// The report; `None` if the object cannot be interpreted, so that the last report stays.
    pub status: Option<ObjectStatus>,
    /// Reason why the object, or a part of it, cannot be interpreted.
    pub trouble: Option<Trouble>,
    /// Time after which another look may find more, because a script is not run, or a webhook not
    /// asked, until then.
    pub again: Option<Duration>,
    /// Question to a webhook that is not answered yet. Until it is, nothing is learned.
    pub pending: Option<Pending>,
}

impl Look {
    /// Interprets an object. A kind without a health rule is as healthy as its conditions say, and
    /// healthy where they say nothing; an object that cannot be judged is of unknown health.
    pub fn at(object: &Value, interpreters: &Interpreters) -> Self {
        // Both are asked before either is waited for.
        let status = interpreters.status(object);
        let health = if is_going(object) {
            // Such an object is unhealthy, whatever its status says.
            Ok(Some(false))
        } else {
            interpreters.health(object)
        };
        let asked = status.as_ref().err().and_then(Error::pending);
        let pending = asked.or_else(|| health.as_ref().err().and_then(Error::pending));
        if pending.is_some() {
            return Self {
                status: None,
                trouble: None,
                again: None,
                pending,
            };
        }
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                return Self {
                    status: None,
                    again: error.retry_after(),
                    trouble: Some(Trouble::Status(error.to_string())),
                    pending: None,
                };
            }
        };
        let health = health.map(|ruled| ruled.or_else(|| general_health(object)));
        let (health, error) = match health {
            Ok(Some(false)) => (ResourceHealth::Unhealthy, None),
            Ok(Some(true) | None) => (ResourceHealth::Healthy, None),
            Err(error) => (ResourceHealth::Unknown, Some(error)),
        };
        let again = error.as_ref().and_then(Error::retry_after);
        let excess = status.as_ref().map(work_status::check);
        if let Some(Err(excess)) = excess {
            return Self {
                status: Some(ObjectStatus::new(None, health)),
                trouble: Some(Trouble::Status(excess.to_string())),
                again,
                pending: None,
            };
        }
        Self {
            status: Some(ObjectStatus::new(status.as_ref(), health)),
            trouble: error.map(|error| Trouble::Health(error.to_string())),
            again,
            pending: None,
        }
    }

    /// Of an object that is gone and could not be made again.
    pub fn lost() -> Self {
        Self {
            status: Some(ObjectStatus::lost()),
            trouble: None,
            again: None,
            pending: None,
        }
    }

    /// Of an object that cannot be read.
    pub fn unreadable(reason: String) -> Self {
        Self {
            status: None,
            trouble: Some(Trouble::Status(reason)),
            again: None,
            pending: None,
        }
    }
}

/// Returns whether the object is being deleted in the member.
fn is_going(object: &Value) -> bool {
    let deleted = object.pointer("/metadata/deletionTimestamp");
    deleted.is_some_and(|time| !time.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn health_is_what_the_rules_say_and_healthy_where_there_are_none() {
        let deployment = |available: u32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "generation": 1},
                "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": available}})
        };
        for (object, expected) in [
            (deployment(2), ResourceHealth::Healthy),
            (deployment(1), ResourceHealth::Unhealthy),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap"}),
                ResourceHealth::Healthy,
            ),
        ] {
            assert_eq!(
                Look::at(&object, &Interpreters::default())
                    .status
                    .map(|seen| seen.health),
                Some(expected),
                "{object}"
            );
        }
    }

    #[test]
    fn an_object_that_goes_is_not_healthy_and_a_status_that_is_too_long_is_left_out_and_told() {
        let object = |status: Value, deleted: bool| {
            let mut object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "status": status});
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            object
        };
        let long = json!({"text": "x".repeat(work_status::LONGEST_STATUS)});
        for (what, object, health, status, told) in [
            (
                "well",
                object(json!({"a": 1}), false),
                ResourceHealth::Healthy,
                true,
                false,
            ),
            (
                "it goes",
                object(json!({"a": 1}), true),
                ResourceHealth::Unhealthy,
                true,
                false,
            ),
            (
                "too long",
                object(long, false),
                ResourceHealth::Healthy,
                false,
                true,
            ),
        ] {
            let look = Look::at(&object, &Interpreters::default());
            let seen = look.status.unwrap();
            assert_eq!(seen.health, health, "{what}");
            assert_eq!(seen.status().is_some(), status, "{what}");
            assert_eq!(look.trouble.is_some(), told, "{what}");
        }
    }
}
