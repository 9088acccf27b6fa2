use http::{Request, Response};
use kube::client::Body;

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
        assert_eq!(templates.standing(&kind), Standing::Reserved, "{kind:?}");
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
        while templates.standing(&kind) != Standing::Missing {
            tokio::time::advance(Duration::from_millis(10)).await;
        }
    };
    missing(&templates).await;
    templates.unname(&kind);
    tokio::time::advance(LINGER * 3).await;
    assert_eq!(templates.standing(&kind), Standing::Missing, "named once");
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
        [1, 2, 3, 6, 40].map(|looks| retry_after(looks, 1).as_secs()),
        [2, 4, 8, 60, 60]
    );
    for missing in [100_u32, 10_000, 1_000_000] {
        let wait = retry_after(40, missing as usize);
        let a_second = f64::from(missing) / wait.as_secs_f64();
        assert!(a_second <= 20.0, "{missing}: {a_second} a second");
    }
}
