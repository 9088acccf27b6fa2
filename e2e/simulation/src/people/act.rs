//! What a person can do, as data.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::history::{Api, Key};
use crate::oracle::objects;

/// What a person does at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Number in the plan.
    pub id: u64,
    /// Milliseconds since the beginning.
    pub at: u64,
    /// The API that is asked.
    pub api: Api,
    /// What is done.
    #[serde(flatten)]
    pub act: Act,
}

/// What a person can do. What changes a part of a list is done as `kubectl` does it: from what is
/// there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "do")]
pub enum Act {
    /// Creates an object, or replaces what it says of an object that exists.
    Apply {
        /// The object.
        object: Value,
    },
    /// Replaces an object as a whole, which takes away what others wrote upon it; creates it if it
    /// does not exist.
    Replace {
        /// The object.
        object: Value,
    },
    /// Merges a patch into an object that exists.
    Patch {
        /// `apiVersion`, `kind`, `metadata` and what is to be changed.
        object: Value,
        /// Subresource; empty for the object itself.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        subresource: String,
    },
    /// Deletes an object.
    Delete {
        /// Its `apiVersion`, `kind` and `metadata`.
        object: Value,
    },
    /// Taints a cluster.
    Taint {
        /// Its name.
        cluster: String,
        /// Key of the taint.
        key: String,
        /// Effect of the taint.
        effect: String,
    },
    /// Takes the taints of a key off a cluster.
    Untaint {
        /// Its name.
        cluster: String,
        /// Key of the taints.
        key: String,
    },
    /// Gives a cluster the id of another one's member, as a stolen agent may.
    Claim {
        /// The cluster that claims.
        cluster: String,
        /// The cluster whose id it claims.
        victim: String,
    },
    /// Lets the copies go that eviction tasks of a binding keep until a person says so.
    Release {
        /// Namespace of the binding.
        namespace: String,
        /// Name of the binding.
        name: String,
    },
}

/// HTTP method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Merges.
    Patch,
    /// Deletes.
    Delete,
}

/// A request to an API.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Submission {
    /// Method.
    pub method: Method,
    /// Path with its query.
    pub path: String,
    /// Media type of the body.
    pub content_type: &'static str,
    /// The body; `null` for none.
    pub body: Value,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

impl Act {
    /// Returns the requests by which it is done, given what is there. There are none where there is
    /// nothing to be done.
    pub fn requests(&self, read: &dyn Fn(&Key) -> Option<Arc<Value>>) -> Vec<Submission> {
        let request = match self {
            Self::Apply { object } => match key(object).and_then(|key| read(&key)) {
                Some(_) => patch(object, ""),
                None => create(object),
            },
            Self::Replace { object } => match key(object).and_then(|key| read(&key)) {
                Some(there) => replace(object, &there),
                None => create(object),
            },
            Self::Patch {
                object,
                subresource,
            } => patch(object, subresource),
            Self::Delete { object } => path(object, true).map(|path| Submission {
                method: Method::Delete,
                path,
                content_type: JSON,
                body: Value::Null,
            }),
            Self::Taint {
                cluster,
                key,
                effect,
            } => retaint(cluster, read, |taints| {
                let same = |it: &Value| it["key"] == *key && it["effect"] == *effect;
                (!taints.iter().any(same)).then(|| {
                    taints.push(json!({"key": key, "effect": effect}));
                })
            }),
            Self::Untaint { cluster, key } => retaint(cluster, read, |taints| {
                let all = taints.len();
                taints.retain(|it| it["key"] != *key);
                (taints.len() < all).then_some(())
            }),
            Self::Claim { cluster, victim } => claim(cluster, victim, read),
            Self::Release { namespace, name } => release(namespace, name, read),
        };
        request.into_iter().collect()
    }
}

/// Returns the key of an object of the fleet API.
fn key(object: &Value) -> Option<Key> {
    objects::referent(&Api::Fleet, object)
}

/// Returns the path of an object if it is `named`, otherwise that of its kind.
fn path(object: &Value, named: bool) -> Option<String> {
    let key = key(object)?;
    let version = object["apiVersion"].as_str()?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let mut parts = vec!["", root, version];
    if !key.namespace.is_empty() {
        parts.extend(["namespaces", &key.namespace]);
    }
    parts.push(&key.plural);
    if named {
        parts.push(&key.name);
    }
    Some(parts.join("/"))
}

