//! Many questions, objects that change all the time, and what comes of a question that is lost: by
//! a sender without a network, at paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use muster_shared::controller::Watched as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::*;
use crate::Interpreters;

type Sending = BoxFuture<'static, Result<Bytes, Fault>>;

/// Webhooks that `send` answers.
fn running(
    send: impl Fn(Request) -> Sending + Send + Sync + 'static,
) -> (Arc<Webhooks>, Arc<Hook>, DropGuard) {
    muster_shared::tls::install_provider();
    let hooks = hooks();
    let webhooks = Arc::new(Webhooks::sending(send));
    webhooks.retain(&hooks);
    let hook = hooks.find("v1", "Widget", Operation::InterpretHealth);
    let hook = Arc::clone(hook.unwrap());
    let shutdown = CancellationToken::new();
    let (runs, ends) = (Arc::clone(&webhooks), shutdown.clone());
    tokio::spawn(async move { runs.run(ends, |_| {}).await });
    (webhooks, hook, shutdown.drop_guard())
}

fn taken_kib(webhooks: &Webhooks) -> usize {
    webhooks.state.lock().taken_kib()
}

/// Makes two webhooks: one for the kind `Stuck`, and one for all others.
fn hooks() -> Hooks {
    let webhook = |name: &str, kind: &str| {
        json!({
            "name": name, "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": { "url": "https://localhost:1/" },
            "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": [kind] }],
        })
    };
    let webhooks = [
        webhook("a.example.com", "Stuck"),
        webhook("b.example.com", "*"),
    ];
    let configuration = json!({ "metadata": { "name": "c" }, "webhooks": webhooks });
    Hooks::new([&serde_json::from_value(configuration).unwrap()])
}

fn widget(name: &str, version: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Widget", "metadata": { "name": name },
        "spec": { "version": version } })
}

/// Returns an answer that has a field.
fn said(field: &str, value: &Value) -> Bytes {
    let mut response = json!({ "successful": true });
    response[field] = value.clone();
    json!({ "response": response }).to_string().into()
}

fn healthy() -> Bytes {
    said("healthy", &json!(true))
}

/// Returns the object that a question is about.
fn object(request: &Request) -> Value {
    Objects::of(&request.body).unwrap().object
}

fn health(webhooks: &Webhooks, hook: &Arc<Hook>, object: &Value) -> Asked {
    let question = Question::new(Operation::InterpretHealth, object);
    webhooks.ask(hook, &question, true)
}

