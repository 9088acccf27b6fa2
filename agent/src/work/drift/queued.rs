//! What Kueue sets in the member of a workload in one of its queues. Pure.
//!
//! Kueue starts what it admits, and suspends what waits, by `suspend` in the spec. API servers fill
//! that field in for each Job, so that every manifest of one has it: an agent that applied its
//! value would start what waits, or stop what was admitted, and Kueue would undo that, without end.
//!
//! What Kueue starts gets the nodes of the quota that it takes, and a Job fewer pods if it permits
//! that. An API server accepts no other nodes for a Job that runs, and Kueue stops what gets other
//! nodes, or another number of pods. When it suspends a workload, it takes back what it has set.

use std::borrow::Cow;

use muster_shared::fencing::is_queued;
use serde_json::Value;

use crate::work::managed_fields::{entries, is_of_subresource};
use crate::work::member::FIELD_MANAGER;
use crate::work::ownership::annotation;

/// The objects that have the field, and its path in the fields of a manager: Jobs and most other
/// kinds have it in their spec, those of Kubeflow in the policy of their runs.
const PLACES: [(&str, &str); 2] = [
    ("/spec", "/f:spec/f:suspend"),
    ("/spec/runPolicy", "/f:spec/f:runPolicy/f:suspend"),
];

/// Fields by which Kueue chooses nodes for the pods of a workload that it starts. Each is owned as
/// a whole, so that whoever adds to one owns all of it.
const NODES: [&str; 2] = ["nodeSelector", "tolerations"];
/// Fields with which Kueue starts a Job that permits fewer pods.
const NUMBERS: [&str; 2] = ["parallelism", "completions"];
/// Annotation by which a Job permits to be started with fewer pods: the smallest number.
const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation by which the completions of a Job are its pods, however many it is started with.
const TOGETHER: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// Returns the desired state with what Kueue has decided on, if the object is in one of its queues:
/// the suspension, and what it has set for a workload that it has started. What nobody but the
/// agent has set follows the template, which may want fewer nodes or more pods than before.
pub fn with_queued<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    // Kueue has the Jobs of a CronJob in its queues, and no CronJob.
    if !is_queued(observed) || desired["kind"] == "CronJob" {
        return desired;
    }
    let places = PLACES.into_iter();
    let desired = places.fold(desired, |desired, place| {
        with_decided(desired, observed, place)
    });
    let is_suspended = |(place, _): (&str, &str)| suspension(observed, place) == Some(true);
    // The pods of these are in queues by themselves.
    let has_queued_pods = matches!(desired["apiVersion"].as_str(), Some("v1" | "apps/v1"));
    if has_queued_pods || PLACES.into_iter().any(is_suspended) {
        return desired;
    }
    let mut started = desired.into_owned();
    let owned = Owned::of(observed).field("spec");
    let is_job = started["apiVersion"] == "batch/v1" && started["kind"] == "Job";
    if let Some(spec) = started.get_mut("spec") {
        keep_nodes(spec, &observed["spec"], &owned);
        if is_job {
            keep_numbers(spec, observed, &owned);
        }
    }
    Cow::Owned(started)
}

/// Puts the nodes and tolerations of the pods of an object, at any depth, in the place of those
/// that are wanted, where they only have more and are not the agent's alone.
fn keep_nodes(desired: &mut Value, observed: &Value, owned: &Owned<'_>) {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            let has_pods = desired.contains_key("containers");
            for (name, wanted) in desired.iter_mut() {
                let Some(found) = observed.get(name) else {
                    continue;
                };
                let owned = owned.field(name);
                if !has_pods || !NODES.contains(&name.as_str()) {
                    keep_nodes(wanted, found, &owned);
                } else if !owned.is_agents_alone() && has_more(found, wanted) {
                    wanted.clone_from(found);
                }
            }
        }
        (Value::Array(desired), Value::Array(observed)) if desired.len() == observed.len() => {
            for (wanted, found) in desired.iter_mut().zip(observed) {
                if ["name", "groupName"]
                    .iter()
                    .all(|it| wanted[*it] == found[*it])
                {
                    keep_nodes(wanted, found, &owned.item(found));
                }
            }
        }
        _ => {}
    }
}

/// Returns whether a value has all of another one of its kind.
fn has_more(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| found.get(key) == Some(value))
        }
        (Value::Array(found), Value::Array(wanted)) => wanted.iter().all(|it| found.contains(it)),
        _ => false,
    }
}

