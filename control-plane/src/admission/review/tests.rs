//! Reviews as an API server sends them, and their answers.

use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// Group and kind of the objects that are admitted.
const CLUSTER: (&str, &str) = ("cluster.karmada.io", "Cluster");
const POLICY: (&str, &str) = ("policy.karmada.io", "PropagationPolicy");
const TAINT_POLICY: (&str, &str) = ("policy.karmada.io", "ClusterTaintPolicy");

fn ask(question: Question, (group, kind): (&str, &str), object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": { "group": group, "version": "v1alpha1", "kind": kind }, "operation": operation,
            "object": object, "oldObject": old, "userInfo": { "username": "me" },
        },
    });
    let answer = answer(
        question,
        review.to_string().as_bytes(),
        &Settings::default(),
        now(),
        &Vec::new,
        &|_| Vec::new(),
    )
    .unwrap();
    assert_eq!(answer.review["response"]["uid"], "u");
    answer.review["response"].clone()
}

fn taint_policy(effect: &str) -> Value {
    json!({ "metadata": { "name": "p" }, "spec": { "taintsToAdd": [{ "key": "a", "effect": effect }] } })
}

#[test]
fn a_refusal_says_why_and_a_patch_is_applied_by_the_server() {
    let check = |object: &Value| ask(Question::Check, TAINT_POLICY, object, &Value::Null);
    let refused = check(&taint_policy("NoExecute"));
    assert_eq!(
        (&refused["allowed"], &refused["status"]["code"]),
        (&json!(false), &json!(403))
    );
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.taintsToAdd[0]: Forbidden: "),
        "{message}"
    );
    let allowed = check(&taint_policy("NoSchedule"));
    assert_eq!(allowed, json!({ "uid": "u", "allowed": true }));

    let bare = json!({ "metadata": { "name": "c" }, "spec": {} });
    let changed = ask(Question::Default, CLUSTER, &bare, &Value::Null);
    assert_eq!(changed["patchType"], "JSONPatch");
    let patched = admitted(CLUSTER, &bare, &Value::Null);
    assert_eq!(
        patched["spec"]["resourceModels"].as_array().unwrap().len(),
        9
    );
    let again = ask(Question::Default, CLUSTER, &patched, &bare);
    assert_eq!(again, json!({ "uid": "u", "allowed": true }));
}

#[test]
fn what_was_admitted_before_a_rule_came_stays_writable() {
    let old = taint_policy("NoExecute");
    let mut released = old.clone();
    released["metadata"]["finalizers"] = json!([]);
    let mut worse = old.clone();
    worse["spec"]["taints"] = json!([{ "key": "b", "effect": "NoExecute" }]);
    // Nobody can read these, and yet they can be deleted.
    let odd = json!({ "spec": { "taints": 1 } });
    for (object, old, allowed) in [
        (&released, &old, true),
        (&worse, &old, false),
        (&odd, &odd, true),
        (&odd, &old, false),
    ] {
        let answer = ask(Question::Check, TAINT_POLICY, object, old);
        assert_eq!(answer["allowed"], allowed, "{object}");
    }
}

#[test]
fn what_goes_away_is_left_as_it_is() {
    let metadata =
        json!({ "name": "p", "namespace": "default", "deletionTimestamp": "2026-11-20T11:00:00Z" });
    let going = json!({ "metadata": metadata, "spec": { "resourceSelectors": [{ "apiVersion": "v1", "kind": "Secret" }] } });
    let answer = ask(Question::Default, POLICY, &going, &going);
    assert_eq!(answer, json!({ "uid": "u", "allowed": true }));
}

#[test]
fn only_new_bindings_get_an_identity() {
    let binding = json!({ "metadata": { "name": "b" } });
    for (kind, old, given) in [
        ("ResourceBinding", Value::Null, true),
        ("ClusterResourceBinding", Value::Null, true),
        ("ResourceBinding", binding.clone(), false),
    ] {
        let kind = ("work.karmada.io", kind);
        let answer = ask(Question::Default, kind, &binding, &old);
        assert_eq!(answer.get("patch").is_some(), given, "{kind:?}");
    }
}

#[test]
fn kinds_of_others_pass_and_what_is_no_object_changes_nothing() {
    for question in [Question::Default, Question::Check] {
        let answer = ask(question, ("apps", "Deployment"), &json!({}), &Value::Null);
        assert_eq!(answer, json!({ "uid": "u", "allowed": true }));
    }
    for object in [json!(null), json!("x"), json!({ "spec": 1, "metadata": 2 })] {
        for kind in [POLICY, CLUSTER] {
            let answer = ask(Question::Default, kind, &object, &Value::Null);
            assert_eq!(answer, json!({ "uid": "u", "allowed": true }), "{object}");
            let answer = ask(Question::Check, kind, &object, &Value::Null);
            assert_eq!(answer["allowed"], false, "{object}");
        }
    }
}

