use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::digest::digest;
use crate::work::member::FIELD_MANAGER;

/// Returns the difference between the desired and the observed state of an object of which nothing
/// is remembered.
fn difference(desired: &Value, observed: &Value) -> Option<Difference> {
    let key = ObjectKey::of(desired, 0).unwrap();
    Drift::new(true, Arc::default())
        .needs_apply(&key, desired, observed)
        .unwrap()
}

fn applied(object: &Value, fields: &Value) -> Value {
    let mut observed = object.clone();
    observed["metadata"]["managedFields"] =
        json!([{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}]);
    observed
}

#[test]
fn what_admission_and_the_scheduler_add_to_a_bare_pod_is_no_reason_to_send_anything() {
    let container = json!({"name": "web", "image": "nginx"});
    let desired = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [container], "tolerations": [{"key": "gpu"}], "nodeSelector": {"zone": "a"}}});
    let mut found = desired.clone();
    found["spec"]["tolerations"] = json!([{"key": "gpu"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 300}]);
    found["spec"]["nodeSelector"] = json!({"zone": "a", "pool": "x"});
    found["spec"]["nodeName"] = json!("n1");
    let fields = json!({"f:spec": {"f:tolerations": {}, "f:nodeSelector": {},
        "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
    let mut observed = applied(&found, &fields);
    assert!(difference(&desired, &observed).is_none());

    observed["spec"]["containers"][0]["image"] = json!("other");
    let sent = difference(&desired, &observed).unwrap().apply.unwrap();
    assert_eq!(sent["spec"]["tolerations"], found["spec"]["tolerations"]);
}

/// Returns a Job as its agent sends it, and as the member keeps it: the server gives it a selector
/// in the place of an empty one, and its pods labels.
fn job() -> (Value, Value) {
    let job = |selector: &Value, labels: &Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {
            "parallelism": 1, "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never"}}}})
    };
    let desired = job(&json!({}), &json!({"app": "a"}));
    let kept = job(
        &json!({"batch.kubernetes.io/controller-uid": "1"}),
        &json!({"app": "a", "batch.kubernetes.io/controller-uid": "1", "job-name": "a"}),
    );
    let fields = json!({"f:spec": {"f:parallelism": {}, "f:selector": {}, "f:template": {
        "f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:restartPolicy": {}}}}});
    (desired, applied(&kept, &fields))
}

#[test]
fn a_job_whose_selector_the_member_filled_in_is_not_sent_again() {
    let (desired, observed) = job();
    assert_eq!(difference(&desired, &observed), None);

    let mut wanted = desired.clone();
    wanted["spec"]["parallelism"] = json!(2);
    let sent = difference(&wanted, &observed).unwrap().apply.unwrap();
    assert_eq!(sent["spec"]["parallelism"], 2);
    assert_eq!(sent["spec"]["selector"], observed["spec"]["selector"]);

    let mut changed = observed.clone();
    changed["spec"]["parallelism"] = json!(0);
    assert!(difference(&desired, &changed).is_some(), "drift");

    let mut wanted = desired.clone();
    wanted["spec"]["template"]["metadata"]["labels"]["more"] = json!("1");
    assert!(difference(&wanted, &observed).is_some(), "another label");
}

#[test]
fn a_job_that_kueue_suspends_or_starts_is_not_sent_again() {
    let queue = json!({(muster_shared::names::label::KUEUE_QUEUE): "team"});
    for (wanted, decided) in [(false, true), (true, false)] {
        let (mut desired, mut observed) = job();
        desired["spec"]["suspend"] = json!(wanted);
        observed["spec"]["suspend"] = json!(decided);
        let decision = json!({"manager": "kueue", "operation": "Update",
            "fieldsV1": {"f:spec": {"f:suspend": {}}}});
        let entries = observed["metadata"]["managedFields"].as_array_mut();
        entries.unwrap().push(decision);
        assert!(difference(&desired, &observed).is_some(), "no queue");
        observed["metadata"]["labels"] = queue.clone();
        assert_eq!(difference(&desired, &observed), None, "{decided}");

        desired["spec"]["parallelism"] = json!(2);
        let sent = difference(&desired, &observed).unwrap().apply.unwrap();
        assert_eq!(sent["spec"].get("suspend"), None, "it is left to Kueue");
    }
}

/// Returns a desired state and the object that a server makes of it, when the server writes
/// durations in its own form.
fn normalized(timeout: &str) -> (ObjectKey, Value, Value) {
    let thing = |timeout: &str| json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"timeout": timeout}});
    let desired = thing(timeout);
    let object = applied(&thing("1m0s"), &json!({"f:spec": {"f:timeout": {}}}));
    (ObjectKey::of(&desired, 0).unwrap(), desired, object)
}

#[test]
fn what_came_back_once_is_not_sent_again_until_one_side_changes() {
    let drift = Drift::new(true, Arc::default());
    let (key, desired, object) = normalized("60s");
    let differs = |desired: &Value, object: &Value| {
        let difference = drift.needs_apply(&key, desired, object);
        difference.unwrap().is_some()
    };
    assert!(differs(&desired, &object), "nothing was sent yet");
    drift.applied(&key, &desired, &object);
    assert!(!differs(&desired, &object));
    assert!(
        differs(&normalized("90s").1, &object),
        "another desired state"
    );
    let mut changed = object.clone();
    changed["spec"]["timeout"] = json!("2m0s");
    assert!(differs(&desired, &changed), "drift");
    drift.gone(&key);
    assert!(differs(&desired, &object), "it was deleted meanwhile");
}

