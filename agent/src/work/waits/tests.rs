use std::sync::Arc;

use muster_shared::queue::Next;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

fn key() -> ObjectKey {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    ObjectKey::of(&manifest, 0).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_changed_back_at_once_is_written_ten_times_in_ten_minutes() {
    let waits = Waits::default();
    let begun = Instant::now();
    let mut times = 0;
    while begun.elapsed() < Duration::from_mins(10) {
        let pause = waits.differs("w", &key(), 1, Some("cainjector"));
        tokio::time::advance(pause).await;
        times += 1;
    }
    assert!(times <= 11, "{times} repairs");
    let (contended, again) = waits.contended("w");
    assert_eq!(contended.len(), 1);
    assert_eq!(contended[0].rival.as_deref(), Some("cainjector"));
    tokio::time::advance(again.unwrap()).await;
    assert_eq!(waits.contended("w"), (Vec::new(), None));
    let again = waits.differs("w", &key(), 1, None);
    assert_eq!(again, FIRST_PAUSE, "it was calm for long");
}

#[tokio::test(start_paused = true)]
async fn what_fails_again_and_again_does_not_overtake_repairs() {
    let waits = Waits::default();
    let queue = waits.to_apply.clone();
    waits.begin("fails");
    waits.failed("fails");
    let pause = waits.disappeared("repaired", &key(), 1);
    assert_eq!(pause, Duration::ZERO);
    queue.add("fails".to_owned());
    waits.changed("new");
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let (done, shutdown) = (Arc::clone(&order), CancellationToken::new());
    let stop = shutdown.clone();
    let work = move |work: String| {
        let mut done = done.lock();
        done.push(work);
        if done.len() == 3 {
            stop.cancel();
        }
        async { Ok::<_, String>(Next::Done) }
    };
    queue.run(1, shutdown, work).await;
    assert_eq!(*order.lock(), ["new", "repaired", "fails"]);
}

#[tokio::test(start_paused = true)]
async fn one_repair_answers_all_changes_until_it_is_due_and_another_wish_begins_anew() {
    let waits = Waits::default();
    let differs = |wish| waits.differs("w", &key(), wish, None).as_millis();
    assert_eq!(differs(1), 500);
    tokio::time::advance(Duration::from_millis(200)).await;
    assert_eq!(differs(1), 300, "the same repair");
    tokio::time::advance(Duration::from_millis(300)).await;
    assert_eq!(differs(1), 1000);
    assert_eq!(differs(2), 500, "the template changed");
    assert_eq!(
        waits.contended("w"),
        (Vec::new(), None),
        "twice is no contest"
    );
}

#[tokio::test(start_paused = true)]
async fn what_disappears_is_made_again_at_once_and_then_with_pauses() {
    let waits = Waits::default();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let pause = waits.disappeared("w", &key(), 1);
        pauses.push(pause.as_millis());
        tokio::time::advance(pause).await;
    }
    assert_eq!(pauses, [0, 1000, 2000]);
}

#[tokio::test(start_paused = true)]
async fn what_is_new_ranks_before_repairs() {
    let waits = Waits::default();
    let rank = || {
        waits
            .state
            .lock()
            .works
            .get("w")
            .and_then(|memory| memory.rank)
    };
    waits.differs("w", &key(), 1, None);
    assert_eq!(rank(), Some(Rank::Repair));
    waits.changed("w");
    waits.failed("w");
    assert_eq!(rank(), Some(Rank::Changed), "its template changed, too");
    waits.begin("w");
    assert_eq!(rank(), None);
    waits.differs("w", &key(), 1, None);
    assert_eq!(rank(), Some(Rank::Repair));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_works_that_came_and_went() {
    let waits = Waits::default();
    for number in 0..100_000 {
        let work = format!("w{number}");
        waits.wait(&work, Event::Prerequisite);
        waits.begin(&work);
        waits.differs(&work, &key(), 1, None);
        waits.failed(&work);
        waits.forget(&work);
        waits.begin(&work);
        waits.differs("one", &key(), 1, None);
        waits.wait(&work, Event::Listed);
        waits.wake(Event::Listed, Duration::ZERO);
    }
    let state = waits.state.lock();
    assert_eq!(state.works.keys().collect::<Vec<_>>(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_those_that_wait_for_it_and_no_others() {
    let waits = Waits::default();
    waits.wait("lists", Event::Listed);
    waits.wait("both", Event::Listed);
    waits.wait("both", Event::Prerequisite);
    waits.wait("goes on", Event::Prerequisite);
    waits.go_on("goes on", Event::Prerequisite);
    waits.wake(Event::Listed, Duration::ZERO);
    assert_eq!(waits.to_apply.len(), 2);
    waits.wake(Event::FreeToApply, Duration::ZERO);
    let state = waits.state.lock();
    assert_eq!(state.works.keys().collect::<Vec<_>>(), ["both"]);
}
