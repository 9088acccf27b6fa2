//! What is written and reported of applications, and what waits in the queue.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;

use super::super::{EvictionState, Known, Obstacle, ReadinessTracker, WORTH_REPORTING};
use super::*;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Bench, REFUSALS, at, key};
use crate::movement::eviction;

fn rate() -> Obstacle {
    let cause = "failing".to_owned();
    Obstacle::Eviction(EvictionState::Queued { cause })
}

/// Returns the move of an application from `m1` to `m2`.
fn moved() -> Move {
    Move {
        from: "m1".to_owned(),
        since: at(10),
        to: "m2".to_owned(),
        mode: "Gracefully".to_owned(),
        without_state: false,
    }
}

/// Returns what a reconciliation of an application comes to of which nothing new is known.
fn no_progress(is_said: bool) -> Progress {
    Progress {
        state: None,
        wait: None,
        held: Vec::new(),
        is_said,
    }
}

/// Returns the binding of an application for which a history is recorded, and which may have a
/// condition that reports it.
fn binding(reported: Option<Condition>) -> Value {
    let history = History {
        since: [("m1".to_owned(), at(10))].into(),
        ..History::default()
    };
    json!({
        "metadata": {
            "namespace": "shop", "name": "web-deployment",
            "annotations": {history::ANNOTATION: history.write()},
        },
        "spec": {
            "resource": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web",
            },
            "clusters": [{"name": "m1"}],
        },
        "status": {"conditions": Vec::from_iter(reported)},
    })
}

/// Returns a fleet with the binding of an application for which a history is recorded, a
/// controller, and the binding.
async fn bench(reported: Option<Condition>) -> (Bench, Applications, Arc<AnyBinding>) {
    let mut bench = Bench::new([("resourcebindings", binding(reported))]);
    let fleet = Arc::clone(&bench.fleet);
    let pace = Pace::of(&fleet.settings);
    let controller = Applications {
        evictor: eviction::start(&fleet, &pace, false, &mut bench.tasks),
        queue: Queue::new("applications"),
        readiness_tracker: ReadinessTracker::follow(&fleet.clusters, &fleet.clock),
        known: Mutex::default(),
        fleet,
    };
    bench.follow().await;
    let held = bench.binding("web-deployment");
    let held: Value = serde_json::to_value(&*held.unwrap()).unwrap();
    let held = serde_json::from_value(held).unwrap();
    (bench, controller, Arc::new(held))
}

fn case<'a>(key: &'a BindingKey, binding: &'a AnyBinding) -> Case<'a> {
    let (written, now) = (History::of(binding), at(1_000));
    Case {
        key,
        binding,
        written,
        now,
    }
}