#[test]
fn fields_that_were_left_out_are_reported_once_and_written_again_when_others_are() {
    let drift = Drift::new(true, Arc::default());
    let (key, desired, object) = normalized("60s");
    let is_left_out = |words: &str| drift.is_left_out(&key, &desired, &object, words);
    assert!(!is_left_out("a; b"), "nothing was written yet");
    for (words, is_update) in [("a; b", true), ("a; b", false), ("b", true)] {
        assert_eq!(is_left_out(words), !is_update, "{words}");
        let found = drift.left_out(&key, &desired, &object, words);
        assert_eq!(found, is_update, "{words}");
        assert_eq!(drift.words(&key).as_deref(), Some(words));
    }
    drift.applied(&key, &desired, &object);
    assert!(!is_left_out("b"), "it was applied whole");
    assert_eq!(drift.words(&key), None);
}

#[test]
fn an_answer_that_seems_settled_is_not_remembered() {
    let drift = Drift::new(true, Arc::default());
    let (key, desired, object) = normalized("60s");
    drift.applied(&key, &desired, &object);
    assert_eq!(drift.remembered(), 1);
    let (_, settled, _) = normalized("1m0s");
    drift.applied(&key, &settled, &object);
    assert_eq!(drift.remembered(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_listed_as_desired_is_read_once_it_changes() {
    type Event = fn(&Drift, &ObjectKey, &Value, &Value);
    let (key, desired, object) = normalized("1m0s");
    let cases: [(&str, Event, bool); 5] = [
        ("no event", |_, _, _, _| {}, false),
        (
            "a watch shows it unchanged",
            |drift, key, desired, object| _ = drift.seen(key, desired, object),
            false,
        ),
        (
            "a watch shows it changed",
            |drift, key, desired, object| {
                let mut changed = object.clone();
                changed["spec"]["timeout"] = json!("2m0s");
                assert!(drift.seen(key, desired, &changed).unwrap().is_some());
            },
            true,
        ),
        (
            "it changed and cannot be compared",
            |drift, key, _, _| drift.doubt(key),
            true,
        ),
        ("it is gone", |drift, key, _, _| drift.gone(key), true),
    ];
    for (what, event, needs_read) in cases {
        let drift = Drift::new(true, Arc::default());
        drift.listed(&key.kind, [(key.clone(), digest(&desired))]);
        event(&drift, &key, &desired, &object);
        assert_eq!(drift.needs_read(&key, &desired), needs_read, "{what}");
    }
}

/// Returns a Deployment as its Work wants it.
fn deployment(replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "minReadySeconds": 1}})
}

/// Scales an object, as an autoscaler in the member does.
fn scale(object: &mut Value, replicas: u32) {
    object["spec"]["replicas"] = json!(replicas);
    object["metadata"]["managedFields"] = json!([
        {"manager": FIELD_MANAGER, "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:annotations": {(format!("f:{NOTE}")): {}}},
                "f:spec": {"f:minReadySeconds": {}}}},
        {"manager": "hpa", "operation": "Update", "subresource": "scale",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
}

/// Returns the object after an apply.
fn after(apply: &Value) -> Value {
    applied(
        apply,
        &json!({"f:metadata": {"f:annotations": {(format!("f:{NOTE}")): {}}},
            "f:spec": {"f:replicas": {}, "f:minReadySeconds": {}}}),
    )
}

const NOTE: &str = muster_shared::names::annotation::LEFT_TO_AUTOSCALER;

#[test]
fn a_share_that_changed_while_an_autoscaler_had_scaled_is_applied_once_and_then_left() {
    for is_noted in [true, false] {
        let created = if is_noted {
            with_note(deployment(3), &deployment(3), &Value::Null)
        } else {
            deployment(3)
        };
        let mut object = applied(
            &created,
            &json!({"f:spec": {"f:replicas": {}, "f:minReadySeconds": {}}}),
        );
        if is_noted {
            object = after(&created);
        }
        assert_eq!(difference(&deployment(3), &object), None, "it is at rest");
        scale(&mut object, 2);
        let is_left = difference(&deployment(3), &object).is_none();
        assert_eq!(is_left, is_noted, "an old object is written once");
        for share in [10, 1] {
            let sent = difference(&deployment(share), &object).unwrap();
            let sent = sent.apply.unwrap();
            assert_eq!(sent["spec"]["replicas"], share);
            object = after(&sent);
            assert_eq!(difference(&deployment(share), &object), None);
            scale(&mut object, 2);
            assert_eq!(difference(&deployment(share), &object), None, "it is left");
        }
    }
}

#[test]
fn what_was_given_no_replicas_starts_once_it_is_given_some_although_its_member_decides() {
    let desired = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {},
            "labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}},
        "spec": {"replicas": 3}});
    // The number that was applied last, and the one that the object has.
    for (noted, found, starts) in [(0, 0, true), (3, 0, false), (0, 2, false)] {
        let mut observed = applied(&desired, &json!({"f:spec": {"f:replicas": {}}}));
        observed["spec"]["replicas"] = json!(found);
        let note = json!({".spec.replicas": noted}).to_string();
        observed["metadata"]["annotations"][NOTE] = json!(note);
        let sent = difference(&desired, &observed).and_then(|it| it.apply);
        let replicas = sent.map(|it| it["spec"]["replicas"].clone());
        assert_eq!(replicas == Some(json!(3)), starts, "{noted} {found}");
    }
}