fn create(object: &Value) -> Option<Submission> {
    Some(Submission {
        method: Method::Post,
        path: path(object, false)?,
        content_type: JSON,
        body: object.clone(),
    })
}

fn patch(object: &Value, subresource: &str) -> Option<Submission> {
    let mut path = path(object, true)?;
    if !subresource.is_empty() {
        path = [path.as_str(), subresource].join("/");
    }
    Some(Submission {
        method: Method::Patch,
        path,
        content_type: MERGE,
        body: object.clone(),
    })
}

/// Builds the request that replaces an object as `kubectl replace` does: with the version that was
/// read, and with the finalizers, without which a deletion would not be noticed.
fn replace(object: &Value, there: &Value) -> Option<Submission> {
    let mut body = object.clone();
    for field in ["resourceVersion", "finalizers"] {
        let held = &there["metadata"][field];
        if !held.is_null() {
            body["metadata"][field] = held.clone();
        }
    }
    Some(Submission {
        method: Method::Put,
        path: path(object, true)?,
        content_type: JSON,
        body,
    })
}

fn retaint(
    cluster: &str,
    read: &dyn Fn(&Key) -> Option<Arc<Value>>,
    change: impl FnOnce(&mut Vec<Value>) -> Option<()>,
) -> Option<Submission> {
    let reference = cluster_named(cluster);
    let there = read(&key(&reference)?)?;
    let mut taints: Vec<Value> = objects::items(&there, "/spec/taints").cloned().collect();
    change(&mut taints)?;
    let mut object = reference;
    object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
    object["spec"] = json!({ "taints": taints });
    patch(&object, "")
}

fn cluster_named(name: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}})
}

fn claim(
    cluster: &str,
    victim: &str,
    read: &dyn Fn(&Key) -> Option<Arc<Value>>,
) -> Option<Submission> {
    let there = read(&key(&cluster_named(victim))?)?;
    let mut object = cluster_named(cluster);
    object["spec"] = json!({"id": there["spec"]["id"]});
    patch(&object, "")
}

fn release(
    namespace: &str,
    name: &str,
    read: &dyn Fn(&Key) -> Option<Arc<Value>>,
) -> Option<Submission> {
    let mut object = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": namespace, "name": name},
    });
    let there = read(&key(&object)?)?;
    let mut tasks: Vec<Value> = objects::items(&there, "/spec/gracefulEvictionTasks")
        .cloned()
        .collect();
    let mut held = tasks
        .iter_mut()
        .filter(|task| task["suppressDeletion"] == true)
        .peekable();
    held.peek()?;
    for task in held {
        task["suppressDeletion"] = json!(false);
    }
    object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
    object["spec"] = json!({ "gracefulEvictionTasks": tasks });
    patch(&object, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(act: &Act, there: Option<Value>) -> Vec<Submission> {
        let there = there.map(Arc::new);
        act.requests(&|_| there.clone())
    }

    #[test]
    fn a_taint_is_added_to_those_that_are_there_and_only_once() {
        let there = || {
            Some(json!({"metadata": {"resourceVersion": "7"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}))
        };
        let taint = |key: &str| Act::Taint {
            cluster: "m1".to_owned(),
            key: key.to_owned(),
            effect: "NoSchedule".to_owned(),
        };
        let requests = asked(&taint("b"), there());
        let taints = &requests[0].body["spec"]["taints"];
        assert_eq!(taints[0]["key"], "a");
        assert_eq!(taints[1]["key"], "b");
        assert_eq!(requests[0].body["metadata"]["resourceVersion"], "7");
        assert_eq!(
            requests[0].path,
            "/apis/cluster.karmada.io/v1alpha1/clusters/m1"
        );
        assert_eq!(asked(&taint("a"), there()), []);
        assert_eq!(asked(&taint("b"), None), []);
    }

    #[test]
    fn only_tasks_that_wait_for_a_person_are_released() {
        let act = Act::Release {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let tasks = |suppressed: Value| {
            Some(json!({"spec": {"gracefulEvictionTasks":
            [{"fromCluster": "m1", "suppressDeletion": suppressed}]}}))
        };
        assert_eq!(asked(&act, tasks(json!(null))), []);
        let requests = asked(&act, tasks(json!(true)));
        let task = &requests[0].body["spec"]["gracefulEvictionTasks"][0];
        assert_eq!(task["suppressDeletion"], false);
        assert_eq!(task["fromCluster"], "m1");
    }
}