/// Puts the numbers with which a Job was started in the place of those that are wanted in its spec,
/// where the Job permits that and they are not the agent's alone. `owned` are the fields of its
/// spec.
fn keep_numbers(desired: &mut Value, job: &Value, owned: &Owned<'_>) {
    let least = annotation(job, LEAST).and_then(|text| text.parse::<u64>().ok());
    let Some(least) = least else {
        return;
    };
    for name in NUMBERS {
        let is_permitted = name == "parallelism" || annotation(job, TOGETHER) == Some("true");
        let is_permitted = is_permitted && !owned.field(name).is_agents_alone();
        let (wanted, found) = (desired[name].as_u64(), job["spec"][name].as_u64());
        if let Some((wanted, found)) = wanted.zip(found)
            && is_permitted
            && (least..wanted).contains(&found)
        {
            desired[name] = found.into();
        }
    }
}

/// Entries of `managedFields` for a part of an object.
struct Owned<'a> {
    /// Entries of the agent.
    agents: Vec<&'a Value>,
    /// Entries of all other managers.
    others: Vec<&'a Value>,
}

impl<'a> Owned<'a> {
    /// Returns the entries for a whole object.
    fn of(object: &'a Value) -> Self {
        let of = |is_agents: bool| {
            let entries = entries(object).iter();
            let entries = entries.filter(|it| (it["manager"] == FIELD_MANAGER) == is_agents);
            entries.map(|it| &it["fieldsV1"]).collect()
        };
        Self {
            agents: of(true),
            others: of(false),
        }
    }

    /// Returns the entries for a field.
    fn field(&self, name: &str) -> Self {
        self.part(|key| key.strip_prefix("f:") == Some(name))
    }

    /// Returns the entries for an item of a list whose items have keys.
    fn item(&self, item: &Value) -> Self {
        self.part(|key| {
            let keys = key.strip_prefix("k:");
            let keys: Option<Value> = keys.and_then(|it| serde_json::from_str(it).ok());
            let keys = keys.as_ref().and_then(Value::as_object);
            keys.is_some_and(|keys| keys.iter().all(|(key, value)| item[key.as_str()] == *value))
        })
    }

    fn part(&self, is_it: impl Fn(&str) -> bool) -> Self {
        let part = |entries: &[&'a Value]| {
            let fields = entries.iter().copied().filter_map(Value::as_object);
            let fields = fields.flatten().filter(|(key, _)| is_it(key));
            fields.map(|(_, inner)| inner).collect()
        };
        Self {
            agents: part(&self.agents),
            others: part(&self.others),
        }
    }

    /// Returns whether the agent owns the part, and nobody else. Where a list is owned as a whole,
    /// as the groups of workers of Ray are, nothing is known of who has set what in it.
    fn is_agents_alone(&self) -> bool {
        !self.agents.is_empty() && self.others.is_empty()
    }
}

/// Returns the desired state with the suspension of a queued object as Kueue has decided on it. A
/// value that the agent has set is sent as it is in the member: an apply without it would remove
/// it. Any other is left out.
fn with_decided<'a>(
    desired: Cow<'a, Value>,
    observed: &Value,
    (place, path): (&str, &str),
) -> Cow<'a, Value> {
    let Some(wanted) = suspension(&desired, place) else {
        return desired;
    };
    // Some kinds leave the field out where they are not suspended.
    let decided = suspension(observed, place).filter(|_| is_own(observed, path));
    if decided == Some(wanted) {
        return desired;
    }
    let mut queued = desired.into_owned();
    let fields = queued.pointer_mut(place).and_then(Value::as_object_mut);
    let is_left_empty = fields.is_some_and(|fields| {
        match decided {
            Some(decided) => _ = fields.insert("suspend".to_owned(), decided.into()),
            None => _ = fields.remove("suspend"),
        }
        fields.is_empty()
    });
    // An empty object would differ from the member's, which is not empty, and be applied each time.
    if is_left_empty
        && let Some((around, name)) = place.rsplit_once('/')
        && let Some(around) = queued.pointer_mut(around).and_then(Value::as_object_mut)
    {
        around.remove(name);
    }
    Cow::Owned(queued)
}

fn suspension(object: &Value, place: &str) -> Option<bool> {
    object.pointer(place)?.get("suspend")?.as_bool()
}

