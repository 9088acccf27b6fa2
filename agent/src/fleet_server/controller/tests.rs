use std::convert::Infallible;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use kube::Config;
use kube::client::Body;
use muster_shared::client::{Network, ResponseBody};
use muster_shared::names::annotation::{FLEET_EPOCH, FLEET_ID};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::BoxError;

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

/// Hosts `a` and `b` of one fleet; the standby `b` was promoted.
#[derive(Debug)]
struct Hosts;

impl Network for Hosts {
    fn send(
        &self,
        config: &Config,
        _: http::Request<Body>,
    ) -> BoxFuture<'static, Result<http::Response<ResponseBody>, BoxError>> {
        let mut annotations = json!({FLEET_ID: "f"});
        if config.cluster_url.host() == Some("b") {
            annotations[FLEET_EPOCH] = json!("1");
        }
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "karmada-cluster", "annotations": annotations},
        });
        let body = Full::from(namespace.to_string()).map_err(BoxError::from);
        let answer = http::Response::new(body.boxed_unsync());
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn host(&self) -> String {
        "pod".to_owned()
    }
}

/// Hosts `a` and `b` of one store, of which `a` is lost after some answers.
#[derive(Debug)]
struct Dying {
    answers_left: Mutex<u32>,
    last_answer: Mutex<Option<Instant>>,
}

impl Network for Dying {
    fn send(
        &self,
        config: &Config,
        request: http::Request<Body>,
    ) -> BoxFuture<'static, Result<http::Response<ResponseBody>, BoxError>> {
        if config.cluster_url.host() == Some("a") {
            let mut left = self.answers_left.lock();
            if *left == 0 {
                let lost = Err(BoxError::from("connection refused"));
                return Box::pin(std::future::ready(lost));
            }
            *left -= 1;
            *self.last_answer.lock() = Some(Instant::now());
            return Hosts.send(config, request);
        }
        let same = Config::new("https://a".parse().unwrap());
        Hosts.send(&same, request)
    }

    fn host(&self) -> String {
        "pod".to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_server_counts_from_its_last_answer() {
    let absent = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
    let (member, _told) = member(&Arc::new(Mutex::new((404, absent))));
    let servers = ["https://a", "https://b"].map(|server| FleetServer {
        server: server.to_owned(),
        ..FleetServer::default()
    });
    let hosts = Arc::new(Dying {
        answers_left: Mutex::new(3),
        last_answer: Mutex::new(None),
    });
    let network: Arc<dyn Network> = Arc::clone(&hosts) as _;
    let own = Config::new("https://a".parse().unwrap());
    let patience = 2 * LOOK;
    let mut choice = Choice::new(Setup {
        cluster: "m1".to_owned(),
        configured: servers.to_vec(),
        patience,
        fleet: Gateway::over(network, "fleet", own),
        member,
        namespace: "here".to_owned(),
        health: Health::default(),
        events: Events::nowhere(),
        member_events: Events::nowhere(),
        obeyed: watch::Sender::new(None),
        restart: Restart::default(),
        shutdown: CancellationToken::new(),
    });
    let uses = |choice: &Choice, server: &str| {
        let current = choice.current.as_ref();
        current.is_some_and(|it| it.server.server == server)
    };
    while !uses(&choice, "https://b") {
        let pause = choice.round().await;
        tokio::time::sleep(jittered(pause)).await;
    }
    let silent = hosts.last_answer.lock().unwrap().elapsed();
    assert!(silent >= patience, "{silent:?}");
    // A look is at most a pause and a fifth of it late, and is followed by another pause here.
    assert!(silent < patience + 3 * LOOK_FOR_ONE, "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_server_answers_turns_to_a_standby_that_was_promoted() {
    let absent = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
    let (member, _told) = member(&Arc::new(Mutex::new((404, absent))));
    let (restart, shutdown) = (Restart::default(), CancellationToken::new());
    let servers = [("https://a", "one"), ("https://b", "two")];
    let servers = servers.map(|(server, store)| FleetServer {
        server: server.to_owned(),
        store: store.to_owned(),
        ..FleetServer::default()
    });
    let own = Config::new("https://a".parse().unwrap());
    let choice = Choice::new(Setup {
        cluster: "m1".to_owned(),
        configured: servers.to_vec(),
        patience: LOOK,
        fleet: Gateway::over(Arc::new(Hosts), "fleet", own),
        member,
        namespace: "here".to_owned(),
        health: Health::default(),
        events: Events::nowhere(),
        member_events: Events::nowhere(),
        obeyed: watch::Sender::new(None),
        restart: restart.clone(),
        shutdown: shutdown.clone(),
    });
    let obeyed = choice.setup.obeyed.subscribe();
    // The other addresses are asked now and then.
    tokio::time::timeout(10 * ASK_OTHERS, choice.run())
        .await
        .unwrap();
    assert!(restart.is_due() && shutdown.is_cancelled());
    assert_eq!(*obeyed.borrow(), Some(1));
    let seen = restart.seen.lock().clone().unwrap();
    assert_eq!((seen.epoch, &*seen.store), (1, "two"));
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
