//! What is written when an application leaves, and what an answer means.

use http::Method;
use serde_json::Value;

use super::*;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{REFUSALS, Stand, binding, cluster, refusal};
use crate::movement::application_failover::queue::FailoverQueue;
use crate::movement::eviction::backlog::Rank;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// Makes an application leave `m1`, where it has been unhealthy for ten seconds, while the API
/// gives writes this answer.
async fn leave(scheduler: &str, answer: Option<(u16, &str)>) -> (Stand, Outcome) {
    let mut binding = binding();
    binding["spec"]["schedulerName"] = json!(scheduler);
    binding["spec"]["failover"]["application"] = json!({
        "decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Directly",
    });
    let mut stand = Stand::new([
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("resourcebindings", binding),
    ]);
    let exit = Exit::new(&stand.fleet);
    stand.follow().await;
    if let Some((code, reason)) = answer {
        let refused = refusal(code, reason, "web-deployment");
        let (method, path) = (Method::PATCH, "/web-deployment");
        stand.api.answer(method, path, code, refused);
    }
    let held = stand.binding("web-deployment");
    let held = held.unwrap();
    let key = BindingKey::of(held.as_ref());
    let history = History {
        since: [("m1".to_owned(), at(0))].into(),
        ..History::default()
    };
    let leaver = Leaver {
        key: &key,
        binding: held.as_ref(),
        history: &history,
        attempts: 0,
    };
    let outcome = exit.leave(&leaver, "m1", paid(&stand, &key), at(10)).await;
    (stand, outcome)
}

/// Returns the payment for the move of an application.
fn paid(stand: &Stand, key: &BindingKey) -> Paid {
    let (pauses, clock) = (stand.fleet.pauses.clone(), Arc::clone(&stand.fleet.clock));
    let queue = FailoverQueue::new(Pace::of(&stand.fleet.settings), pauses, clock);
    let now = tokio::time::Instant::now();
    queue.pace().begin(now);
    queue.wait(key, "m1", Rank::new(0, at(0)));
    let next = queue.next(now + Duration::from_mins(1));
    assert_eq!(next.as_ref(), Ok(key));
    queue.take(key).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_application_that_left_is_placed_anew_and_its_move_is_written_with_it() {
    let (stand, outcome) = leave("", None).await;
    let Outcome::Left { history, moved, .. } = outcome else {
        panic!("it left");
    };
    let expected = Move {
        from: "m1".to_owned(),
        since: at(0),
        to: "m2".to_owned(),
        mode: "Directly".to_owned(),
        without_state: false,
    };
    assert_eq!(moved, expected);
    let writes = stand.api.writes();
    let [(Method::PATCH, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert!(path.ends_with("/resourcebindings/web-deployment"), "{path}");
    assert_eq!(
        body["spec"]["clusters"],
        json!([{"name": "m2", "replicas": 2}])
    );
    // The next process tells of the move where this one ends before it could.
    let written = body["metadata"]["annotations"][history::ANNOTATION].as_str();
    let written = History::read(written);
    assert_eq!(written, history);
    assert_eq!(written.untold(None), Some(&moved));
}

#[tokio::test(start_paused = true)]
async fn the_placement_of_another_scheduler_is_left_to_it() {
    let (stand, outcome) = leave("other", None).await;
    assert!(matches!(outcome, Outcome::Left { .. }));
    let writes = stand.api.writes();
    let (.., body) = &writes[0];
    // The cluster is left, and nothing is chosen.
    assert_eq!(body["spec"]["clusters"], Value::Null);
    assert_eq!(
        body["spec"]["gracefulEvictionTasks"][0]["fromCluster"],
        "m1"
    );
}

#[tokio::test(start_paused = true)]
async fn who_comes_too_late_looks_again_and_who_is_refused_is_told_so() {
    for (code, reason, is_overtaken) in REFUSALS {
        let (_stand, outcome) = leave("", Some((code, reason))).await;
        match outcome {
            Outcome::Overtaken => assert!(is_overtaken, "{code}"),
            Outcome::Held { why, .. } => {
                assert!(!is_overtaken, "{code}");
                assert!(matches!(why, Obstacle::Failed(_)), "{code} {why}");
            }
            Outcome::Left { .. } => panic!("{code}"),
        }
    }
}
