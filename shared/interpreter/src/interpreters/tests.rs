use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use muster_shared::names::label;
use serde_json::json;

use super::*;
use crate::error::AFTER_A_LIMIT;
use crate::lua::Customization;

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const CLONE_SET: (&str, &str) = ("apps.kruise.io/v1alpha1", "CloneSet");
const WIDGET: (&str, &str) = ("example.com/v1", "Widget");

fn object(kind: (&str, &str)) -> Value {
    json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "it", "generation": 1 },
        "spec": { "replicas": 3 }, "status": { "observedGeneration": 1, "updatedReplicas": 1 } })
}

#[test]
fn a_customization_answers_before_the_built_in_script_and_that_before_the_native_rule() {
    let health = [(
        Operation::InterpretHealth,
        "function InterpretHealth(o) return true end",
    )];
    let by_users = Interpreters::of(&[
        Customization::new("d", DEPLOYMENT, &health),
        Customization::new("c", CLONE_SET, &health),
        Customization::new("w", WIDGET, &health),
    ]);
    let without = Interpreters::of(&[]);
    for (kind, expected) in [
        (DEPLOYMENT, Some(false)),
        (CLONE_SET, Some(false)),
        (WIDGET, None),
    ] {
        let object = object(kind);
        assert_eq!(without.health(&object), Ok(expected), "{kind:?}");
        assert_eq!(by_users.health(&object), Ok(Some(true)), "{kind:?}");
    }
    // Other operations follow the rules that there are.
    assert_eq!(
        by_users
            .replicas(&object(DEPLOYMENT))
            .unwrap()
            .unwrap()
            .replicas,
        3
    );
}

#[test]
fn the_label_that_leaves_replicas_to_the_member_counts_beside_a_script_of_the_users() {
    let plain = "function Retain(desired, observed) return desired end";
    let own = "function Retain(desired, observed) desired.spec.replicas = 5 return desired end";
    for (label, script, expected) in [("true", plain, 7), ("false", plain, 3), ("true", own, 5)] {
        let script = [(Operation::Retain, script)];
        let one = Interpreters::of(&[Customization::new("d", DEPLOYMENT, &script)]);
        let (mut desired, mut observed) = (object(DEPLOYMENT), object(DEPLOYMENT));
        desired["metadata"]["labels"] = json!({ label::RETAIN_REPLICAS: label });
        observed["spec"]["replicas"] = json!(7);
        let retained = one.retain(desired, &observed).unwrap();
        assert_eq!(retained["spec"]["replicas"], json!(expected), "{script:?}");
    }
}

#[test]
fn a_kind_without_a_rule_answers_as_before() {
    let one = Interpreters::of(&[]);
    let widget = object(WIDGET);
    assert_eq!(one.replicas(&widget), Ok(None));
    assert_eq!(one.dependencies(&widget), Ok(None));
    assert_eq!(one.health(&widget), Ok(None));
    assert_eq!(one.status(&widget), Ok(Some(widget["status"].clone())));
    let unsupported = |found: Result<_, Error>| matches!(found, Err(Error::Unsupported { .. }));
    assert!(unsupported(one.revise_replica(widget.clone(), 1)));
    assert!(unsupported(one.retain(widget.clone(), &widget)));
    let aggregated = one.aggregate_status(&widget, &[], Timestamp::UNIX_EPOCH);
    assert!(matches!(aggregated, Err(Error::Unsupported { .. })));
    for operation in Operation::ALL {
        let expected = operation == Operation::InterpretStatus;
        assert_eq!(one.has_for(&widget, operation), expected, "{operation}");
    }
}

#[tokio::test]
async fn customizations_are_known_from_the_first_on_and_each_change_names_its_kinds() {
    let one = Arc::new(Interpreters::default());
    assert!(!one.is_known());
    let heard: Arc<Mutex<Vec<Changed>>> = Arc::default();
    let to = Arc::clone(&heard);
    one.on_change(move |changed| to.lock().push(changed.clone()));
    let script = [(Operation::InterpretHealth, "x")];
    let widgets = Customization::new("w", WIDGET, &script);
    one.set(Rules::new([&widgets]));
    assert!(!one.is_known(), "the webhooks are not known");
    one.set_hooks(Hooks::default());
    one.known().await;
    assert!(heard.lock().is_empty());

    let others = Customization::new("d", DEPLOYMENT, &script);
    one.set(one.customized().renewed([&widgets, &others]));
    one.set(one.customized().renewed([&widgets, &others]));
    one.set(one.customized().renewed([&others]));
    let heard = heard.lock();
    let of = |changed: &Changed| [WIDGET, DEPLOYMENT].map(|(of, kind)| changed.has(of, kind));
    let heard: Vec<_> = heard.iter().map(of).collect();
    assert_eq!(heard, [[false, true], [true, false]]);
}

#[tokio::test(start_paused = true)]
async fn the_same_failure_of_a_script_is_reported_about_once_an_hour_and_hurts_its_kind_alone() {
    let broken = [(Operation::InterpretHealth, "function InterpretHealth(")];
    let one = Interpreters::of(&[Customization::new("w", WIDGET, &broken)]);
    let reported = Arc::new(AtomicUsize::new(0));
    let to = Arc::clone(&reported);
    one.on_failure(move |_| _ = to.fetch_add(1, Ordering::Relaxed));
    for (pause, expected) in [(0, 1), (10, 1), (400, 1), (3_000, 2), (10, 2)] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let error = one.health(&object(WIDGET)).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        assert_eq!(error.retry_after(), None);
        assert_eq!(reported.load(Ordering::Relaxed), expected);
    }
    assert_eq!(one.health(&object(DEPLOYMENT)), Ok(Some(false)));
}

#[tokio::test(start_paused = true)]
async fn another_failure_of_a_script_is_reported_after_five_minutes() {
    let script = "function InterpretHealth(o) error(o.spec.why) end";
    let fails = [(Operation::InterpretHealth, script)];
    let one = Interpreters::of(&[Customization::new("w", WIDGET, &fails)]);
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&reported);
    one.on_failure(move |failed| to.lock().push(failed.note.clone()));
    for (pause, why, expected) in [(0, "a", 1), (10, "b", 1), (400, "b", 2), (400, "b", 2)] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let widget = json!({"apiVersion": WIDGET.0, "kind": WIDGET.1, "spec": {"why": why}});
        one.health(&widget).unwrap_err();
        assert_eq!(reported.lock().len(), expected, "{pause} {why}");
    }
}

#[test]
fn a_script_that_is_stopped_is_reported_in_the_same_words_each_time_and_tried_again() {
    let endless = [(
        Operation::InterpretHealth,
        "function InterpretHealth(o) while true do end end",
    )];
    let one = Interpreters::of(&[Customization::new("w", WIDGET, &endless)]);
    let errors: Vec<Error> = (0..4)
        .map(|_| one.health(&object(WIDGET)).unwrap_err())
        .collect();
    assert_eq!(errors[0].retry_after(), Some(AFTER_A_LIMIT));
    assert!(errors[3].retry_after() >= Some(AFTER_A_LIMIT));
    let first = errors[0].to_string();
    let last = errors[3].to_string();
    let same = |text: &str| text.split("limit").next().unwrap_or_default().to_owned();
    assert_eq!(same(&first), same(&last));
}
