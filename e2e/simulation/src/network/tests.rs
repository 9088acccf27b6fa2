use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::Client;
use muster_shared::client::Profile;
use muster_test_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::*;
use crate::clock;
use crate::faults::{Fault, FaultKind, Piece};
use crate::history::Process;
use crate::oracle::{Rules, Suite};

const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

/// A network with one server, and the line of one process.
struct Small {
    network: Arc<Network>,
    line: Line,
    client: Client,
}

fn actor() -> Actor {
    Actor::Process(Process::ControlPlane(0))
}

impl Small {
    async fn start() -> Self {
        clock::begin();
        let recorder = Recorder::new(Suite::new(Rules::default()));
        let network = Network::new(1, recorder, Arc::default());
        let options = Options {
            calendar: clock::now,
            ..Options::default()
        };
        let server = ApiServer::start_in_memory(options).await.unwrap();
        network.serve(&Api::Fleet, Arc::new(server));
        let user = User::authenticated("test", &["system:masters"]);
        let users = Users {
            fleet: user.clone(),
            members: user,
            host: "test".to_owned(),
        };
        let line = Line::new(&network, actor(), users);
        let client = line.client(&Api::Fleet, Profile::Write).unwrap();
        Self {
            network,
            line,
            client,
        }
    }

    fn begin(&self, kind: FaultKind) {
        let fault = Fault {
            id: 1,
            from: 0,
            until: 0,
            kind,
        };
        self.network.faults().begin(1, &fault);
        self.network.changed();
    }

    fn end(&self) {
        self.network.faults().end(1);
        self.network.changed();
    }

    async fn create(&self, name: &str) -> Result<String, kube::Error> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let request = Request::post(OBJECTS).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.client.request_text(request).await
    }

    fn is_there(&self, name: &str) -> bool {
        let objects = self.network.recorder().objects();
        objects.keys().any(|key| key.name == name)
    }

    fn outcomes(&self, name: &str) -> Vec<(Outcome, bool)> {
        self.network.recorder().with_history(|history| {
            let requests = history.entries().iter().filter_map(|entry| entry.request());
            let of_name = requests.filter(|request| request.name == name);
            of_name
                .map(|request| (request.outcome, request.answered))
                .collect()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_what_was_committed_and_a_lost_request_leaves_nothing() {
    let small = Small::start().await;
    let (actor, api, share) = (actor(), Api::Fleet, 1000);
    small.begin(FaultKind::LoseAnswers { actor, api, share });
    assert!(small.create("a").await.is_err());
    assert_eq!(small.outcomes("a"), [(Outcome::Committed, false)]);
    small.end();
    let (actor, api) = (self::actor(), Api::Fleet);
    small.begin(FaultKind::LoseRequests { actor, api, share });
    assert!(small.create("b").await.is_err());
    assert!(!small.is_there("b"));
}

#[tokio::test(start_paused = true)]
async fn a_process_is_killed_at_the_write_that_the_fault_names() {
    for (moment, is_there) in [(Moment::BeforeSending, false), (Moment::AfterCommit, true)] {
        let small = Small::start().await;
        small.begin(FaultKind::Crash {
            process: Process::ControlPlane(0),
            nth: 2,
            moment,
            of_all: true,
        });
        small.create("a").await.unwrap();
        let dies = async { tokio::join!(small.create("b"), small.line.crashed()) };
        let ended = timeout(Duration::from_mins(1), dies).await;
        assert!(
            ended.is_ok_and(|(answer, ())| answer.is_err()),
            "{moment:?}"
        );
        assert_eq!(small.is_there("b"), is_there, "{moment:?}");
        let later = timeout(Duration::from_mins(1), small.create("c")).await;
        assert!(later.is_ok_and(|answer| answer.is_err()));
        assert!(!small.is_there("c"), "nothing that is left of it is heard");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_at_a_silent_partition_arrives_when_it_ends_and_a_reset_is_reported_at_once() {
    let small = Small::start().await;
    let partition = |silent| FaultKind::Partition {
        actor: actor(),
        api: Api::Fleet,
        silent,
    };
    small.begin(partition(true));
    let begun = Instant::now();
    let heal = async {
        tokio::time::sleep(Duration::from_secs(10)).await; // paused time: the partition itself
        small.end();
    };
    let (answer, ()) = tokio::join!(small.create("a"), heal);
    answer.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10));
    small.begin(partition(false));
    let begun = Instant::now();
    assert!(small.create("b").await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_gap_ends_as_one_that_is_too_old_and_never_sends_what_was_in_it() {
    let small = Small::start().await;
    let uri = format!("{OBJECTS}?watch=true&resourceVersion=0");
    let request = Request::get(uri).body(Vec::new()).unwrap();
    let client = small.line.client(&Api::Fleet, Profile::Watch).unwrap();
    let mut events = client.request_stream(request).await.unwrap().lines();
    let mut next = async || -> Value {
        let line = events.next().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    small.create("a").await.unwrap();
    // The server's own object may be sent first.
    while next().await["object"]["metadata"]["name"] != "a" {}
    small.begin(FaultKind::Miss {
        actor: actor(),
        api: Api::Fleet,
        pause: 5_000,
        plural: Some("configmaps".to_owned()),
    });
    small.create("b").await.unwrap();
    let end = next().await;
    assert_eq!(
        (&end["type"], &end["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_are_those_that_a_server_gives_to_such_a_request() {
    let small = Small::start().await;
    for (code, is_refused) in [(409, true), (410, false), (503, true)] {
        small.begin(FaultKind::Refuse {
            actor: actor(),
            api: Api::Fleet,
            code,
            share: 1000,
        });
        let answer = small.create(&format!("a{code}")).await;
        let found = match answer {
            Err(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        };
        assert_eq!(found, is_refused.then_some(code), "{code}");
        small.end();
    }
}

#[test]
fn a_garbled_object_has_a_spec_that_is_no_object() {
    let piece = Bytes::from_static(br#"{"type":"ADDED","object":{"metadata":{},"spec":{"a":1}}}"#);
    let effects = Piece {
        garbles: true,
        ..Piece::default()
    };
    let garbled: Value =
        serde_json::from_slice(&stream::distorted(piece.clone(), effects)).unwrap();
    assert_eq!(garbled["object"]["spec"], "nonsense");
    let other = Bytes::from_static(b"{}");
    assert_eq!(stream::distorted(other.clone(), effects), other);
}

#[test]
fn a_member_that_sends_nonsense_has_fewer_ready_pods_than_none_and_rooms_that_are_no_amounts() {
    let piece = Bytes::from_static(
        br#"{"object":{"status":{"readyReplicas":2,"allocatable":{"cpu":"8","pods":"110"}}}}"#,
    );
    let effects = Piece {
        is_nonsense: true,
        ..Piece::default()
    };
    let reported: Value = serde_json::from_slice(&stream::distorted(piece, effects)).unwrap();
    let status = &reported["object"]["status"];
    assert_eq!(status["readyReplicas"], -2);
    assert_eq!(status["allocatable"]["cpu"], "lots");
}

#[test]
fn a_short_list_lacks_what_a_fault_says() {
    let list = Bytes::from_static(br#"{"items":[{"a":1},{"a":2},{"a":3}],"metadata":{}}"#);
    let mut number = 0;
    let short = stream::shortened(&list, || {
        number += 1;
        number == 2
    });
    let short: Value = serde_json::from_slice(&short).unwrap();
    assert_eq!(short["items"], json!([{"a": 1}, {"a": 3}]));
}