/// Returns whether the agent has set the suspension of an object as it is.
fn is_own(observed: &Value, path: &str) -> bool {
    let mut entries = entries(observed).iter();
    entries.any(|entry| {
        let is_agents = entry["manager"] == FIELD_MANAGER && !is_of_subresource(entry);
        is_agents && entry["fieldsV1"].pointer(path).is_some()
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use muster_shared::names::label::KUEUE_QUEUE;
    use serde_json::json;

    use super::*;

    #[test]
    fn kueue_decides_whether_a_workload_in_its_queues_is_suspended() {
        let (queue, none) = (json!({KUEUE_QUEUE: "team"}), json!({}));
        let (agent, other) = ((FIELD_MANAGER, "Apply"), ("kueue", "Update"));
        let patch = (FIELD_MANAGER, "Update");
        let (starts, stops) = (Some(false), Some(true));
        for (what, kind, labels, by, wanted, there, expected) in [
            ("it waits", "Job", &queue, agent, starts, stops, stops),
            ("preempted", "Job", &queue, other, starts, stops, None),
            ("admitted", "Job", &queue, other, stops, starts, None),
            ("both agree", "Job", &queue, agent, starts, starts, starts),
            ("patched", "JobSet", &queue, patch, starts, stops, stops),
            ("no queue", "Job", &none, other, starts, stops, starts),
            ("no Job", "CronJob", &queue, other, stops, starts, stops),
            ("nothing wanted", "Job", &queue, other, None, stops, None),
            ("left out", "RayJob", &queue, other, stops, None, None),
        ] {
            let (manager, operation) = by;
            for is_in_policy in [false, true] {
                let inside = |fields: Value, policy: &str| {
                    if is_in_policy {
                        json!({ policy: fields })
                    } else {
                        fields
                    }
                };
                let object = |fields: Value| json!({"apiVersion": "example.com/v1", "kind": kind, "spec": inside(fields, "runPolicy")});
                let fields = |suspend: Option<bool>| match suspend {
                    Some(suspend) => json!({"suspend": suspend, "x": 1}),
                    None => json!({"x": 1}),
                };
                let owned = match there {
                    Some(_) => json!({"f:suspend": {}}),
                    None => json!({}),
                };
                let mut observed = object(fields(there));
                observed["metadata"] = json!({"labels": labels, "managedFields": [{
                    "manager": manager, "operation": operation,
                    "fieldsV1": {"f:spec": inside(owned, "f:runPolicy")},
                }]});
                let desired = object(fields(wanted));
                let after = with_queued(Cow::Borrowed(&desired), &observed);
                let expected = object(fields(expected));
                assert_eq!(*after, expected, "{what}, in a policy: {is_in_policy}");
            }
        }
    }

    #[test]
    fn what_kueue_has_started_keeps_the_nodes_that_were_added() {
        let pods = |fields: &Value| {
            let mut pods = json!({"template": {"spec": {"containers": []}}});
            merge::apply(&mut pods["template"]["spec"], fields);
            pods
        };
        let tolerating = |keys: &[&str]| {
            let all: Vec<_> = keys.iter().map(|key| json!({"key": key})).collect();
            json!({"tolerations": all})
        };
        let (a, ab, none) = (tolerating(&["a"]), tolerating(&["a", "b"]), tolerating(&[]));
        let ours = json!({"nodeSelector": {"arch": "arm64"}});
        let both = json!({"nodeSelector": {"arch": "arm64", "zone": "b"}});
        let other = json!({"nodeSelector": {"zone": "b"}});
        let (job, torch, set, ray, web) = (
            "batch/v1",
            "kubeflow.org/v1",
            "jobset.x-k8s.io/v1",
            "ray.io/v1",
            "apps/v1",
        );
        for (what, version, wanted, there, expected) in [
            ("nodes", job, &ours, &both, &both),
            ("other nodes", job, &ours, &other, &ours),
            ("tolerations", job, &a, &ab, &ab),
            ("no toleration", job, &a, &none, &a),
            ("nodes of workers", torch, &ours, &both, &both),
            ("nodes of one of several", set, &ours, &both, &both),
            ("nodes of a group of workers", ray, &ours, &both, &both),
            ("pods that are queued", web, &ours, &both, &ours),
        ] {
            let spec = |fields: &Value| match version {
                "kubeflow.org/v1" => json!({"replicas": {"Worker": pods(fields)}}),
                "jobset.x-k8s.io/v1" => {
                    let (first, mut second) = (json!({"name": "a"}), pods(fields));
                    second["name"] = json!("b");
                    json!({"jobs": [first, second]})
                }
                "ray.io/v1" => {
                    let mut group = pods(fields);
                    group["groupName"] = json!("a");
                    json!({"workerGroupSpecs": [group]})
                }
                _ => pods(fields),
            };
            let owned = json!({"f:nodeSelector": {}, "f:tolerations": {}});
            let owned = json!({"f:template": {"f:spec": owned}});
            let item = r#"k:{"name":"b"}"#;
            let owned = match version {
                "kubeflow.org/v1" => json!({"f:replicas": {"f:Worker": owned}}),
                "jobset.x-k8s.io/v1" => json!({"f:jobs": {item: owned}}),
                "ray.io/v1" => json!({"f:workerGroupSpecs": {}}),
                _ => owned,
            };
            let object =
                |fields: &Value| json!({"apiVersion": version, "kind": "X", "spec": spec(fields)});
            let (desired, mut observed) = (object(wanted), object(there));
            let by = |manager: &str| {
                let fields = json!({"f:spec": owned});
                let entry = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
                json!({"labels": {KUEUE_QUEUE: "team"}, "managedFields": [entry]})
            };
            let after =
                |observed: &Value| with_queued(Cow::Borrowed(&desired), observed)["spec"].clone();
            // The template had more before; a list that is owned as a whole does not show that.
            let of_agent = if version == ray { expected } else { wanted };
            observed["metadata"] = by(FIELD_MANAGER);
            assert_eq!(after(&observed), spec(of_agent), "{what}, of the agent");
            observed["metadata"] = by("kueue");
            assert_eq!(after(&observed), spec(expected), "{what}");
            observed["spec"]["suspend"] = json!(true);
            assert_eq!(after(&observed), spec(wanted), "{what}, suspended");
        }
    }

    #[test]
    fn a_job_that_permits_that_keeps_the_smaller_numbers_with_which_kueue_has_started_it() {
        let of = |pods: u32, ends: u32| json!({"parallelism": pods, "completions": ends});
        let (none, least) = (json!({}), json!({LEAST: "2"}));
        let together = json!({LEAST: "2", TOGETHER: "true"});
        for (annotations, wanted, there, expected) in [
            (&least, of(9, 9), of(3, 9), of(3, 9)),
            (&least, of(9, 9), of(3, 3), of(3, 9)),
            (&together, of(9, 9), of(3, 3), of(3, 3)),
            (&least, of(9, 9), of(1, 9), of(9, 9)),
            (&least, of(3, 9), of(9, 9), of(3, 9)),
            (&none, of(9, 9), of(3, 9), of(9, 9)),
        ] {
            let job = |spec: &Value| json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec});
            let (desired, mut observed) = (job(&wanted), job(&there));
            let mut spec_by = |manager: &str| {
                let fields = json!({"f:spec": {"f:parallelism": {}, "f:completions": {}}});
                observed["metadata"] = json!({
                    "labels": {KUEUE_QUEUE: "team"}, "annotations": annotations,
                    "managedFields": [{"manager": manager, "fieldsV1": fields}],
                });
                with_queued(Cow::Borrowed(&desired), &observed)["spec"].clone()
            };
            // The template had fewer before.
            assert_eq!(spec_by(FIELD_MANAGER), wanted, "{annotations} {there}");
            let after = spec_by("kueue");
            assert_eq!(after, expected, "{annotations} {wanted} {there}");
        }
    }

    #[test]
    fn a_policy_of_runs_that_only_suspends_is_left_out_with_that() {
        let spec = |policy: Value| json!({"kind": "MPIJob", "spec": {"runPolicy": policy, "x": 1}});
        let mut observed = spec(json!({"suspend": false}));
        observed["metadata"] = json!({"labels": {KUEUE_QUEUE: "team"}});
        let (only, more) = (
            json!({"suspend": true}),
            json!({"suspend": true, "backoffLimit": 1}),
        );
        for (policy, expected) in [(only, Value::Null), (more, json!({"backoffLimit": 1}))] {
            let desired = spec(policy);
            let after = with_queued(Cow::Borrowed(&desired), &observed);
            let left = after["spec"].get("runPolicy").cloned();
            assert_eq!(left.unwrap_or_default(), expected, "{desired}");
            assert_eq!(after["spec"]["x"], 1);
        }
    }
}
