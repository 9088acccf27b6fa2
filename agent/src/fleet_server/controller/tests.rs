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
use crate::testing;

/// Returns a member that answers so when it is asked for the record, and the events that it is
/// given. It refuses a record if `patch` of that answer is false.
fn member(record: &Arc<Mutex<(u16, Value)>>) -> (Client, mpsc::UnboundedReceiver<Value>) {
    let (record, (reported, events)) = (Arc::clone(record), mpsc::unbounded_channel());
    let client = testing::api(move |head, body| {
        if head.method == http::Method::POST {
            let event: Value = serde_json::from_slice(body).unwrap();
            reported.send(event.clone()).unwrap();
            return (201, event);
        }
        let record = record.lock();
        if head.method != http::Method::PATCH {
            return record.clone();
        }
        match record.1["patch"].as_bool() {
            Some(false) => refusal(403, "Forbidden", "forbidden"),
            _ => (200, json!({"metadata": {"name": "muster-fleet-m1"}})),
        }
    });
    (client, events)
}

/// Hosts `a` and `b` of one fleet; the standby `b` was promoted. Others do not answer.
#[derive(Debug, Default)]
struct Hosts {
    /// The host whose store all of them have.
    store: Option<&'static str>,
    /// Answers after which `a` is lost.
    answers_left: Mutex<Option<u32>>,
    last_answer: Mutex<Option<Instant>>,
    /// Whether a proxy answers for `a` when it is lost.
    is_proxied: bool,
}

impl Network for Hosts {
    fn send(
        &self,
        config: &Config,
        _: http::Request<Body>,
    ) -> BoxFuture<'static, Result<http::Response<ResponseBody>, BoxError>> {
        let host = config.cluster_url.host();
        if host == Some("a")
            && let Some(left) = &mut *self.answers_left.lock()
        {
            if *left == 0 {
                let body = Full::from("404 page not found".to_owned()).map_err(BoxError::from);
                let mut answer = http::Response::new(body.boxed_unsync());
                *answer.status_mut() = http::StatusCode::NOT_FOUND;
                let lost = || BoxError::from("connection refused");
                let answer = self.is_proxied.then_some(answer).ok_or_else(lost);
                return Box::pin(std::future::ready(answer));
            }
            *left -= 1;
            *self.last_answer.lock() = Some(Instant::now());
        }
        let mut annotations = json!({FLEET_ID: "f"});
        match self.store.or(host) {
            Some("a") => {}
            Some("b") => annotations[FLEET_EPOCH] = json!("1"),
            _ => return Box::pin(std::future::pending()),
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

fn choice(member: Client, hosts: &[&str], restart: &Restart) -> Choice {
    let servers = hosts.iter().map(|host| FleetServer {
        server: format!("https://{host}"),
        store: (*host).to_owned(),
        ..FleetServer::default()
    });
    over(
        Arc::<Hosts>::default(),
        servers.collect(),
        CHECK_EVERY,
        member,
        restart,
    )
}

fn over(
    network: Arc<dyn Network>,
    configured: Vec<FleetServer>,
    patience: Duration,
    member: Client,
    restart: &Restart,
) -> Choice {
    let own = Config::new("https://a".parse().unwrap());
    let (member_events, delivery) = Events::new(member.clone(), "agent", CancellationToken::new());
    tokio::spawn(delivery);
    Choice::new(Setup {
        cluster: "m1".to_owned(),
        configured,
        patience,
        fleet: Gateway::over(network, "fleet", own),
        member,
        namespace: "here".to_owned(),
        health: Health::default(),
        events: Events::nowhere(),
        member_events,
        obeyed: watch::Sender::new(crate::fleet_server::unknown()),
        restart: restart.clone(),
        shutdown: CancellationToken::new(),
    })
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"name": "muster-fleet-m1", "kind": "configmaps"},
    });
    (code, status)
}