#[tokio::test(start_paused = true)]
async fn that_nothing_is_asked_for_any_more_is_reported_where_something_was_reported() {
    let (cluster, since, until) = ("m1".to_owned(), at(10), at(20));
    let tolerated = FailoverState::Tolerated {
        cluster,
        since,
        until,
    };
    for (reported, expected) in [
        (None, false),
        (Some(tolerated), true),
        (Some(FailoverState::NotFollowed(Unfollowed::Health)), true),
        (Some(FailoverState::Recovered), false),
    ] {
        let what = format!("{reported:?}");
        let reported = reported.map(|state| state.condition(at(30)));
        let (bench, controller, binding) = bench(reported).await;
        let key = key("web-deployment");
        let next = controller.forget(&case(&key, &binding), None).await;
        assert_eq!(next.unwrap(), Next::Done, "{what}");
        let events = bench.api.events().await;
        assert_eq!(!events.is_empty(), expected, "{what}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_report_is_refused_is_still_to_be_reported() {
    for is_refused in [false, true] {
        let (bench, controller, binding) = bench(None).await;
        let key = key("web-deployment");
        let known = Known {
            moved: Some(moved()),
            ..Known::default()
        };
        controller.known.lock().insert(key.clone(), known);
        if is_refused {
            bench
                .api
                .refuse(Method::PATCH, "/status", 403, "web-deployment");
        }
        let case = case(&key, &binding);
        let progress = no_progress(false);
        let next = controller.conclude(&case, &case.written, progress).await;
        assert_eq!(next.is_err(), is_refused, "{next:?}");
        assert_eq!(bench.api.events().await.is_empty(), is_refused);
        let known = controller.known.lock().get(&key).cloned();
        assert_eq!(known.unwrap().moved.is_some(), is_refused);
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_that_comes_too_late_is_read_again_or_dropped() {
    for (code, _) in REFUSALS {
        let (bench, controller, binding) = bench(None).await;
        let (method, path) = (Method::PATCH, "/web-deployment");
        bench.api.refuse(method, path, code, "web-deployment");
        let key = key("web-deployment");
        let next = controller.forget(&case(&key, &binding), None).await;
        let expected = match code {
            409 => Some(Next::Again),
            404 => Some(Next::Done),
            _ => None,
        };
        assert_eq!(next.ok(), expected, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_the_queue_says_so_after_a_while_unless_an_obstacle_is_reported_already() {
    let since = at(10);
    let (cluster, why) = ("m1".to_owned(), rate());
    let rate = FailoverState::Held {
        cluster,
        since,
        why,
    }
    .condition(at(30));
    let mut stranded = rate.clone();
    stranded.reason = "NowhereToGo".to_owned();
    for (what, reported, is_said) in [
        ("nothing is reported", None, false),
        ("the process before said so", Some(stranded), true),
        ("of something else", Some(rate), false),
    ] {
        let (_stand, controller, binding) = bench(reported).await;
        let key = key("web-deployment");
        let case = case(&key, &binding);
        let look = || {
            let mut progress = no_progress(false);
            controller.line_up(&case, &case.written, "m1".to_owned(), &mut progress);
            progress
        };
        let first = look();
        assert!(first.is_said && first.held.is_empty(), "{what}");
        assert_eq!(first.wait, Some(WORTH_REPORTING), "{what}");
        let second = look();
        assert_eq!(second.is_said, is_said, "{what}");
        assert_eq!(second.held.is_empty(), is_said, "{what}");
        for (_, why, _) in second.held {
            assert!(matches!(
                why,
                Obstacle::Eviction(EvictionState::Queued { .. })
            ));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_condition_said_before_is_brought_up_to_date_once_it_is_over() {
    let held = || FailoverState::Held {
        cluster: "m1".to_owned(),
        since: at(10),
        why: rate(),
    };
    let moved = moved();
    let health = FailoverState::NotFollowed(Unfollowed::Health);
    for (what, reported, last, is_said, expected) in [
        ("nothing was reported", None, None, false, None),
        (
            "it was held",
            Some(held()),
            None,
            false,
            Some("ApplicationRecovered"),
        ),
        ("it is held still", Some(held()), None, true, None),
        (
            "it was not followed",
            Some(health),
            None,
            false,
            Some("Followed"),
        ),
        (
            "it has recovered",
            Some(FailoverState::Recovered),
            None,
            false,
            None,
        ),
        (
            "its move was reported",
            Some(FailoverState::Left(moved.clone())),
            None,
            false,
            None,
        ),
        (
            "it was moved, and nothing said so",
            Some(held()),
            Some(moved),
            false,
            Some("ApplicationMoved"),
        ),
    ] {
        let reported = reported.map(|state| state.condition(at(30)));
        let (bench, controller, binding) = bench(reported).await;
        let key = key("web-deployment");
        let case = case(&key, &binding);
        let history = History {
            last_move: last.is_some().then(|| at(40)),
            last,
            ..case.written.clone()
        };
        let progress = no_progress(is_said);
        let next = controller.conclude(&case, &history, progress).await;
        next.unwrap();
        let mut reasons: Vec<String> = bench
            .api
            .reported()
            .await
            .into_iter()
            .map(|it| it.1)
            .collect();
        reasons.dedup();
        assert_eq!(reasons, Vec::from_iter(expected), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_an_application_is_unhealthy_is_written_down_when_it_stays_so_for_a_while() {
    let settling = SETTLING.as_secs().cast_signed();
    for (since, expected) in [
        (1_000 - settling, None),
        (1_001 - settling, Some(Duration::from_secs(1))),
    ] {
        let (bench, controller, binding) = bench(None).await;
        let key = key("web-deployment");
        let case = case(&key, &binding);
        let mut history = case.written.clone();
        history.since.insert("m2".to_owned(), at(since));
        let next = controller.settle(&case, &history).await.unwrap();
        let wait = match next {
            Next::After(wait) => Some(Duration::from_secs(wait.as_secs())),
            _ => None,
        };
        assert_eq!(wait, expected, "{since}");
        assert_eq!(bench.api.writes().is_empty(), expected.is_some(), "{since}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_others_write_all_the_time_is_tried_so_often_and_no_more() {
    let name = "web-deployment";
    for (code, name, tries, is_done) in [
        (409, name, ATTEMPTS + 1, false),
        (404, name, 1, true),
        // The kind is not served now.
        (404, "", 1, false),
        (403, name, 1, false),
    ] {
        let (bench, controller, binding) = bench(None).await;
        let (method, path) = (Method::PATCH, "/web-deployment/status");
        bench.api.refuse(method, path, code, name);
        let state = FailoverState::NotFollowed(Unfollowed::Health);
        let reported = controller
            .report(&key("web-deployment"), &binding, &state, at(1_000))
            .await;
        assert_eq!(reported.is_ok(), is_done, "{code}");
        assert_eq!(bench.api.writes().len(), tries as usize, "{code}");
        assert_eq!(bench.api.reported().await, [], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_there_is_no_place_is_written_later_for_other_numbers_and_at_once_for_other_reasons() {
    let state = |why: &str| {
        let (cause, why) = ("failing".to_owned(), why.to_owned());
        FailoverState::Held {
            cluster: "m1".to_owned(),
            since: at(10),
            why: Obstacle::Eviction(EvictionState::Nowhere { cause, why }),
        }
    };
    for (why, is_later, stored) in [
        ("3 free", false, "3 free"),
        ("4 free", true, "3 free"),
        ("suspended", false, "suspended"),
    ] {
        let (bench, controller, binding) = bench(Some(state("3 free").condition(at(900)))).await;
        let key = key("web-deployment");
        let known = Known {
            reported_at: Some(at(900)),
            ..Known::default()
        };
        controller.known.lock().insert(key.clone(), known);
        let reported = conditions::get(&binding.status().conditions, CONDITION);
        let (case, state) = (case(&key, &binding), state(why));
        let again = controller.report_change(&case, &state, reported).await;
        // A few milliseconds of simulated time go by meanwhile.
        let rest = again.unwrap();
        assert_eq!(rest.is_some(), is_later, "{why}");
        assert!(rest.is_none_or(|it| it.as_secs() == 200), "{why}: {rest:?}");
        let shown = bench.api.binding("web-deployment")["status"]["conditions"].clone();
        let message = shown[0]["message"].as_str().unwrap();
        assert!(message.ends_with(stored), "{why}: {message}");
    }
}