#[test]
fn what_is_no_review_is_an_error_with_a_reason() {
    for (body, expected) in [
        ("", "cannot read the AdmissionReview: EOF"),
        ("{}", "cannot read the AdmissionReview: missing field"),
        (
            r#"{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "", "kind": {}, "operation": ""}}"#,
            r#"cannot answer an AdmissionReview of "admission.k8s.io/v1beta1""#,
        ),
    ] {
        let error = answer(
            Question::Check,
            body.as_bytes(),
            &Settings::default(),
            now(),
            &Vec::new,
            &|_| Vec::new(),
        )
        .unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn an_order_is_attributed_to_the_user_who_writes_it_whatever_they_write_it_with() {
    let drained = json!({
        "metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull", "taints": [
            {"key": "failover.muster.io/drain", "effect": "NoExecute", "timeAdded": now()},
        ]},
    });
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    let policy = |suspension: Value| {
        json!({
            "metadata": {
                "name": "p", "namespace": "n", "finalizers": ["propagationpolicy.karmada.io/propagation-policy-controller"],
                "labels": {"propagationpolicy.karmada.io/permanent-id": "i"},
            },
            "spec": {"suspension": suspension},
        })
    };
    let suspended = policy(json!({"dispatching": true}));
    let switched_off = policy(json!({"dispatching": false}));
    for (kind, new, old, expected) in [
        (CLUSTER, &drained, &cluster, Some("drain")),
        (CLUSTER, &drained, &drained, None),
        (CLUSTER, &cluster, &drained, Some("undrain")),
        (POLICY, &suspended, &policy(Value::Null), Some("suspend")),
        (POLICY, &policy(json!({})), &suspended, Some("unsuspend")),
        (POLICY, &switched_off, &suspended, Some("unsuspend")),
        (POLICY, &policy(json!({})), &policy(Value::Null), None),
    ] {
        let answer = ask(Question::Default, kind, new, old);
        let patch = answer["patch"]
            .as_str()
            .map(|it| STANDARD.decode(it).unwrap());
        let patch = patch.map_or_else(String::new, |it| String::from_utf8(it).unwrap());
        let order = |order: &str| format!(r#"\"by\":\"me\",\"order\":\"{order}\""#);
        match expected {
            Some(expected) => assert!(patch.contains(&order(expected)), "{patch}"),
            None => assert!(!patch.contains("ordered-by"), "{patch}"),
        }
    }
}

/// Returns an object as admission changes it.
fn admitted(kind: (&str, &str), new: &Value, old: &Value) -> Value {
    let answer = ask(Question::Default, kind, new, old);
    let mut patched = new.clone();
    if let Some(patch) = answer["patch"].as_str() {
        let patch = STANDARD.decode(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut patched, &patch).unwrap();
    }
    patched
}

/// Returns a cluster out of which movement is paused so.
fn paused(pause: &Value) -> Value {
    json!({
        "metadata": {"name": "m1", "annotations": {"failover.muster.io/paused": pause.to_string()}},
        "spec": {"syncMode": "Pull"},
    })
}

#[test]
fn nobody_pauses_a_cluster_in_the_name_of_another_or_unrecorded() {
    use crate::fleet::pause::Pause;
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    for by in ["ceo", "kubectl-muster"] {
        let new = paused(&json!({"by": by, "reason": "freeze"}));
        let new = admitted(CLUSTER, &new, &cluster);
        let new = cluster::Cluster::deserialize(&new).unwrap();
        let recorded = attribution::Attribution::all(&new.metadata);
        let pause = Pause::of_annotations(&new.metadata).unwrap();
        assert!(!recorded.is_empty(), "{by}: the pause is recorded");
        assert_eq!(pause.by, "me", "{by}: {pause}");
    }
}

#[test]
fn whoever_restores_a_policy_is_not_reported_to_have_given_its_orders_long_ago() {
    let orders = json!([{
        "order": "suspend", "by": "alice", "at": "2020-01-01T00:00:00Z", "reason": "an audit",
    }]);
    let policy = json!({
        "metadata": {
            "name": "p", "namespace": "n",
            "annotations": {ORDERED_BY: orders.to_string()},
        },
        "spec": {"suspension": {"dispatching": true}},
    });
    let new = admitted(POLICY, &policy, &Value::Null);
    let new = policy::Policy::deserialize(&new).unwrap();
    let reported: Vec<_> = attribution::Attribution::all(&new.metadata);
    let lie = reported
        .iter()
        .any(|it| it.by == "me" && it.at < Some(now()));
    assert!(!lie, "{reported:?}");
}

#[test]
fn nobody_prolongs_a_pause_unrecorded_by_calling_it_a_step_of_an_order() {
    use crate::fleet::pause::Pause;
    let paused = |seconds: i64| {
        let until = now() + jiff::SignedDuration::from_secs(seconds);
        paused(&json!({"by": "kubectl-muster", "reason": "", "until": until.to_string()}))
    };
    // A program writes it anew each minute: `kubectl muster` writes none over one that holds.
    let new = admitted(CLUSTER, &paused(110), &paused(50));
    let new = cluster::Cluster::deserialize(&new).unwrap();
    let pause = Pause::of_annotations(&new.metadata).unwrap();
    assert_eq!(pause.by, "me", "{pause}");
    assert!(!attribution::Attribution::all(&new.metadata).is_empty());
}

#[test]
fn a_tool_that_applies_a_pause_again_finds_it_as_it_was_applied() {
    // A tool of GitOps compares what it applies with what there is, and applies it again if they
    // differ.
    let new = paused(&json!({"by": "platform team", "reason": "freeze", "ticket": "OPS-1"}));
    let admitted = admitted(CLUSTER, &new, &Value::Null);
    let there: Value = serde_json::from_str(
        admitted["metadata"]["annotations"]["failover.muster.io/paused"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        there["ticket"], "OPS-1",
        "what people write beside is kept: {there}"
    );
}
