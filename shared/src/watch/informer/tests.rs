use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::testing;
use crate::watch::outline;
use crate::watch::packing::{Parts, Shared};

fn map(uid: &str, version: Option<&str>) -> Arc<ConfigMap> {
    let mut map = ConfigMap::default();
    map.metadata.uid = Some(uid.into());
    map.metadata.resource_version = version.map(str::to_owned);
    Arc::new(map)
}

#[test]
fn a_list_takes_over_what_it_shows_unchanged() {
    let known = map("1", Some("7"));
    for (what, listed, same) in [
        ("the same version", map("1", Some("7")), true),
        ("another version", map("1", Some("8")), false),
        ("made anew", map("2", Some("7")), false),
        ("of no version", map("1", None), false),
    ] {
        let taken = unchanged(Some(&Held::Whole(Arc::clone(&known))), &listed);
        let is_known =
            taken.is_some_and(|it| matches!(it, Held::Whole(it) if Arc::ptr_eq(&it, &known)));
        assert_eq!(is_known, same, "{what}");
    }
    assert!(unchanged(None, known.as_ref()).is_none());
}

fn informer(selection: Selection) -> Informer<ConfigMap> {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    Informer::new(Api::all(kube::Client::try_from(config).unwrap()), selection)
}

/// Returns an object `x`, which a finalizer keeps, or which is being deleted, or neither.
fn object(state: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some("x".into());
    match state {
        "kept" => map.metadata.finalizers = Some(vec!["a/b".into()]),
        "leaving" => {
            map.metadata.deletion_timestamp = Some(crate::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
        }
        _ => {}
    }
    map
}

fn odd(deleting: bool, deleted: bool) -> FollowerEvent<ConfigMap> {
    FollowerEvent::Unreadable(Rejected {
        namespace: String::new(),
        name: "x".into(),
        uid: None,
        error: String::new(),
        resource_version: None,
        deleting,
        deleted,
    })
}

/// What happens, as events, then what is known of `x`, and whether its departure was
/// reported.
type Case = (
    &'static str,
    Vec<Vec<FollowerEvent<ConfigMap>>>,
    &'static str,
    bool,
);

/// Returns what is known of `x` after these events, and whether its departure was reported.
fn known(selection: Selection, events: Vec<FollowerEvent<ConfigMap>>) -> (String, bool) {
    let informer = informer(selection);
    let reported = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (deleted, unread) = (Arc::clone(&reported), Arc::clone(&reported));
    let set = |reported: &std::sync::atomic::AtomicBool| {
        reported.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    informer.on_change(move |change| {
        if matches!(change, Change::Deleted { .. }) {
            set(&deleted);
        }
    });
    informer.on_unread_departure(move |_, _| set(&unread));
    let mut list = None;
    for event in events {
        informer.observe(event, &mut list);
    }
    let presence = informer.presence(None, "x");
    assert_eq!(presence.is_gone(), informer.departed().is_gone(None, "x"));
    let presence = match presence {
        Presence::There(_) => "there".to_owned(),
        Presence::Gone => "gone".to_owned(),
        Presence::Unknown(doubt) => format!("{doubt:?}"),
    };
    (
        presence,
        reported.load(std::sync::atomic::Ordering::Relaxed),
    )
}

#[tokio::test]
async fn only_what_was_seen_leaving_is_gone() {
    let event = FollowerEvent::Event;
    let list = |objects: Vec<FollowerEvent<ConfigMap>>| {
        let mut list = vec![event(Event::Init)];
        list.extend(objects);
        list.push(event(Event::InitDone));
        list
    };
    let listed = |state: &str| list(vec![event(Event::InitApply(object(state)))]);
    let applied = |state: &str| event(Event::Apply(object(state)));
    let deleted = || event(Event::Delete(object("free")));
    let empty = || list(vec![]);
    #[rustfmt::skip]
    let cases: Vec<Case> = vec![
        ("nothing heard", vec![], "Unlisted", false),
        ("half a list", vec![vec![event(Event::Init)]], "Unlisted", false),
        ("a list without it", vec![empty()], "Unseen", false),
        ("a list with it", vec![listed("kept")], "there", false),
        ("its deletion", vec![listed("kept"), vec![deleted()]], "gone", true),
        ("its deletion while it was not known", vec![empty(), vec![deleted()]], "gone", true),
        ("made again", vec![listed("kept"), vec![deleted(), applied("kept")]], "there", true),
        // A short or empty list is no departure of what a finalizer holds.
        ("it is missing from a later list", vec![listed("kept"), empty()], "Vanished", true),
        ("it is back", vec![listed("kept"), empty(), listed("kept")], "there", true),
        ("it was on its way out, and is missing", vec![listed("leaving"), empty()], "gone", true),
        ("nothing held it, and it is missing", vec![listed("free"), empty()], "gone", true),
        // A start over an object that does not decode.
        ("listed unreadable", vec![list(vec![odd(false, false)])], "Unreadable { deleting: false }", false),
        ("listed unreadable, being deleted", vec![list(vec![odd(true, false)])], "Unreadable { deleting: true }", false),
        ("unreadable, then readable", vec![list(vec![odd(false, false)]), vec![applied("kept")]], "there", false),
        ("unreadable, then missing", vec![list(vec![odd(false, false)]), empty()], "Vanished", false),
        ("unreadable and leaving, then missing", vec![list(vec![odd(true, false)]), empty()], "gone", true),
        ("unreadable, then deleted", vec![list(vec![odd(false, false)]), vec![odd(true, true)]], "gone", true),
        ("it arrives unreadable", vec![empty(), vec![odd(false, false)]], "Unreadable { deleting: false }", false),
        ("deleted and made again unreadably", vec![listed("kept"), vec![deleted(), odd(false, false)]], "Unreadable { deleting: false }", true),
        // The last version that decoded is the last known good one.
        ("it became unreadable", vec![listed("kept"), vec![odd(false, false)]], "there", false),
        ("it is listed unreadable later", vec![listed("kept"), list(vec![odd(false, false)])], "there", false),
        ("it became unreadable and left", vec![listed("kept"), vec![odd(true, false)], empty()], "gone", true),
        ("a deletion that does not decode", vec![listed("kept"), vec![odd(true, true)]], "gone", true),
        ("deleted while a list arrives",
            vec![vec![event(Event::Init), event(Event::InitApply(object("kept"))), deleted(), event(Event::InitDone)]], "gone", true),
        ("listed, and deleted while the next list arrives",
            vec![listed("kept"), vec![event(Event::Init), event(Event::InitApply(object("kept"))), deleted(), event(Event::InitDone)]], "gone", true),
        ("deleted while a list arrives that is not completed",
            vec![listed("kept"), vec![event(Event::Init), deleted(), event(Event::Init), event(Event::InitDone)]], "gone", true),
        ("deleted and made again while a list arrives",
            vec![list(vec![event(Event::InitApply(object("kept"))), deleted(), event(Event::InitApply(object("kept")))])], "there", true),
        ("deleted and made again unreadably while a list arrives",
            vec![list(vec![event(Event::InitApply(object("kept"))), deleted(), odd(false, false)])], "Unreadable { deleting: false }", true),
        ("such a deletion while a list arrives",
            vec![vec![event(Event::Init), event(Event::InitApply(object("kept"))), odd(true, true), event(Event::InitDone)]], "gone", true),
    ];
    for (what, events, presence, reported) in cases {
        let events = events.into_iter().flatten().collect();
        assert_eq!(
            known(Selection::everything(), events),
            (presence.to_owned(), reported),
            "{what}"
        );
    }
    // A selection is left without being deleted.
    let labelled = || Selection::everything().labels("a=b");
    let left = |object| {
        [listed("kept"), vec![event(Event::Delete(object))]]
            .into_iter()
            .flatten()
            .collect()
    };
    assert_eq!(known(labelled(), left(object("kept"))).0, "Vanished");
    assert_eq!(known(labelled(), left(object("leaving"))).0, "gone");
}

#[tokio::test]
async fn an_object_that_was_replaced_unseen_is_gone_before_the_other_one_is_there() {
    let made = |uid: Option<&str>| {
        let mut made = object("kept");
        made.metadata.uid = uid.map(str::to_owned);
        made
    };
    for (before, after, expected) in [
        (Some("1"), Some("2"), "applied; deleted, gone; applied"),
        (Some("1"), Some("1"), "applied; changed"),
        (None, Some("2"), "applied; changed"),
        (Some("1"), None, "applied; changed"),
    ] {
        for is_listed in [true, false] {
            let informer = informer(Selection::everything());
            let reported = Arc::new(Mutex::new(Vec::new()));
            let (cache, heard) = (informer.clone(), Arc::clone(&reported));
            informer.on_change(move |change| {
                heard.lock().push(match change {
                    Change::Applied { old: None, .. } => "applied",
                    Change::Applied { .. } => "changed",
                    Change::Deleted { .. } if cache.presence(None, "x").is_gone() => {
                        "deleted, gone"
                    }
                    Change::Deleted { .. } => "deleted",
                });
            });
            let mut list = None;
            for uid in [before, after] {
                let events = if is_listed {
                    vec![Event::Init, Event::InitApply(made(uid)), Event::InitDone]
                } else {
                    vec![Event::Apply(made(uid))]
                };
                for event in events {
                    informer.observe(FollowerEvent::Event(event), &mut list);
                }
            }
            let reported = reported.lock().join("; ");
            assert_eq!(reported, expected, "{before:?} {after:?} {is_listed}");
            assert!(!informer.departed().is_gone(None, "x"));
            let there = informer.get(None, "x").unwrap();
            assert_eq!(there.metadata.uid.as_deref(), after);
        }
    }
}

/// Returns a server whose lists have these objects one after the other, the last of them ever
/// after, and that ends each watch by saying that the history is over.
fn listing(lists: Vec<Vec<&'static str>>, asked: Arc<Mutex<Vec<Instant>>>) -> Api<ConfigMap> {
    Api::all(testing::api(move |uri| {
        let query = uri.query().unwrap_or_default();
        if query.contains("sendInitialEvents") {
            refusal(422)
        } else if query.contains("watch=") {
            let is_settled = asked.lock().len() >= 2;
            refusal(if is_settled { 403 } else { 410 })
        } else {
            let mut asked = asked.lock();
            let names = &lists[asked.len().min(lists.len() - 1)];
            asked.push(Instant::now());
            let items: Vec<_> = names.iter().map(|name| plain(name)).collect();
            answer(&items)
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_what_nobody_saw_leave_is_confirmed_by_another() {
    for (lists, known, lists_in_all) in [
        // The second list was short, and no watch reports what it lacks.
        (vec![vec!["a", "b"], vec!["a"], vec!["a", "b"]], 2, 3),
        (vec![vec!["a", "b"], vec!["a"]], 1, 3),
        (vec![vec!["a"], vec!["a", "b"]], 2, 2),
    ] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let api = listing(lists.clone(), Arc::clone(&asked));
        let informer = Informer::new(api, Selection::everything());
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(informer.clone().run(shutdown.clone()));
        tokio::time::sleep(CONFIRMATION * 10).await;
        assert_eq!(informer.len(), known, "{lists:?}");
        assert_eq!(asked.lock().len(), lists_in_all, "{lists:?}");
        shutdown.cancel();
        running.await.unwrap();
    }
}

/// Returns a bookmark each minute, as servers send them.
fn bookmarks()
-> impl futures::Stream<Item = Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>> {
    futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let line =
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"2\"}}}\n";
        Some((Ok(hyper::body::Frame::data(bytes::Bytes::from(line))), ()))
    })
}

/// Returns a server that gives these answers to lists one after the other, the last of them ever
/// after. Its first watch says that the history is over, the others send these lines, and nothing
/// more for ever.
fn attacked(answers: Vec<(u16, String)>, lines: &'static str) -> Api<ConfigMap> {
    use futures::StreamExt as _;
    use http_body_util::BodyExt as _;
    let full = |body: String| {
        let body = http_body_util::Full::new(bytes::Bytes::from(body));
        body.map_err(|never| match never {}).boxed_unsync()
    };
    let (lists, watches) = (Arc::new(Mutex::new(0_usize)), Arc::new(Mutex::new(0_usize)));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let status = |code: u16| (code, full(refusal(code).1));
        let (code, body) = if query.contains("sendInitialEvents") {
            status(422)
        } else if query.contains("watch=") {
            let mut watches = watches.lock();
            *watches += 1;
            if *watches == 1 {
                status(410)
            } else {
                let reported = (*watches > 2 && !lines.is_empty()).then(|| {
                    Ok::<_, std::io::Error>(hyper::body::Frame::data(bytes::Bytes::from(lines)))
                });
                let reported = futures::stream::iter(reported).chain(bookmarks());
                (
                    200,
                    http_body_util::StreamBody::new(reported).boxed_unsync(),
                )
            }
        } else {
            let mut lists = lists.lock();
            let (code, body) = answers[(*lists).min(answers.len() - 1)].clone();
            *lists += 1;
            (code, full(body))
        };
        let pause = if code == 429 { "120" } else { "0" };
        let answer = http::Response::builder().status(code);
        let answer = answer.header("retry-after", pause).body(body).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    Api::all(kube::Client::new(service, "default"))
}

fn answer(items: &[serde_json::Value]) -> (u16, String) {
    let list = json!({"items": items, "metadata": {"resourceVersion": "1"}});
    (200, list.to_string())
}

fn plain(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}})
}

async fn followed_for(api: Api<ConfigMap>, time: Duration) -> Informer<ConfigMap> {
    let informer = Informer::new(api, Selection::everything());
    tokio::spawn(informer.clone().run(CancellationToken::new()));
    tokio::time::sleep(time).await;
    informer
}

fn refusal(code: u16) -> (u16, String) {
    (code, json!({"kind": "Status", "code": code}).to_string())
}

#[tokio::test(start_paused = true)]
async fn a_cache_whose_watch_sends_nothing_is_confirmed_when_somebody_asks_also_after_a_refusal() {
    for (refused, seconds) in [(None, 5), (Some(refusal(503)), 10)] {
        let before = [answer(&[plain("a")]), answer(&[plain("a")])];
        let after = answer(&[plain("a"), plain("b")]);
        let answers = before.into_iter().chain(refused).chain([after]);
        let api = attacked(answers.collect(), "");
        let informer = followed_for(api, Duration::from_secs(10)).await;
        assert_eq!(informer.len(), 1);
        let patience = Duration::from_secs(seconds);
        let confirmed = tokio::time::timeout(patience, informer.confirmed());
        confirmed.await.unwrap();
        assert_eq!(informer.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_list_is_confirmed_after_a_failure_and_also_where_what_it_lacks_leaves() {
    let leaving = json!({"metadata": {
        "name": "b", "resourceVersion": "1", "deletionTimestamp": "2024-01-01T00:00:00Z",
        "finalizers": ["example.com/held"],
    }});
    for (other, failure) in [(plain("b"), Some(refusal(503))), (leaving, None)] {
        let (whole, short) = (answer(&[plain("a"), other]), answer(&[plain("a")]));
        let answers = [whole.clone(), short]
            .into_iter()
            .chain(failure)
            .chain([whole]);
        let api = attacked(answers.collect(), "");
        let informer = followed_for(api, Duration::from_hours(24)).await;
        assert_eq!(informer.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_sends_after_a_confirmation_broke_off_counts() {
    let whole = answer(&[plain("a"), plain("b")]);
    let first = plain("a");
    let broken = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{first},"#);
    let answers = vec![whole, answer(&[plain("a")]), (200, broken)];
    let line = "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"2\"},\"data\":5}}\n";
    let informer = followed_for(attacked(answers, line), Duration::from_mins(5)).await;
    let found = format!("{:?}", informer.presence(None, "b"));
    assert_eq!(found, "Unknown(Unreadable { deleting: false })");
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_at_once_where_the_api_has_no_time_for_a_confirmation() {
    let whole = answer(&[plain("a"), plain("b")]);
    let answers = vec![whole, answer(&[plain("a")]), refusal(429)];
    let line = "{\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"resourceVersion\":\"2\"}}}\n";
    let informer = followed_for(attacked(answers, line), CONFIRMATION * 2).await;
    assert!(informer.get(None, "c").is_some());
}

/// How often an object was decoded.
static DECODED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Returns the parts of an object, with its labels beside the text.
fn with_labels(object: &ConfigMap) -> serde_json::Result<Parts> {
    Ok(Parts {
        text: serde_json::to_vec(object)?,
        labels: outline::text(object.metadata.labels.as_ref()),
        shared: None,
    })
}

/// Returns the parts of an object, with its labels in the text alone.
fn without_labels(object: &ConfigMap) -> serde_json::Result<Parts> {
    let labels = None;
    with_labels(object).map(|parts| Parts { labels, ..parts })
}

#[tokio::test]
async fn what_selectors_do_not_select_is_not_decoded() {
    for (pack, keeps_labels) in [(with_labels as fn(&_) -> _, true), (without_labels, false)] {
        let unpack = |text: &[u8], _: Option<&Shared>| {
            DECODED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            serde_json::from_slice(text)
        };
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let api = Api::all(kube::Client::try_from(config).unwrap());
        let selection = Selection::everything();
        let maps = Informer::packing(api, selection, |_| {}, Codec { pack, unpack });
        // There are more objects than stay decoded.
        for number in 0..2000 {
            let mut map = ConfigMap::default();
            map.metadata.namespace = Some(format!("n{}", number % 2));
            map.metadata.name = Some(format!("m{number}"));
            map.metadata.labels = Some([("app".to_owned(), format!("a{}", number % 4))].into());
            maps.observe(FollowerEvent::Event(Event::Apply(map)), &mut None);
        }
        DECODED.store(0, std::sync::atomic::Ordering::Relaxed);
        let selected = |namespace, app: &'static str| {
            let found = maps.iter_selected(namespace, move |it| it.labels.get("app") == Some(app));
            found.count()
        };
        assert_eq!(selected(None, "a"), 0);
        let decoded = DECODED.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(decoded == 0, keeps_labels, "{decoded}");
        assert_eq!(selected(None, "a1"), 500);
        assert_eq!(
            [Some("n0"), Some("n1")].map(|it| selected(it, "a1")),
            [0, 500]
        );
        let named = maps.iter_selected(Some("n1"), |it| it.name == "m7");
        assert_eq!(named.count(), 1);
    }
}
