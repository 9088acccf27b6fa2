//! Many questions, objects that change all the time, and what comes of a question that is lost: by
//! a sender without a network, at paused time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::*;
use crate::Interpreters;

type Sending = BoxFuture<'static, (Result<Answer, Fault>, usize)>;

/// Webhooks that `send` answers.
fn running(
    send: impl Fn(Request) -> Sending + Send + 'static,
) -> (Arc<Webhooks>, Arc<Hook>, DropGuard) {
    muster_shared::tls::install_provider();
    let hooks = hooks();
    let webhooks = Arc::new(Webhooks::default());
    webhooks.retain(&hooks);
    let hook = hooks.find("v1", "Widget", Operation::InterpretHealth);
    let hook = Arc::clone(hook.unwrap());
    let shutdown = CancellationToken::new();
    let (runs, ends) = (Arc::clone(&webhooks), shutdown.clone());
    tokio::spawn(async move { runs.run_with(ends, |_| {}, send).await });
    (webhooks, hook, shutdown.drop_guard())
}

fn hooks() -> Hooks {
    let configuration = json!({ "metadata": { "name": "c" }, "webhooks": [{
        "name": "all.example.com", "interpreterContextVersions": ["v1alpha1"],
        "clientConfig": { "url": "https://localhost:1/" },
        "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"] }],
    }] });
    Hooks::new([&serde_json::from_value(configuration).unwrap()])
}

fn widget(name: &str, version: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Widget", "metadata": { "name": name },
        "spec": { "version": version } })
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
            (Ok(Answer::Status(json!({ "of": version }))), 10)
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
            Asked::Late(Reply::Status(status), _) => late.push(status["of"].as_u64().unwrap()),
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
    assert_eq!(reply, Reply::Status(json!({ "of": 20 })));
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
            let patch = serde_json::from_value(patch).unwrap();
            (Ok(Answer::Object(patch, None)), 10)
        })
    });
    let mut revised = Vec::new();
    for version in 0..12 {
        let widget = widget("w", version);
        let question = Question {
            replicas: 9,
            ..Question::new(Operation::ReviseReplica, &widget)
        };
        if let Asked::Late(Reply::Object(object), _) = webhooks.ask(&hook, &question, true) {
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
            if let Asked::Late(Reply::Object(object), _) = webhooks.ask(&hook, &question, true) {
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
            (Ok(Answer::Health(true)), 10)
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
    assert_eq!(webhooks.lock().bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_more_questions_than_there_is_room_for_are_asked_in_order_and_looked_at_twice_each() {
    const OBJECTS: usize = 5_000;
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let to = Arc::clone(&order);
    let (webhooks, hook, _running) = running(move |request| {
        let version = object(&request)["spec"]["version"].as_u64().unwrap();
        to.lock().unwrap().push(usize::try_from(version).unwrap());
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            (Ok(Answer::Health(true)), 10)
        })
    });
    let widgets: Vec<Value> = (0..OBJECTS)
        .map(|at| widget(&format!("w{at}"), at))
        .collect();
    let all = widgets.iter().map(|it| answered(&webhooks, &hook, it));
    let times: Vec<usize> = all.collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(times.len(), OBJECTS);
    // Those without room are called once, and look once more for the answer.
    let looks: usize = times.iter().sum();
    assert!(looks <= 3 * OBJECTS, "{looks} looks at {OBJECTS} objects");
    let order = order.lock().unwrap();
    assert_eq!(order.len(), OBJECTS, "each was asked once");
    let is_in_turn = |(at, version): (usize, &usize)| at.abs_diff(*version) <= 16;
    assert!(order.iter().enumerate().all(is_in_turn));
    assert_eq!(webhooks.lock().bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_all_lanes_together_are_bounded_and_nothing_is_lost() {
    const LARGE: usize = 600_000;
    let most = Arc::new(AtomicUsize::new(0));
    let (webhooks, hook, _running) = running(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (Ok(Answer::Health(true)), 10)
        })
    });
    let widgets: Vec<Value> = (0..80)
        .map(|at| {
            let mut widget = widget(&format!("w{at}"), at);
            widget["kind"] = json!(format!("Kind{}", at % 8));
            widget["spec"]["text"] = json!("x".repeat(LARGE));
            widget
        })
        .collect();
    let all = widgets.iter().map(|it| async {
        let asking = answered(&webhooks, &hook, it).await;
        most.fetch_max(webhooks.lock().bytes(), Ordering::Relaxed);
        asking
    });
    let looks: Vec<usize> = all.collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(looks.len(), widgets.len());
    let most = most.load(Ordering::Relaxed);
    assert!((16 << 20..=32 << 20).contains(&most), "{most} bytes");
    assert_eq!(webhooks.lock().bytes(), 0);
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
            (Ok(Answer::Health(true)), 10)
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
    assert_eq!(webhooks.lock().bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_operation_suspend_no_other() {
    let (webhooks, hook, _running) = running(|request| {
        Box::pin(async move {
            match request.operation {
                Operation::InterpretStatus => (Err(Fault::Timeout(1)), 0),
                _ => (Ok(Answer::Health(true)), 10),
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
async fn a_webhook_that_does_not_answer_for_a_minute_is_told_and_answers_are_asked_again_later() {
    muster_shared::tls::install_provider();
    let one = Arc::new(Interpreters::of(&[]));
    one.set_hooks(hooks());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    one.on_failure(move |failed| to.lock().unwrap().push(failed.note.clone()));
    let heard: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (to, begun) = (Arc::clone(&heard), Instant::now());
    one.on_change(move |changed| {
        assert!(changed.has("v1", "Widget"));
        to.lock().unwrap().push(begun.elapsed());
    });
    let (runs, shutdown) = (Arc::clone(&one), CancellationToken::new());
    let ends = shutdown.clone();
    // The questions wait, because nothing sends them.
    tokio::spawn(async move {
        let silent = |_: Request| -> Sending { Box::pin(std::future::pending()) };
        runs.run_sending(ends, silent).await;
    });
    assert!(one.health(&widget("w", 0)).unwrap_err().pending().is_some());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(told.lock().unwrap().is_empty());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let notes = told.lock().unwrap().clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("about 1 objects") && notes[0].contains("\"w\""),
        "{notes:?}"
    );
    tokio::time::sleep(VALID).await;
    assert_eq!(*heard.lock().unwrap(), [VALID]);
    shutdown.cancel();
}
