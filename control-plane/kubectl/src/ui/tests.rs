use http::Request;
use muster_shared::k8s::Client;
use serde_json::Value;
use tower::service_fn;

use super::*;

fn local_address() -> LocalAddress {
    LocalAddress {
        port: 8080,
        token: "secret".to_owned(),
    }
}

fn access_mode() -> AccessMode {
    AccessMode::Address(local_address())
}

fn admitted(request: &Parts) -> Result<Target, Refused> {
    let path = local_address().admit(request)?;
    target(path, request.uri.query().unwrap_or_default())
}

fn request(method: &str, host: &[&str], path: &str) -> Parts {
    let mut request = Request::builder().method(method).uri(path);
    for host in host {
        request = request.header(HOST, *host);
    }
    request.body(()).unwrap().into_parts().0
}

const HERE: &str = "127.0.0.1:8080";

#[test]
fn only_requests_that_name_this_machine_are_let_in() {
    let here = "http://127.0.0.1:8080/secret/";
    for (hosts, path, is_let_in) in [
        (&[HERE][..], "/secret/", true),
        (&["localhost:8080"], "/secret/", true),
        (&["LOCALHOST:8080"], "/secret/", true),
        (&["[::1]:8080"], "/secret/", true),
        (&[HERE], here, true),
        (&[HERE], "http://evil.example:8080/secret/", false),
        (&["evil.example:8080"], "/secret/", false),
        (&["evil.example:8080"], here, false),
        (&["127.0.0.1"], "/secret/", false),
        (&["localhost:8081"], "/secret/", false),
        (&["127.0.0.1:8080.evil.example"], "/secret/", false),
        (&["localhost.:8080"], "/secret/", false),
        (&[""], "/secret/", false),
        (&[], "/secret/", false),
        (&[HERE, "evil.example:8080"], "/secret/", false),
    ] {
        let admitted = admitted(&request("GET", hosts, path));
        let status = admitted.err().map(|it| it.0);
        let wanted = (!is_let_in).then_some(StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(status, wanted, "{hosts:?} {path}");
    }
}

#[test]
fn nothing_is_reported_without_the_secret_and_nothing_is_changed_with_it() {
    for (method, path, status) in [
        ("GET", "/", 403),
        ("GET", "/api/status", 403),
        ("GET", "/secre/", 403),
        ("GET", "/secrets/api/status", 403),
        ("GET", "/SECRET/api/status", 403),
        ("GET", "//secret/api/status", 403),
        ("GET", "/?secret/", 403),
        // Nobody else learns which paths there are.
        ("GET", "/wrong/api/nothing", 403),
        ("GET", "/secret/api/nothing", 404),
        ("GET", "/secret", 404),
        ("GET", "/secret/api/status/", 404),
        ("GET", "/secret/../secret/", 404),
        ("POST", "/secret/api/status", 405),
        ("PUT", "/secret/", 405),
        ("HEAD", "/secret/", 405),
        ("OPTIONS", "/secret/", 405),
        ("GET", "/secret/api/simulate", 400),
        ("GET", "/secret/api/simulate?lost=", 400),
        ("GET", "/secret/api/simulate?lost=,,&drain=%20", 400),
        ("GET", "/secret/api/simulate?lose=m1", 400),
        ("GET", "/secret/api/workloads?cluster=--kubeconfig", 400),
        ("GET", "/secret/api/workloads?cluster=m1,m2", 400),
        ("GET", "/secret/api/workloads?cluster=m1&cluster=m2", 400),
        ("GET", "/secret/api/workloads?output=yaml", 400),
        ("GET", "/secret/api/explain", 400),
        ("GET", "/secret/api/explain?kind=Deployment", 400),
        ("GET", "/secret/api/explain?kind=-n&name=web", 400),
        ("GET", "/secret/api/explain?kind=a/b&name=web", 400),
        ("GET", "/secret/api/explain?kind=Job&name=web%20-n", 400),
        ("GET", "/secret/api/explain?kind=Job&name=a&plugins=x", 400),
        ("GET", "/secret/page/page.js", 404),
        ("GET", "/secret/api/simulate?kubeconfig=/a&lost=m1", 400),
    ] {
        let refused = admitted(&request(method, &[HERE], path)).unwrap_err();
        assert_eq!(refused.0.as_u16(), status, "{method} {path}");
        assert!(!refused.1.contains("secret"), "{}", refused.1);
    }
}

#[test]
fn each_path_asks_one_command() {
    use About::{Detail, Fleet, Forecast};
    for (path, about, command) in [
        ("status", Fleet, "status --clusters --most=200"),
        ("clusters?x", Fleet, "get clusters"),
        ("workloads", Fleet, "get workloads -A"),
        ("history", Fleet, "history"),
        ("workloads?cluster=", Fleet, "get workloads -A"),
        (
            "workloads?cluster=m1",
            Detail,
            "get workloads -A --cluster=m1",
        ),
        (
            "explain?namespace=shop&kind=Deployment&name=web",
            Detail,
            "explain --namespace=shop Deployment/web",
        ),
        (
            "explain?kind=ClusterRole&name=system:node&namespace=",
            Detail,
            "explain ClusterRole/system:node",
        ),
        ("top", Fleet, "top"),
        (
            "simulate?lost=m1%2C%20m2,m3&drain=m4&lost-region=",
            Forecast,
            "simulate --lost=m1,m2,m3 --drain=m4",
        ),
        // A name cannot become a flag.
        (
            "simulate?lost=--kubeconfig%3Dx",
            Forecast,
            "simulate --lost=--kubeconfig=x",
        ),
    ] {
        let path = format!("/secret/api/{path}");
        let target = admitted(&request("GET", &[HERE], &path)).unwrap();
        let ask = Ask::new(about, command, []);
        crate::line::parse(ask.line.clone()).unwrap();
        assert_eq!(target, Target::Ask(ask), "{path}");
    }
}

fn nobody() -> Answers {
    let service = service_fn(|_: Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    });
    Answers::new(Client::new(service, "default"), "", Vec::new())
}

