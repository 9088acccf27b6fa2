use std::convert::Infallible;

use kube::Config;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

/// Returns a member that answers so when it is asked for the record, and the events that it is
/// given.
fn member(record: &Arc<Mutex<(u16, Value)>>) -> (Client, mpsc::UnboundedReceiver<Value>) {
    let (record, (told, events)) = (Arc::clone(record), mpsc::unbounded_channel());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (record, told) = (Arc::clone(&record), told.clone());
        async move {
            let is_read = request.method() == http::Method::GET;
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, answer) = if is_read {
                record.lock().clone()
            } else {
                let event: Value = serde_json::from_slice(&body).unwrap();
                told.send(event.clone()).unwrap();
                (201, event)
            };
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(answer);
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    (Client::new(service, "default"), events)
}

#[tokio::test(start_paused = true)]
async fn a_record_that_may_not_be_read_is_told_once_with_the_right_that_is_missing() {
    let message = "configmaps \"muster-fleet-m1\" is forbidden";
    let forbidden = json!({
        "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message,
    });
    let record = Arc::new(Mutex::new((403, forbidden)));
    let (client, mut told) = member(&record);
    let shutdown = CancellationToken::new();
    let (member_events, delivery) = Events::new(client.clone(), "agent", shutdown.clone());
    tokio::spawn(delivery);
    let mut choice = Choice::new(Setup {
        cluster: "m1".to_owned(),
        configured: Vec::new(),
        patience: LOOK,
        fleet: Gateway::given("fleet", Config::new("https://fleet".parse().unwrap())),
        member: client,
        namespace: "here".to_owned(),
        health: Health::default(),
        events: Events::nowhere(),
        member_events,
        obeyed: watch::Sender::new(None),
        restart: Restart::default(),
        shutdown,
    });
    for _ in 0..2 {
        choice.recall().await;
        choice.note_obeyed();
    }
    assert_eq!(choice.recorded, Recorded::Unread);
    assert_eq!(*choice.setup.obeyed.borrow(), None);
    let data = json!({"record": json!({"epoch": 3}).to_string()});
    *record.lock() = (
        200,
        json!({"metadata": {"name": "muster-fleet-m1"}, "data": data}),
    );
    choice.recall().await;
    choice.note_obeyed();
    assert_eq!(*choice.setup.obeyed.borrow(), Some(3));
    let unread = told.recv().await.unwrap();
    assert_eq!(unread["reason"], "FleetRecordUnread");
    let words = unread["message"].as_str().unwrap();
    for part in [
        message,
        "get, create and patch ConfigMap muster-fleet-m1",
        "namespace here",
    ] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(told.recv().await.unwrap()["reason"], "FleetRecordRead");
}