/// Measures for how long a server had given no answer of its own when the agent changed to another.
async fn silence_of(is_proxied: bool, patience: Duration) -> Duration {
    let record = Arc::new(Mutex::new(refusal(404, "NotFound", "no")));
    let (member, _reported) = member(&record);
    let servers = ["https://a", "https://b"].map(|server| FleetServer {
        server: server.to_owned(),
        ..FleetServer::default()
    });
    let hosts = Arc::new(Hosts {
        store: Some("a"),
        answers_left: Mutex::new(Some(3)),
        is_proxied,
        ..Hosts::default()
    });
    let network: Arc<dyn Network> = Arc::clone(&hosts) as _;
    let restart = Restart::default();
    let mut choice = over(network, servers.to_vec(), patience, member, &restart);
    let uses = |choice: &Choice, server: &str| {
        let current = choice.current.as_ref();
        current.is_some_and(|it| it.server.server == server)
    };
    while !uses(&choice, "https://b") {
        let pause = choice.round().await;
        // Time is paused: the pauses between checks are what is measured.
        tokio::time::sleep(jittered(pause)).await;
    }
    let last_answer = hosts.last_answer.lock();
    last_answer.unwrap().elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_server_counts_from_its_last_answer() {
    let patience = 2 * CHECK_EVERY;
    for is_proxied in [false, true] {
        let silent = silence_of(is_proxied, patience);
        let silent = tokio::time::timeout(Duration::from_mins(10), silent).await;
        let silent = silent.unwrap_or_else(|_| panic!("proxied: {is_proxied}"));
        assert!(silent >= patience, "{silent:?}");
        // A check is at most a pause and a fifth of it late, and is followed by another pause here.
        assert!(silent < patience + 3 * SEARCH_EVERY, "{silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_server_answers_changes_to_a_standby_that_was_promoted() {
    let record = Arc::new(Mutex::new(refusal(404, "NotFound", "no")));
    let (member, _reported) = member(&record);
    let restart = Restart::default();
    let silent = ["c", "d", "e", "f", "g", "h"];
    let hosts = std::iter::once("a").chain(silent).chain(["b"]);
    let choice = choice(member, &hosts.collect::<Vec<_>>(), &restart);
    let shutdown = choice.setup.shutdown.clone();
    let obeyed = choice.setup.obeyed.subscribe();
    // The other addresses are asked now and then, and the silent ones keep no other waiting.
    let ended = tokio::time::timeout(2 * ASK_OTHERS, choice.run()).await;
    ended.unwrap();
    assert!(restart.is_due() && shutdown.is_cancelled());
    assert_eq!(*obeyed.borrow(), Ok(1));
    let seen = restart.seen.lock().clone().unwrap();
    assert_eq!((seen.epoch, &*seen.store), (1, "b"));
}

#[tokio::test(start_paused = true)]
async fn a_promoted_store_is_obeyed_once_that_is_recorded() {
    let record = Arc::new(Mutex::new(refusal(404, "NotFound", "no")));
    let (member, mut reported) = member(&record);
    let seen = Remembered {
        epoch: 1,
        store: "b".to_owned(),
        ..Remembered::default()
    };
    let restart = Restart {
        seen: Arc::new(Mutex::new(Some(seen))),
        ..Restart::default()
    };
    let mut choice = choice(member, &["a", "b"], &restart);
    record.lock().1["patch"] = json!(false);
    for _ in 0..2 {
        choice.round().await;
        let kept_out = choice.setup.obeyed.borrow().clone().unwrap_err();
        assert!(kept_out.contains("cannot be written"), "{kept_out}");
    }
    let unwritten = reported.recv().await.unwrap();
    assert_eq!(unwritten["reason"], "FleetRecordUnwritten");
    record.lock().1["patch"] = json!(true);
    choice.round().await;
    assert_eq!(*choice.setup.obeyed.borrow(), Ok(1));
    assert_eq!(
        reported.recv().await.unwrap()["reason"],
        "FleetRecordWritten"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_may_not_be_read_is_reported_once_with_the_right_that_is_missing() {
    let message = "configmaps \"muster-fleet-m1\" is forbidden";
    let record = Arc::new(Mutex::new(refusal(403, "Forbidden", message)));
    let (client, mut reported) = member(&record);
    let mut choice = choice(client, &[], &Restart::default());
    for _ in 0..2 {
        choice.recall().await;
        choice.note_obeyed();
    }
    assert_eq!(choice.recorded, Recorded::Unread);
    let kept_out = choice.setup.obeyed.borrow().clone().unwrap_err();
    assert!(kept_out.contains("cannot be read"), "{kept_out}");
    let data = json!({"record": json!({"epoch": 3}).to_string()});
    let readable = json!({"metadata": {"name": "muster-fleet-m1"}, "data": data});
    *record.lock() = (200, readable);
    choice.recall().await;
    choice.note_obeyed();
    assert_eq!(*choice.setup.obeyed.borrow(), Ok(3));
    let unread = reported.recv().await.unwrap();
    assert_eq!(unread["reason"], "FleetRecordUnread");
    let words = unread["message"].as_str().unwrap();
    let rights = "get, create and patch ConfigMap muster-fleet-m1";
    for part in [message, rights, "namespace here"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(reported.recv().await.unwrap()["reason"], "FleetRecordRead");
}

#[tokio::test(start_paused = true)]
async fn the_first_store_that_an_agent_meets_is_obeyed_once_that_it_was_promoted_is_recorded() {
    let record = Arc::new(Mutex::new(refusal(404, "NotFound", "no")));
    record.lock().1["patch"] = json!(false);
    let (member, mut reported) = member(&record);
    let restart = Restart::default();
    let promoted = Hosts {
        store: Some("b"),
        ..Hosts::default()
    };
    let mut choice = over(
        Arc::new(promoted),
        Vec::new(),
        CHECK_EVERY,
        member,
        &restart,
    );
    let mut seen = choice.setup.obeyed.subscribe();
    let obeys = seen.wait_for(Result::is_ok);
    tokio::select! {
        () = choice.follow() => {}
        _ = obeys => panic!("obeyed, and Works are applied from now on"),
        unwritten = reported.recv() => assert_eq!(unwritten.unwrap()["reason"], "FleetRecordUnwritten"),
    }
    assert!(choice.setup.obeyed.borrow().is_err());
}