/// Asks until there is an answer that fits; returns how many times it was asked.
async fn answered(webhooks: &Webhooks, hook: &Arc<Hook>, object: &Value) -> usize {
    let mut times = 0;
    loop {
        times += 1;
        match health(webhooks, hook, object) {
            Asked::Answered(_) => return times,
            Asked::Late(_, pending) | Asked::Pending(pending) => pending.answered().await,
            Asked::Failed(failure) => panic!("{failure}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changes_faster_than_its_answers_come_is_answered_by_an_earlier_version() {
    let at_a_time = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&at_a_time);
    let (webhooks, hook, _running) = running(move |request| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            assert_eq!(count.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
            tokio::time::sleep(Duration::from_secs(3)).await;
            count.fetch_sub(1, Ordering::Relaxed);
            let version = object(&request)["spec"]["version"].clone();
            Ok(said("rawStatus", &json!({ "of": version })))
        })
    });
    let begun = Instant::now();
    let ask = |version| {
        let widget = widget("w", version);
        webhooks.ask(
            &hook,
            &Question::new(Operation::InterpretStatus, &widget),
            true,
        )
    };
    let mut late = Vec::new();
    for version in 0..20 {
        match ask(version) {
            Asked::Pending(_) => assert!(begun.elapsed() < Duration::from_secs(7)),
            Asked::Late(Answer::Status(Some(status)), _) => {
                late.push(status["of"].as_u64().unwrap());
            }
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Each is about a version that was asked, and they go on.
    assert!(late.len() >= 13, "{late:?}");
    assert!(late.is_sorted() && late.last() >= Some(&12), "{late:?}");
    // Who accepts the present version alone waits, and gets it once it stays.
    let last = widget("w", 20);
    let question = Question::new(Operation::InterpretStatus, &last);
    assert!(matches!(
        webhooks.ask(&hook, &question, false),
        Asked::Pending(_)
    ));
    let reply = loop {
        match webhooks.ask(&hook, &question, false) {
            Asked::Answered(reply) => break reply,
            Asked::Pending(pending) => pending.answered().await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reply, Answer::Status(Some(json!({ "of": 20 }))));
    assert!(matches!(ask(20), Asked::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn a_late_patch_is_one_of_the_version_that_was_asked_and_never_of_what_a_member_changed() {
    let (webhooks, hook, _running) = running(|request| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let all = Objects::of(&request.body).unwrap();
            let value = match all.observed_object {
                Some(observed) => observed["spec"]["size"].clone(),
                None => json!(9),
            };
            let patch = json!([{ "op": "add", "path": "/spec/size", "value": value }]);
            let response = super::patch(&patch);
            let response = json!({ "response": { "successful": true,
                "patchType": response["patchType"], "patch": response["patch"] } });
            Ok(response.to_string().into())
        })
    });
    let mut revised = Vec::new();
    for version in 0..12 {
        let widget = widget("w", version);
        let question = Question {
            replicas: 9,
            ..Question::new(Operation::ReviseReplica, &widget)
        };
        if let Asked::Late(Answer::Object(object), _) = webhooks.ask(&hook, &question, true) {
            assert_eq!(object["spec"]["size"], 9);
            revised.push(object["spec"]["version"].as_u64().unwrap());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(
        revised.len() >= 4 && revised.last() < Some(&11),
        "{revised:?}"
    );

    for (what, is_late) in [("status", true), ("size", false)] {
        let mut found = 0;
        for version in 0..12 {
            let desired = widget(what, 0);
            let mut observed = json!({ "metadata": { "uid": what }, "spec": { "size": 1 } });
            match what {
                "status" => observed["status"] = json!(version),
                _ => observed["spec"]["size"] = json!(version),
            }
            let question = Question {
                observed: Some(&observed),
                ..Question::new(Operation::Retain, &desired)
            };
            if let Asked::Late(Answer::Object(object), _) = webhooks.ask(&hook, &question, true) {
                assert_eq!(object["spec"]["size"], 1);
                found += 1;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(found > 0, is_late, "{what}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_lost_by_a_panic_has_failed_and_is_asked_again() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let (webhooks, hook, _running) = running(move |_| {
        let broken = broken.load(Ordering::Relaxed);
        Box::pin(async move {
            assert!(!broken, "it is broken");
            Ok(healthy())
        })
    });
    let widget = widget("w", 0);
    let Asked::Pending(pending) = health(&webhooks, &hook, &widget) else {
        panic!("it is not known yet");
    };
    timeout(Duration::from_mins(1), pending.answered())
        .await
        .unwrap();
    let Asked::Failed(failure) = health(&webhooks, &hook, &widget) else {
        panic!("it has failed");
    };
    assert!(matches!(failure.fault, Fault::Malformed(_)), "{failure}");
    is_broken.store(false, Ordering::Relaxed);
    tokio::time::sleep(failure.retry_after.unwrap()).await;
    assert_eq!(answered(&webhooks, &hook, &widget).await, 2);
    assert_eq!(taken_kib(&webhooks), 0);
}

#[tokio::test(start_paused = true)]
async fn many_more_questions_than_there_is_room_for_are_asked_in_order_and_read_twice_each() {
    const OBJECTS: usize = 5_000;
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let to = Arc::clone(&order);
    let (webhooks, hook, _running) = running(move |request| {
        let version = object(&request)["spec"]["version"].as_u64().unwrap();
        to.lock().push(usize::try_from(version).unwrap());
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(healthy())
        })
    });
    let widgets: Vec<Value> = (0..OBJECTS)
        .map(|at| widget(&format!("w{at}"), at))
        .collect();
    let all = widgets.iter().map(|it| answered(&webhooks, &hook, it));
    let times: Vec<usize> = all.collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(times.len(), OBJECTS);
    // Those without room are called once, and ask once more for the answer.
    let looks: usize = times.iter().sum();
    assert!(looks <= 3 * OBJECTS, "{looks} looks at {OBJECTS} objects");
    let order = order.lock();
    assert_eq!(order.len(), OBJECTS, "each was asked once");
    let is_in_turn = |(at, version): (usize, &usize)| at.abs_diff(*version) <= 16;
    assert!(order.iter().enumerate().all(is_in_turn));
    assert_eq!(taken_kib(&webhooks), 0);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_room_get_it_though_others_give_up_and_the_webhook_goes_and_comes() {
    let (webhooks, hook, _running) = running(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(healthy())
        })
    });
    let widgets: Vec<Value> = (0..1_500).map(|at| widget(&format!("w{at}"), at)).collect();
    // Nobody comes for the room of these.
    for widget in &widgets {
        assert!(matches!(
            health(&webhooks, &hook, widget),
            Asked::Pending(_)
        ));
    }
    let last = widget("last", 0);
    let times = timeout(Duration::from_secs(20), answered(&webhooks, &hook, &last));
    assert_eq!(times.await, Ok(3));
    for widget in &widgets {
        health(&webhooks, &hook, widget);
    }
    tokio::task::yield_now().await;
    webhooks.retain(&Hooks::default());
    webhooks.retain(&hooks());
    let all = widgets.iter().map(|it| answered(&webhooks, &hook, it));
    let all = all.collect::<FuturesUnordered<_>>().collect::<Vec<_>>();
    let times = timeout(Duration::from_secs(20), all).await.unwrap();
    assert_eq!(times.len(), widgets.len());
    tokio::time::sleep(2 * SEARCH).await;
    assert_eq!(taken_kib(&webhooks), 0);
}

#[tokio::test(start_paused = true)]
async fn the_questions_to_a_webhook_are_bounded_together_and_nothing_is_lost() {
    const LARGE: usize = 600_000;
    let most = Arc::new(AtomicUsize::new(0));
    let (webhooks, hook, _running) = running(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(healthy())
        })
    });
    let widgets: Vec<Value> = (0..40)
        .map(|at| {
            let mut widget = widget(&format!("w{at}"), at);
            widget["kind"] = json!(format!("Kind{}", at % 8));
            widget["spec"]["text"] = json!("x".repeat(LARGE));
            widget
        })
        .collect();
    let all = widgets.iter().map(|it| async {
        let asking = answered(&webhooks, &hook, it).await;
        most.fetch_max(taken_kib(&webhooks), Ordering::Relaxed);
        asking
    });
    let looks: Vec<usize> = all.collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(looks.len(), widgets.len());
    let most = most.load(Ordering::Relaxed);
    assert!((4 << 10..=8 << 10).contains(&most), "{most} KiB");
    assert_eq!(taken_kib(&webhooks), 0);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_with_a_full_queue_delays_no_other() {
    let (webhooks, hook, _running) = running(|request| {
        Box::pin(async move {
            if request.at.kind == "Stuck" {
                std::future::pending::<()>().await;
            }
            Ok(healthy())
        })
    });
    let hooks = hooks();
    let stuck = hooks.find("v1", "Stuck", Operation::InterpretHealth);
    for at in 0..3_000 {
        let mut object = widget(&format!("s{at}"), at);
        object["kind"] = json!("Stuck");
        let asked = health(&webhooks, stuck.unwrap(), &object);
        assert!(matches!(asked, Asked::Pending(_)), "{asked:?}");
    }
    assert_eq!(
        taken_kib(&webhooks),
        2 << 10,
        "no room for more of the kind"
    );
    let widget = widget("w", 0);
    let answered = answered(&webhooks, &hook, &widget);
    let times = timeout(Duration::from_millis(1), answered).await;
    assert_eq!(times, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_kind_with_many_objects_delays_no_other_of_the_same_webhook() {
    let (webhooks, hook, _running) = running(|request| {
        Box::pin(async move {
            if request.at.kind == "Slow" {
                tokio::time::sleep(Duration::from_secs(9)).await;
            }
            Ok(healthy())
        })
    });
    for at in 0..3_000 {
        let mut slow = widget(&format!("s{at}"), at);
        slow["kind"] = json!("Slow");
        let asked = health(&webhooks, &hook, &slow);
        assert!(matches!(asked, Asked::Pending(_)), "{asked:?}");
    }
    for after in [0, 60] {
        tokio::time::sleep(Duration::from_secs(after)).await;
        let widget = widget(&format!("w{after}"), 0);
        let answered = answered(&webhooks, &hook, &widget);
        let times = timeout(Duration::from_secs(1), answered).await;
        assert_eq!(times, Ok(2), "after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_webhook_that_answers_again_is_asked_about_all_at_once() {
    let is_down = Arc::new(AtomicBool::new(true));
    let asked = Arc::new(AtomicUsize::new(0));
    let (down, count) = (Arc::clone(&is_down), Arc::clone(&asked));
    let (webhooks, hook, _running) = running(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let is_down = down.load(Ordering::Relaxed);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let fault = is_down.then_some(Fault::Timeout(1));
            fault.map_or_else(|| Ok(healthy()), Err)
        })
    });
    let widgets: Vec<Value> = (0..20).map(|at| widget(&format!("w{at}"), at)).collect();
    let ask = |widget| health(&webhooks, &hook, widget);
    for widget in &widgets {
        assert!(matches!(ask(widget), Asked::Pending(_)));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Those that waited in the queue were not sent.
    assert!(asked.load(Ordering::Relaxed) <= 6);
    let Asked::Failed(failure) = ask(&widgets[19]) else {
        panic!("it is suspended");
    };
    assert!(matches!(failure.fault, Fault::Suspended(_)), "{failure}");
    is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(failure.retry_after.unwrap()).await;
    let before = asked.load(Ordering::Relaxed);
    for widget in &widgets {
        assert!(matches!(ask(widget), Asked::Pending(_)));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "one probes");
    let all = widgets.iter().map(|it| answered(&webhooks, &hook, it));
    let all = all.collect::<FuturesUnordered<_>>().collect::<Vec<_>>();
    timeout(Duration::from_secs(7), all).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_question_is_written_once_the_state_is_not_locked_any_more() {
    let (webhooks, hook, _running) = running(|_| Box::pin(std::future::pending()));
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    for (operation, object, is_kept) in [
        (Operation::InterpretHealth, widget("w", 0), false),
        (Operation::ReviseReplica, widget("w", 0), true),
        (Operation::ReviseReplica, secret, false),
    ] {
        let question = Question::new(operation, &object);
        let asking = Asking::new(&hook, &question);
        let found = webhooks
            .state
            .lock()
            .ask(&asking, &hook, &question, Instant::now());
        let Found::Waits(_, _, Some(mut queued)) = found else {
            panic!("it is to be sent");
        };
        assert!(queued.request.body.is_empty() && queued.question.is_none());
        queued.write(&question);
        assert_eq!(Objects::of(&queued.request.body).unwrap().object, object);
        let kept = queued.question.map(|it| Objects::of(&it).unwrap().object);
        assert_eq!(kept, is_kept.then_some(object));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_applied_is_asked_for_more_and_more_seldom() {
    let is_wrong = Arc::new(AtomicBool::new(true));
    let wrong = Arc::clone(&is_wrong);
    let (webhooks, hook, _running) = running(move |_| {
        let is_wrong = wrong.load(Ordering::Relaxed);
        let field = if is_wrong { "missing" } else { "version" };
        let removal = json!([{ "op": "remove", "path": format!("/spec/{field}") }]);
        let mut response = super::patch(&removal);
        response["successful"] = json!(true);
        let response = json!({ "response": response });
        Box::pin(async move { Ok(response.to_string().into()) })
    });
    let (desired, observed) = (widget("w", 0), widget("w", 0));
    let question = Question {
        observed: Some(&observed),
        ..Question::new(Operation::Retain, &desired)
    };
    let outcome = async || loop {
        match webhooks.ask(&hook, &question, true) {
            Asked::Pending(pending) => pending.answered().await,
            other => return other,
        }
    };
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let Asked::Failed(failure) = outcome().await else {
            panic!("there is nothing to be removed");
        };
        assert!(matches!(failure.fault, Fault::Malformed(_)), "{failure}");
        let pause = failure.retry_after.unwrap();
        // Another that got the same answer at the same time adds nothing.
        let asking = Asking::new(&hook, &question);
        let (name, now) = ("w".to_owned(), Instant::now());
        let again = webhooks
            .state
            .lock()
            .spoil(&asking, name, &failure.fault, now);
        assert_eq!(again, Some(pause));
        pauses.push(pause.as_secs());
        tokio::time::sleep(pause).await;
    }
    assert_eq!(pauses, [5, 10, 20, 40]);
    is_wrong.store(false, Ordering::Relaxed);
    assert!(matches!(outcome().await, Asked::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_gone_is_not_asked_any_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let is_dropped = Arc::new(AtomicBool::new(false));
    let (count, dropped) = (Arc::clone(&asked), Arc::clone(&is_dropped));
    let (webhooks, hook, _running) = running(move |_| {
        struct Noted(Arc<AtomicBool>);
        impl Drop for Noted {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        let noted = Noted(Arc::clone(&dropped));
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(noted);
            Ok(healthy())
        })
    });
    let Asked::Pending(first) = health(&webhooks, &hook, &widget("a", 0)) else {
        panic!("it is on the way");
    };
    tokio::task::yield_now().await;
    webhooks.retain(&Hooks::default());
    first.answered().await;
    // Whoever took the webhooks a moment before it went.
    let Asked::Pending(pending) = health(&webhooks, &hook, &widget("b", 0)) else {
        panic!("it is to be asked anew");
    };
    pending.answered().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(
        is_dropped.load(Ordering::Relaxed),
        "what was on the way ends"
    );
    assert_eq!(taken_kib(&webhooks), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_operation_suspend_no_other() {
    let (webhooks, hook, _running) = running(|request| {
        Box::pin(async move {
            match request.at.operation {
                Operation::InterpretStatus => Err(Fault::Timeout(1)),
                _ => Ok(healthy()),
            }
        })
    });
    for at in 0..5 {
        let widget = widget(&format!("w{at}"), at);
        let question = Question::new(Operation::InterpretStatus, &widget);
        while let Asked::Pending(pending) = webhooks.ask(&hook, &question, true) {
            pending.answered().await;
        }
    }
    let other = widget("other", 0);
    let question = Question::new(Operation::InterpretStatus, &other);
    let Asked::Failed(failure) = webhooks.ask(&hook, &question, true) else {
        panic!("it is suspended");
    };
    assert!(matches!(failure.fault, Fault::Suspended(_)), "{failure}");
    assert_eq!(answered(&webhooks, &hook, &other).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_does_not_answer_for_a_minute_is_reported_and_answers_are_asked_again_later()
{
    muster_shared::tls::install_provider();
    // The questions are never answered.
    let silent = Webhooks::sending(|_| std::future::pending());
    let one = Arc::new(Interpreters::with_webhooks(silent));
    one.set(crate::lua::Rules::default());
    one.set_hooks(hooks());
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&reported);
    one.on_failure(move |failed| to.lock().push(failed.note.clone()));
    let heard: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (to, begun) = (Arc::clone(&heard), Instant::now());
    one.on_change(move |changed| {
        assert!(changed.has("v1", "Widget"));
        to.lock().push(begun.elapsed());
    });
    let (runs, shutdown) = (Arc::clone(&one), CancellationToken::new());
    let ends = shutdown.clone();
    tokio::spawn(async move { runs.run(ends).await });
    assert!(one.health(&widget("w", 0)).unwrap_err().pending().is_some());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(reported.lock().is_empty());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let notes = reported.lock().clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("about 1 objects") && notes[0].contains("\"w\""),
        "{notes:?}"
    );
    tokio::time::sleep(VALID).await;
    assert_eq!(*heard.lock(), [VALID]);
    shutdown.cancel();
}
