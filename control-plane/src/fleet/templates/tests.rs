use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use kube::client::Body;
use serde_json::json;

use super::*;

/// Templates of an API server that answers every look-up with 404.
fn templates() -> Templates {
    let nothing = tower::service_fn(|_: Request<Body>| async {
        let response = Response::builder().status(404);
        Ok::<_, std::io::Error>(response.body(Body::empty()).unwrap())
    });
    let client = Client::new(nothing, "default");
    Templates::new(client.clone(), client, CancellationToken::new())
}

fn odd(number: usize) -> Kind {
    Kind::new(format!("group{number}.example.com/v1"), "Odd")
}

#[tokio::test(start_paused = true)]
async fn a_reserved_kind_is_never_watched() {
    let templates = templates();
    for (api_version, kind) in [
        ("work.karmada.io/v1alpha1", "Work"),
        ("v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
        ("policy.karmada.io/v1alpha1", "PropagationPolicy"),
    ] {
        let kind = Kind::new(api_version, kind);
        templates.name(&kind);
        assert_eq!(templates.kind_state(&kind), KindState::Reserved, "{kind:?}");
        assert!(templates.read().is_empty(), "{kind:?}");
        let key = TemplateKey {
            kind: Arc::new(kind),
            namespace: None,
            name: "x".into(),
        };
        assert!(matches!(templates.get(&key), Lookup::Absent), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_forgotten_when_nothing_names_it_any_more() {
    let templates = templates();
    tokio::spawn(templates.clone().run());
    let kind = odd(1);
    templates.name(&kind);
    templates.name(&kind);
    let missing = async |templates: &Templates| {
        while templates.kind_state(&kind) != KindState::Missing {
            tokio::time::advance(Duration::from_millis(10)).await;
        }
    };
    missing(&templates).await;
    templates.unname(&kind);
    tokio::time::advance(LINGER * 3).await;
    assert_eq!(
        templates.kind_state(&kind),
        KindState::Missing,
        "named once"
    );
    templates.unname(&kind);
    let begun = tokio::time::Instant::now();
    while !templates.read().is_empty() {
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < LINGER * 2, "it is still looked for");
    }
}

#[test]
fn a_look_up_of_a_missing_kind_backs_off_and_all_of_them_share_a_rate() {
    assert_eq!(
        [1, 2, 3, 6, 40].map(|asked| retry_after(asked, 1).as_secs()),
        [2, 4, 8, 60, 60]
    );
    for missing in [100_u32, 10_000, 1_000_000] {
        let wait = retry_after(40, missing as usize);
        let a_second = f64::from(missing) / wait.as_secs_f64();
        assert!(a_second <= 20.0, "{missing}: {a_second} a second");
    }
}

/// Templates of an API server that has Gizmos, Widgets and Things, two of each; Gizmos cannot be
/// listed while it is `broken`. The definition of Things had another scope than their objects have.
fn served(broken: &Arc<AtomicBool>) -> Templates {
    let broken = Arc::clone(broken);
    let served = tower::service_fn(move |request: Request<Body>| {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
        let kind = |plural: &str, kind: &str| {
            let namespaced = kind != "Thing";
            json!({ "name": plural, "singularName": "", "namespaced": namespaced, "kind": kind,
                "verbs": ["list", "watch", "delete"] })
        };
        let (code, answer) = if path == "/apis/example.com/v1" {
            let resources = [
                ("gizmos", "Gizmo"),
                ("widgets", "Widget"),
                ("things", "Thing"),
            ];
            let resources = resources.map(|(plural, name)| kind(plural, name));
            let list = json!({ "groupVersion": "example.com/v1", "resources": resources });
            (200, Some(list))
        } else if path.ends_with("/gizmos") && broken.load(Ordering::Relaxed) {
            (
                403,
                Some(json!({ "code": 403, "reason": "Forbidden", "message": "no" })),
            )
        } else if query.contains("sendInitialEvents") {
            (
                422,
                Some(json!({ "code": 422, "reason": "Invalid", "message": "no" })),
            )
        } else if query.contains("watch=") {
            (200, None)
        } else {
            let item = |name: &str| json!({ "metadata": { "namespace": "default", "name": name } });
            let list =
                json!({ "metadata": { "resourceVersion": "1" }, "items": [item("a"), item("b")] });
            (200, Some(list))
        };
        let body = match answer {
            Some(answer) => Full::from(answer.to_string().into_bytes()).boxed_unsync(),
            // A watch on which nothing happens.
            None => Empty::new()
                .with_trailers(std::future::pending())
                .boxed_unsync(),
        };
        let response = Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, std::io::Error>(response))
    });
    let client = Client::new(served, "default");
    Templates::new(client.clone(), client, CancellationToken::new())
}

/// Waits until something is so, in simulated time.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_mins(10), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_is_reported_stops_no_other_and_comes_back() {
    let broken = Arc::new(AtomicBool::new(true));
    let templates = served(&broken);
    let [gizmo, widget] = ["Gizmo", "Widget"].map(|it| Kind::new("example.com/v1", it));
    tokio::spawn(templates.clone().run());
    templates.name(&gizmo);
    templates.name(&widget);
    until("the other kind is known", || templates.is_known(&widget)).await;
    assert_eq!(templates.list(&widget, None).unwrap().count(), 2);
    until("it is reported", || templates.trouble(&gizmo).is_some()).await;
    let trouble = templates.trouble(&gizmo).unwrap();
    assert!(trouble.starts_with("cannot list and watch "), "{trouble}");
    assert_eq!(templates.kind_state(&gizmo), KindState::Unlisted);
    assert!(
        templates.list(&gizmo, None).is_none(),
        "not known is not empty"
    );
    assert_eq!(templates.trouble(&widget), None);
    broken.store(false, Ordering::Relaxed);
    until("it is known", || templates.is_known(&gizmo)).await;
    assert_eq!(templates.list(&gizmo, None).unwrap().count(), 2);
    assert_eq!(templates.trouble(&gizmo), None);
}

#[tokio::test(start_paused = true)]
async fn a_kind_has_the_scope_of_its_objects_whatever_its_definition_had_when_it_was_found() {
    let templates = served(&Arc::default());
    let thing = Kind::new("example.com/v1", "Thing");
    tokio::spawn(templates.clone().run());
    templates.name(&thing);
    until("it is known", || templates.is_known(&thing)).await;
    assert!(templates.is_namespaced(&thing));
    let key = TemplateKey {
        kind: Arc::new(thing),
        namespace: Some("default".into()),
        name: "a".into(),
    };
    let api = templates.api(&key, &templates.inner.client).unwrap();
    let url = "/apis/example.com/v1/namespaces/default/things";
    assert_eq!(api.resource_url(), url);
}

#[tokio::test(start_paused = true)]
async fn a_comparison_with_all_templates_of_a_kind_keeps_nobody_from_naming_kinds() {
    let templates = served(&Arc::default());
    let widget = Kind::new("example.com/v1", "Widget");
    tokio::spawn(templates.clone().run());
    templates.name(&widget);
    until("it is known", || templates.is_known(&widget)).await;
    let can_name = |_: Outline<'_>| templates.inner.kinds.try_write().is_some();
    let found = templates.select(&widget, None, can_name).unwrap();
    assert_eq!(found.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_started_anew() {
    for panics_when_known in [false, true] {
        let templates = served(&Arc::new(AtomicBool::new(false)));
        let [gizmo, widget] = ["Gizmo", "Widget"].map(|it| Kind::new("example.com/v1", it));
        let (reported, known) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (odd, panicked) = (gizmo.clone(), Arc::clone(&reported));
        templates.on_change(move |change| {
            let first = *change.key.kind == odd && !panicked.swap(true, Ordering::Relaxed);
            assert!(!first || panics_when_known, "odd data");
        });
        let (odd, panicked) = (gizmo.clone(), Arc::clone(&known));
        templates.on_known(move |kind| {
            let first = *kind == odd && !panicked.swap(true, Ordering::Relaxed);
            assert!(!first || !panics_when_known, "odd data");
        });
        tokio::spawn(templates.clone().run());
        templates.name(&gizmo);
        templates.name(&widget);
        until("the other kind is known", || templates.is_known(&widget)).await;
        until("it is listed once", || reported.load(Ordering::Relaxed)).await;
        until("its watch has ended", || {
            templates.kind_state(&gizmo) == KindState::Sought
        })
        .await;
        until("it is started anew", || templates.is_known(&gizmo)).await;
        assert_eq!(templates.list(&gizmo, None).unwrap().count(), 2);
        assert!(templates.is_known(&widget));
    }
}
