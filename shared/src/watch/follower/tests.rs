use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::paging::next_limit;
use super::streaming::{STREAMING_RETRY, refuses_streaming};
use super::*;
use crate::testing;

/// Follows everything that an API has for so long.
async fn follow_for(api: &Api<ConfigMap>, time: Duration) {
    let mut follower = Follower::new(api, Selection::everything());
    let follow = async {
        loop {
            follower.next().await;
        }
    };
    assert!(tokio::time::timeout(time, follow).await.is_err());
}

fn line(kind: &str, name: &str, version: &str) -> String {
    let object = json!({"metadata": {"name": name, "resourceVersion": version}});
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn odd(kind: &str, name: &str, version: &str) -> String {
    line(kind, name, version).replace(r#""metadata""#, r#""data":5,"metadata""#)
}

fn end_of_list() -> String {
    let notes = json!({"k8s.io/initial-events-end": "true"});
    let object = json!({"metadata": {"resourceVersion": "9", "annotations": notes}});
    format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
}

fn short(event: FollowerEvent<ConfigMap>) -> String {
    let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
    match event {
        FollowerEvent::Event(Event::Init) => "init".into(),
        FollowerEvent::Event(Event::InitApply(map)) => format!("listed {}", name(map)),
        FollowerEvent::Event(Event::InitDone) => "done".into(),
        FollowerEvent::Event(Event::Apply(map)) => format!("+{}", name(map)),
        FollowerEvent::Event(Event::Delete(map)) => format!("-{}", name(map)),
        FollowerEvent::BrokenOff => "broken off".into(),
        FollowerEvent::Unreadable(rejected) if rejected.deleted => format!("-{}?", rejected.name),
        FollowerEvent::Unreadable(rejected) => format!("{}?", rejected.name),
    }
}

/// Returns what comes of these lines of a streaming list.
async fn reported(lines: &[String]) -> Vec<String> {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let api: Api<ConfigMap> = Api::all(kube::Client::try_from(config).unwrap());
    let mut follower = Follower::new(&api, Selection::everything());
    let bytes = futures::io::Cursor::new(lines.concat().into_bytes());
    let mut state = State::Streaming {
        lines: Incoming::new(Box::pin(bytes), None),
    };
    let mut reported = Vec::new();
    while matches!(state, State::Streaming { .. }) {
        state = match follower.step(state).await {
            Ok(state) => state,
            Err((_, stumble)) => panic!("{stumble}"),
        };
        assert_eq!(follower.ready.len(), 1, "each line is reported at once");
        reported.extend(follower.ready.drain(..).map(short));
    }
    reported
}

#[test]
fn only_a_server_that_says_so_does_not_stream_lists() {
    let progress = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
    for (code, message, ends, for_good) in [
        (400, "", true, true),
        (405, "", true, true),
        (406, "", true, true),
        (415, "", true, true),
        (422, "sendInitialEvents is forbidden", true, true),
        (500, progress, true, false),
        (500, "etcdserver: request timed out", false, false),
        (401, "", false, false),
        (403, "", false, false),
        (404, "", false, false),
        (410, "", false, false),
        (429, "", false, false),
        (503, progress, false, false),
    ] {
        let refused = refuses_streaming(code, message);
        let found = (refused.is_some(), refused == Some(Streaming::Never));
        assert_eq!(found, (ends, for_good), "{code} {message}");
    }
    let now = Instant::now();
    let later = Streaming::NotBefore(now + STREAMING_RETRY);
    assert!(!later.is_worth_asking(now) && later.is_worth_asking(now + STREAMING_RETRY));
}

#[test]
fn pages_are_bounded_by_their_bytes() {
    for (limit, bytes, expected) in [
        (20, 1_000, 40),
        (20, 3 << 20, 20),
        (20, 30 << 20, 10),
        (1, 30 << 20, 1),
        (u32::MAX, 1_000, u32::MAX),
    ] {
        assert_eq!(next_limit(limit, bytes), expected, "{limit} {bytes}");
    }
}

/// Returns a server that answers the query of each request with a status code and a body.
fn answering(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Api<ConfigMap> {
    let answer = move |uri: &http::Uri| answer(uri.query().unwrap_or_default());
    Api::all(testing::api(answer))
}

/// Returns a server whose history is always over: it answers lists, and every watch with 410.
fn forgetful(requests: Arc<parking_lot::Mutex<Vec<String>>>) -> Api<ConfigMap> {
    answering(move |query| {
        let kind = |text: &str| query.contains(text);
        let (code, body) = if kind("sendInitialEvents") {
            (422, json!({"kind": "Status", "code": 422}))
        } else if kind("watch=") {
            (410, json!({"kind": "Status", "code": 410}))
        } else {
            (200, list_of_version("1"))
        };
        requests.lock().push(query.to_owned());
        (code, body.to_string())
    })
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_over_after_every_list_is_no_reason_to_hurry() {
    let requests = Arc::default();
    let api = forgetful(Arc::clone(&requests));
    follow_for(&api, Duration::from_mins(1)).await;
    let requests = requests.lock();
    let lists = requests.iter().filter(|query| query.contains("limit"));
    assert!(lists.count() < 10, "{} requests", requests.len());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_a_moment_old_is_listed_in_one_answer_and_nothing_else_is() {
    for (selection, whole) in [
        (Selection::everything().recent(), true),
        (Selection::everything(), false),
    ] {
        let requests = Arc::default();
        let api = forgetful(Arc::clone(&requests));
        let mut follower = Follower::new(&api, selection);
        assert_eq!(short(follower.next().await), "init");
        assert_eq!(short(follower.next().await), "done");
        let requests = requests.lock();
        let query = &requests[1];
        assert_eq!(query.contains("resourceVersion=0"), whole, "{query}");
        assert_eq!(query.contains("limit="), !whole, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_breaks_off_makes_the_next_list_come_in_pages() {
    // How the whole list is answered at first, and whether the third attempt asks for a page.
    for (code, body, paged) in [
        (503, "{}", false),
        (403, "{}", false),
        (200, r#"{"items":[{"metadata":{"name":"a"}},"#, true),
    ] {
        let requests: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let api = answering(move |query| {
            if query.contains("sendInitialEvents") {
                return (422, "{}".to_owned());
            }
            seen.lock().push(query.to_owned());
            (code, body.to_owned())
        });
        let mut follower = Follower::new(&api, Selection::everything().recent());
        let follow = async {
            while requests.lock().len() < 3 {
                follower.next().await;
            }
        };
        // A server that refuses sends nothing: time passes until it has been asked often
        // enough.
        let _ = tokio::time::timeout(Duration::from_mins(1), follow).await;
        let requests = requests.lock();
        let mut first_two = requests[..2].iter();
        assert!(first_two.all(|query| !query.contains("limit")), "{code}");
        assert_eq!(requests[2].contains("limit"), paged, "{code}: {requests:?}");
    }
}

/// Returns a server behind a proxy that ends every watch at once, a streaming list after its first
/// object; it counts its requests.
fn impatient(requests: Arc<parking_lot::Mutex<u32>>) -> Api<ConfigMap> {
    answering(move |query| {
        *requests.lock() += 1;
        let body = if query.contains("sendInitialEvents") {
            line("ADDED", "a", "1")
        } else if query.contains("watch=") {
            String::new()
        } else {
            list_of_version("1").to_string()
        };
        (200, body)
    })
}

#[tokio::test(start_paused = true)]
async fn answers_that_always_break_off_are_neither_waited_for_nor_asked_for_without_end() {
    let requests = Arc::default();
    let api = impatient(Arc::clone(&requests));
    let mut follower = Follower::new(&api, Selection::everything());
    let mut heard = Vec::new();
    let follow = async {
        loop {
            heard.push(short(follower.next().await));
            assert!(*requests.lock() < 100, "{heard:?}");
        }
    };
    let minute = Duration::from_mins(1);
    assert!(tokio::time::timeout(minute, follow).await.is_err());
    assert_eq!(heard.last().map(String::as_str), Some("done"), "{heard:?}");
    let requests = *requests.lock();
    assert!(requests < 15, "{requests} requests in a minute");
}

/// Returns a server behind a proxy that ends every watch before it has said anything. Each list has
/// one object, named by how many lists were asked for.
fn cutting(lists: Arc<parking_lot::Mutex<Vec<Instant>>>) -> Api<ConfigMap> {
    answering(move |query| {
        let body = if query.contains("watch=") {
            String::new()
        } else {
            let mut lists = lists.lock();
            lists.push(Instant::now());
            let name = lists.len().to_string();
            let metadata = json!({"name": name, "namespace": "default", "resourceVersion": name});
            let item = json!({"metadata": metadata});
            json!({"metadata": {"resourceVersion": name}, "items": [item]}).to_string()
        };
        (200, body)
    })
}

#[tokio::test(start_paused = true)]
async fn where_every_watch_is_cut_changes_are_found_by_lists_now_and_then() {
    let lists = Arc::default();
    let api = cutting(Arc::clone(&lists));
    follow_for(&api, Duration::from_mins(10)).await;
    let lists = lists.lock();
    assert!((10..=30).contains(&lists.len()), "{} lists", lists.len());
    let longest = lists.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!(longest < Duration::from_mins(1), "{longest:?}");
}

type Stream = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>;

/// Returns a watch that says some lines, lasts that long, and then ends as agreed or is cut.
fn stream(lines: String, lasts: Duration, is_cut: bool) -> Stream {
    use futures::StreamExt as _;
    use http_body_util::BodyExt as _;
    let lines = futures::stream::once(async move { Ok(hyper::body::Frame::data(lines.into())) });
    let end = futures::stream::once(async move {
        tokio::time::sleep(lasts).await;
        is_cut.then(|| Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)))
    });
    let end = end.filter_map(std::future::ready);
    http_body_util::StreamBody::new(lines.chain(end)).boxed_unsync()
}

/// Returns whether a query asks for a version of the server alone.
fn is_of_version(query: &str) -> bool {
    query.split('&').any(|part| part == "limit=1")
}

/// Returns how many requests for lists and for watches a server gets in so many minutes, which it
/// answers by the query of each.
async fn asked(
    minutes: u64,
    answer: impl Fn(&str) -> (u16, Stream) + Send + Sync + 'static,
) -> (usize, usize) {
    let queries: Arc<parking_lot::Mutex<Vec<bool>>> = Arc::default();
    let seen = Arc::clone(&queries);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default();
        let is_list = !query.contains("watch=") || query.contains("sendInitialEvents");
        if !is_of_version(query) {
            seen.lock().push(is_list);
        }
        let (code, body) = answer(query);
        let answer = http::Response::builder().status(code).body(body).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let api: Api<ConfigMap> = Api::all(kube::Client::new(service, "default"));
    follow_for(&api, Duration::from_mins(minutes)).await;
    let queries = queries.lock();
    let lists = queries.iter().filter(|it| **it).count();
    (lists, queries.len() - lists)
}

fn text(text: &impl ToString) -> Stream {
    stream(text.to_string(), Duration::ZERO, false)
}

fn list_of_version(version: &str) -> serde_json::Value {
    json!({"metadata": {"resourceVersion": version}, "items": []})
}

fn seconds_of(query: &str) -> u64 {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let timeout = pairs.find(|(name, _)| *name == "timeoutSeconds");
    timeout.unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn streamed_lists_in_place_of_watches_that_are_cut_do_not_follow_each_other_at_once() {
    let (lists, _) = asked(10, |query| {
        let lines = if query.contains("sendInitialEvents") {
            line("ADDED", "a", "1") + &end_of_list()
        } else {
            String::new()
        };
        (200, stream(lines, Duration::ZERO, true))
    })
    .await;
    assert!((10..=40).contains(&lists), "{lists} lists");
}

#[tokio::test(start_paused = true)]
async fn quiet_watches_that_a_proxy_cuts_are_asked_for_shorter_and_nothing_is_listed_anew() {
    for limit in [35, 20, 10] {
        let (lists, watches) = asked(60, move |query| {
            if is_of_version(query) {
                return (200, text(&list_of_version("9")));
            }
            let lines = if query.contains("sendInitialEvents") {
                end_of_list()
            } else {
                String::new()
            };
            let agreed = seconds_of(query);
            let lasts = Duration::from_secs(agreed.min(limit));
            (200, stream(lines, lasts, agreed > limit))
        })
        .await;
        assert_eq!(lists, 1, "cut after {limit} s");
        assert!(watches < 1_000, "cut after {limit} s: {watches} watches");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_quiet_watches_behind_a_proxy_are_not_replaced_by_lists_for_ever() {
    // Seconds of the outage, and whether a proxy that cuts a watch says so.
    for (outage, is_reported, most) in [(5, true, 1), (60, true, 4), (60, false, 12)] {
        let begun = Instant::now();
        let (lists, _) = asked(60, move |query| {
            if query.contains("sendInitialEvents") {
                let lasts = Duration::from_secs(if is_reported { 35 } else { 3_600 });
                return (200, stream(end_of_list(), lasts, true));
            }
            if (40..40 + outage).contains(&begun.elapsed().as_secs()) {
                return (504, text(&"{}"));
            }
            if is_of_version(query) {
                return (200, text(&list_of_version("9")));
            }
            let agreed = seconds_of(query);
            let lasts = match agreed > 35 {
                true if is_reported => 35,
                true => 3_600,
                false => agreed,
            };
            let lasts = Duration::from_secs(lasts);
            (200, stream(String::new(), lasts, agreed > 35))
        })
        .await;
        assert!(lists <= most, "{outage} s, {is_reported}: {lists} lists");
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_anew_where_a_server_is_back_with_an_older_store() {
    // All is known up to version 9 when the server is away for some seconds, or for so short a time
    // that a watch is cut and nothing refused.
    let versions = [("9", 1), ("12", 1), ("x", 1), ("8", 2)];
    let cases = [false, true].map(|is_cut| versions.map(|it| (is_cut, it)));
    for (is_cut, (version, expected)) in cases.into_iter().flatten() {
        let begun = Instant::now();
        let (lists, _) = asked(10, move |query| {
            let seconds = begun.elapsed().as_secs();
            if !is_cut && (50..55).contains(&seconds) {
                return (502, text(&"{}"));
            }
            if is_of_version(query) {
                return (200, text(&list_of_version(version)));
            }
            let lines = if query.contains("sendInitialEvents") {
                end_of_list()
            } else {
                String::new()
            };
            let lasts = Duration::from_secs(seconds_of(query));
            (200, stream(lines, lasts, is_cut && seconds == 0))
        })
        .await;
        assert_eq!(lists, expected, "{version}, cut: {is_cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_asked_for_lists_after_an_outage_either() {
    let begun = Instant::now();
    let (lists, watches) = asked(10, move |query| match () {
        () if query.contains("sendInitialEvents") => (422, text(&"{}")),
        () if query.contains("watch=") => {
            let is_away = begun.elapsed() < Duration::from_secs(40);
            (if is_away { 504 } else { 429 }, text(&"{}"))
        }
        () => (200, text(&list_of_version("1"))),
    })
    .await;
    assert!(lists <= 4, "{lists} lists");
    assert!(watches > 10, "{watches} watches");
}

#[tokio::test(start_paused = true)]
async fn where_watches_are_never_opened_or_end_in_errors_everything_is_listed_now_and_then() {
    let error = || {
        let object = json!({"kind": "Status", "code": 500, "message": "no"});
        text(&json!({"type": "ERROR", "object": object}))
    };
    for code in [504, 502, 200, 503, 403] {
        let (lists, _) = asked(10, move |query| match () {
            () if query.contains("sendInitialEvents") => (422, text(&"{}")),
            () if query.contains("watch=") && code == 200 => (200, error()),
            () if query.contains("watch=") => (code, text(&"{}")),
            () => (200, text(&list_of_version("1"))),
        })
        .await;
        // The first one is asked for as a stream, too.
        let is_busy_or_refuses = matches!(code, 503 | 403);
        let expected = if is_busy_or_refuses { 2..=2 } else { 8..=40 };
        assert!(expected.contains(&lists), "{code}: {lists} lists");
    }
}

/// Returns a server that refuses everything, or answers nothing.
fn refusing(code: u16) -> Api<ConfigMap> {
    let message = "configmaps is forbidden: why";
    let status = json!({"kind": "Status", "code": code, "message": message}).to_string();
    answering(move |_| (code, status.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_reported_after_some_seconds() {
    for (code, after, reported) in [
        (403, 4, false),
        // The third try may come just before the five seconds, the fourth eight seconds later.
        (403, 14, true),
        (503, 20, false),
        (503, 90, true),
    ] {
        let trouble: Arc<Trouble> = Arc::default();
        let follower = Follower::new(&refusing(code), Selection::everything());
        let mut follower = follower.explaining(Arc::clone(&trouble));
        let after = Duration::from_secs(after);
        assert!(tokio::time::timeout(after, follower.next()).await.is_err());
        let words = trouble.words();
        assert_eq!(words.is_some(), reported, "{code} after {after:?}");
        if let Some(words) = words {
            let says = |part: &str| words.contains(part);
            assert!(says("configmaps") && says("why"), "{words}");
        }
    }
}

#[tokio::test]
async fn what_happens_while_the_list_is_streamed_is_reported_in_its_order_and_not_kept() {
    let (a, b) = (line("ADDED", "a", "1"), line("ADDED", "b", "2"));
    let (changed, deleted) = (line("MODIFIED", "a", "3"), line("DELETED", "a", "3"));
    let (added, odd_deleted) = (line("ADDED", "a", "4"), odd("DELETED", "a", "3"));
    let odd_added = odd("ADDED", "a", "4");
    #[rustfmt::skip]
    let cases = [
        ("only a list", vec![&a, &b], "listed a, listed b, done"),
        ("a change", vec![&a, &changed], "listed a, listed a, done"),
        ("a deletion", vec![&a, &b, &deleted], "listed a, listed b, -a, done"),
        ("made again", vec![&a, &deleted, &added, &b], "listed a, -a, listed a, listed b, done"),
        ("a deletion that does not decode", vec![&a, &odd_deleted], "listed a, -a?, done"),
        ("deletion and change do not decode", vec![&odd_deleted, &odd_added], "-a?, a?, done"),
    ];
    for (what, lines, expected) in cases {
        let lines = lines.into_iter().cloned().chain([end_of_list()]);
        let reported = reported(&lines.collect::<Vec<_>>()).await.join(", ");
        assert_eq!(reported, expected, "{what}");
    }
}