#[tokio::test]
async fn a_fleet_that_cannot_be_read_is_an_error_in_words() {
    let wanted = [
        ("/secret/api/clusters", 502, "clusters"),
        ("/secret/api/history", 502, "failovers"),
        ("/secret/api/simulate?lost=m1", 502, "list"),
        ("/secret/api/simulate", 400, "name a cluster"),
    ];
    let answers = nobody();
    for (path, status, words) in wanted {
        let response = answer(&access_mode(), &answers, &request("GET", &[HERE], path)).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(words), "{path}: {error}");
    }
    // Status says itself what it could not read.
    let asked = request("GET", &[HERE], "/secret/api/status");
    let response = answer(&access_mode(), &answers, &asked).await;
    assert_eq!(response.status(), StatusCode::OK);
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    let unread = body["unread"][0].as_str().unwrap();
    assert!(
        unread.contains("list clusters, list resourcebindings"),
        "{unread}"
    );
    assert!(unread.ends_with("nobody is there"), "{unread}");
}

#[tokio::test]
async fn every_answer_forbids_what_is_foreign() {
    for path in ["/secret/", "/secret/page.js", "/secret/api/history", "/"] {
        let asked = request("GET", &[HERE], path);
        let response = answer(&access_mode(), &nobody(), &asked).await;
        let headers = response.headers();
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers[REFERRER_POLICY], "no-referrer", "{path}");
        assert_eq!(headers[CACHE_CONTROL], "no-store", "{path}");
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
    }
}

#[test]
fn the_page_names_nothing_from_elsewhere_and_takes_no_markup_from_the_fleet() {
    for (_, _, text) in FILES.iter().filter(|it| it.1 != "image/svg+xml") {
        for foreign in ["http:", "https:", "url(", "@import", " style=", "onclick="] {
            assert!(!text.contains(foreign), "{foreign}");
        }
    }
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
    ] {
        for (path, _, text) in FILES {
            assert!(!text.contains(markup), "{markup} in {path}");
        }
    }
}

#[tokio::test]
async fn who_has_an_answer_already_is_not_sent_it_again() {
    let answers = nobody();
    let ask = async |tag: Option<&HeaderValue>| {
        let mut asked = request("GET", &[HERE], "/secret/api/status");
        if let Some(tag) = tag {
            asked.headers.insert(IF_NONE_MATCH, tag.clone());
        }
        answer(&access_mode(), &answers, &asked).await
    };
    let first = ask(None).await;
    let tag = &first.headers()[ETAG];
    let again = ask(Some(tag)).await;
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert!(again.body().is_empty());
    assert_eq!(again.headers()[EXIT_CODE], first.headers()[EXIT_CODE]);
    let other = HeaderValue::from_static("\"x\"");
    assert_eq!(ask(Some(&other)).await.body(), first.body());
}

/// Runs the tests of what is drawn, which are in its own language.
#[test]
fn the_model_of_the_page_is_drawn_as_the_tests_of_it_say() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ui/page/model.test.mjs");
    let node = std::process::Command::new("node")
        .args(["--test", tests])
        .output();
    let Ok(output) = node else {
        eprintln!("SKIPPED: node is not installed");
        return;
    };
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{reported}");
}
