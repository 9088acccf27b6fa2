//! The page of `kubectl muster ui`: the same answers as the commands, and what a browser shows.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::heartbeats::{self, Setting, silent};
use crate::support::{Place, kubectl};
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::ResourceExt as _;
use muster_e2e::apiserver::seed::Seeds;
use muster_e2e::harness::heartbeat_fleet::HeartbeatFleet;
use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::TestBed;
use muster_shared::k8s::Namespace;
use muster_shared::names::{annotation, taint};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Browsers of which one takes part, if it is installed (`.ci/install-chromium`).
const BROWSERS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];
/// Time that passes for the page while the browser shows it, in milliseconds.
const VIRTUAL_TIME: &str = "--virtual-time-budget=4000";

/// Serves the page while something is done with its address.
async fn with_page(
    kubeconfig: &Path,
    steps: impl AsyncFnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let page = muster_kubectl::page(kubectl::line(kubeconfig, &["ui"])).await?;
    let (url, shutdown) = (page.url(), CancellationToken::new());
    let server = tokio::spawn(page.serve(shutdown.clone()));
    let reported = steps(&url).await;
    shutdown.cancel();
    server.await?;
    reported
}

/// Requests an address, and returns the status, the exit code of the command, and the document.
async fn get(url: &str) -> anyhow::Result<(u16, Option<u8>, Value)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let response = client
        .request(Request::get(url).body(Empty::new())?)
        .await?;
    let (head, body) = response.into_parts();
    let code = head.headers.get("Muster-Exit-Code");
    let code = code.and_then(|it| it.to_str().ok()?.parse().ok());
    let body = body.collect().await?.to_bytes();
    Ok((head.status.as_u16(), code, serde_json::from_slice(&body)?))
}

/// Returns a document without what changes from moment to moment.
fn still(mut document: Value) -> Value {
    const MOVING: [&str; 12] = [
        "read",
        "sentence",
        "service",
        "next",
        "text",
        "stopsSeconds",
        "nextTaintSeconds",
        "renewed",
        "lastHeard",
        "begun",
        "atMostSeconds",
        "firstLeavesSeconds",
    ];
    fn calm(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !MOVING.contains(&name.as_str()));
                fields.values_mut().for_each(calm);
            }
            Value::Array(all) => all.iter_mut().for_each(calm),
            _ => {}
        }
    }
    calm(&mut document);
    document
}

/// Runs a test in a fleet of which one cluster is silent, with a workload that it keeps.
async fn with_a_silent_cluster(
    name: &'static str,
    steps: impl AsyncFnOnce(&HeartbeatFleet) -> anyhow::Result<()>,
) {
    heartbeats::run(Setting::named(name, 4), async |fleet| {
        fleet.place("web", "member2", &Value::Null)?;
        fleet.place("api", "member3", &Value::Null)?;
        fleet.cut(["member2"]);
        heartbeats::until(fleet, "it is silent and tainted", |view| {
            silent(view, "member2")?;
            let cluster = view.clusters.list().into_iter();
            let mut cluster = cluster.filter(|it| it.name_any() == "member2");
            let is_tainted = cluster.any(|it| !it.spec.taints.is_empty());
            is_tainted
                .then_some(())
                .ok_or_else(|| "no taint".to_owned())
        })
        .await?;
        steps(fleet).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_answers_as_the_commands_do() {
    with_a_silent_cluster("page-answers", async |fleet| {
        with_page(&fleet.kubeconfig, async |url| {
            for (path, words) in [
                ("status", &["status", "--clusters", "--most=200"][..]),
                ("clusters", &["get", "clusters"]),
                ("top", &["top"]),
                ("workloads", &["get", "workloads", "-A"]),
                (
                    "workloads?cluster=member2",
                    &["get", "workloads", "-A", "--cluster=member2"],
                ),
                (
                    "explain?namespace=default&kind=Deployment&name=web",
                    &["explain", "Deployment/web", "--namespace=default"],
                ),
                ("history", &["history"]),
                (
                    "simulate?lost=member1,member3",
                    &["simulate", "--lost=member1,member3"],
                ),
                ("simulate?drain=member3", &["simulate", "--drain=member3"]),
            ] {
                let mut words = words.to_vec();
                words.extend(["-o", "json"]);
                let said = kubectl::outcome(&fleet.kubeconfig, &words).await?;
                let wanted = still(serde_json::from_str(&said.text)?);
                let (status, code, found) = get(&format!("{url}api/{path}")).await?;
                assert_eq!((status, code), (200, Some(said.code)), "{path}");
                assert_eq!(still(found), wanted, "{path}");
                assert_ne!(wanted, Value::Null);
            }
            let (_, _, status) = get(&format!("{url}api/status")).await?;
            assert_eq!(status["notWell"][0]["name"], "member2", "{status}");
            let (status, _, said) = get(&format!("{url}api/simulate?lost=nobody")).await?;
            assert_eq!(status, 502);
            assert!(
                said["error"].to_string().contains("there is no cluster"),
                "{said}"
            );
            let elsewhere = url.replace("127.0.0.1", "127.0.0.2");
            get(&format!("{elsewhere}api/status")).await.unwrap_err();
            let mut parts = url.rsplitn(3, '/');
            let base = parts.nth(2).context("a secret in the address")?;
            for path in ["/api/status", "/", "/guess/api/status"] {
                let (status, _, said) = get(&format!("{base}{path}")).await?;
                assert_eq!(status, 403, "{said}");
                let fields = said.as_object().unwrap().len();
                assert_eq!(fields, 1, "{said}");
            }
            Ok(())
        })
        .await
    })
    .await;
}

/// Returns the first browser that is installed.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = BROWSERS
        .iter()
        .flat_map(|name| places.iter().map(move |it| it.join(name)));
    let found = found.into_iter().find(|it| it.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: no browser is installed: .ci/install-chromium installs one");
    }
    found
}

/// Runs a browser that opens an address, and returns what it prints.
async fn browsed(browser: &PathBuf, more: &[&str], url: &str) -> anyhow::Result<String> {
    let mut command = tokio::process::Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,1600",
            VIRTUAL_TIME,
        ])
        .args(more)
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
    let output = ended.await.context("the browser does not end")??;
    let reported = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{reported}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the document that a browser makes of the page of a fleet.
async fn dom(browser: &PathBuf, kubeconfig: &Path) -> String {
    let mut dom = String::new();
    let looking = with_page(kubeconfig, async |url| {
        dom = browsed(browser, &["--dump-dom"], url).await?;
        Ok(())
    });
    looking.await.unwrap();
    dom
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_silent_cluster_first_and_in_words() {
    let Some(browser) = browser() else { return };
    with_a_silent_cluster("page-browser", async |fleet| {
        with_page(&fleet.kubeconfig, async |url| {
            let shot = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page.png");
            let shot = format!("--screenshot={}", shot.display());
            browsed(&browser, &[&shot], url).await?;
            let dom = browsed(&browser, &["--dump-dom"], url).await?;
            let (_, rows) = dom.split_once("id=\"clusters-table\"").context("a table")?;
            let silent = rows.find("member2").context("the silent cluster")?;
            let well = rows.find("member1").context("the others")?;
            anyhow::ensure!(silent < well, "it is not the first: {rows}");
            let row = &rows[silent..well];
            for part in ["? silent", "class=\"state bad\""] {
                anyhow::ensure!(row.contains(part), "{part:?} is not in {row}");
            }
            for part in [
                "✖ member2 silent for ",
                "<title>✖ 1 cluster",
                "href=\"alarm.svg\"",
                "class=\"tile bad is-silent\"",
                "class=\"tile good is-ready\"",
                "<p id=\"read\">read at ",
                "4, 1 not well",
                "<dt>Without service</dt><dd class=\"warn\"><span>? perhaps 1 workload is without service",
                "kubectl describe cluster member2",
            ] {
                anyhow::ensure!(dom.contains(part), "{part:?} is not in {dom}");
            }
            Ok(())
        })
        .await
    })
    .await;
}

/// Returns the part of a document that shows the story its address names.
fn story(dom: &str) -> anyhow::Result<&str> {
    let (_, story) = dom.split_once("id=\"story\"").context("a story")?;
    let (story, _) = story.split_once("</section>").context("its end")?;
    Ok(story)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_opens_the_story_of_a_cluster_and_of_a_workload() {
    let Some(browser) = browser() else { return };
    with_a_silent_cluster("page-story", async |fleet| {
        with_page(&fleet.kubeconfig, async |url| {
            for (address, parts) in [
                (
                    "cluster/member2",
                    &[
                        "Cluster member2",
                        "? silent",
                        "href=\"#workload/default/Deployment/web\"",
                        "kubectl muster ui cluster/member2",
                    ][..],
                ),
                (
                    "workload/default/Deployment/web",
                    &[
                        "Deployment default/web",
                        "? On member2",
                        "member2 cannot hold it now",
                    ],
                ),
                (
                    "workload/default/Deployment/none",
                    &["✖ there is no binding"],
                ),
                ("cluster/none", &["There is no cluster none in the fleet"]),
            ] {
                let dom = browsed(&browser, &["--dump-dom"], &format!("{url}#{address}")).await?;
                let story = story(&dom)?;
                for part in parts {
                    anyhow::ensure!(story.contains(part), "{part:?} is not in {story}");
                }
            }
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_says_loudly_that_the_fleet_cannot_be_read() {
    let Some(browser) = browser() else { return };
    muster_shared::tls::install_provider();
    let directory = Place::new("page-nobody");
    let kubeconfig = directory.join("kubeconfig");
    let nobody = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&kubeconfig, nobody.to_string()).unwrap();
    let dom = dom(&browser, &kubeconfig).await;
    for part in [
        "THE FLEET CANNOT BE READ",
        "<body class=\"old\">",
        "✖ Nothing could be read",
        "the fleet API (http://127.0.0.1:1) does not answer: ",
        "not known: a workload does not need the fleet API to run",
        "this page refreshes by itself",
        "<title>? not known – Muster</title>",
        "href=\"unknown.svg\"",
    ] {
        assert!(dom.contains(part), "{part:?} is not in {dom}");
    }
    let wrong = [
        "All is well",
        "nothing moves or waits",
        "no failover is recorded",
        "0 clusters",
        ">0<",
        "✖ none",
    ];
    for part in wrong {
        assert!(!dom.contains(part), "{part:?} is in {dom}");
    }
}

/// Puts a cluster into the fleet that is ready, or that has been silent for years.
fn join(clusters: &Seeds, number: usize, is_silent: bool) {
    let (status, reason) = if is_silent {
        ("Unknown", "ClusterStatusUnknown")
    } else {
        ("True", "ClusterReady")
    };
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {
            "name": format!("member{number:04}"), "creationTimestamp": "2020-01-01T00:00:00Z",
        },
        "spec": {"syncMode": "Pull", "region": format!("region{}", number % 12)},
        "status": {
            "conditions": [{
                "type": "Ready", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2020-01-01T00:00:00Z",
            }],
            "nodeSummary": {"totalNum": 3, "readyNum": 3},
        },
    });
    clusters.put(cluster).unwrap();
}

/// Returns the clusters of a fleet, to put some into.
fn seeds(bed: &TestBed) -> Seeds {
    bed.server
        .seeds("cluster.karmada.io", "v1alpha1", "clusters")
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_a_drained_cluster_and_an_old_copy_in_a_silent_one() {
    let Some(browser) = browser() else { return };
    let bed = TestBed::fleet("page-drained").await.unwrap();
    let clusters = seeds(&bed);
    join(&clusters, 1, false);
    join(&clusters, 2, true);
    let drain = json!({
        "metadata": {"annotations": {annotation::DRAIN_RATE: "0.2"}},
        "spec": {"taints": [{
            "key": taint::DRAIN, "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z",
        }]},
    });
    merge(&bed.clusters(), "member0001", &drain).await;
    let namespace = json!({"metadata": {"name": "karmada-es-member0002"}});
    create(&bed.all::<Namespace>(), namespace).await;
    let work = json!({
        "metadata": {"name": "web", "annotations": {
            "resourcebinding.karmada.io/namespace": "default",
            "resourcebinding.karmada.io/name": "web-deployment",
        }},
        "spec": {},
    });
    create(&bed.works("member0002"), work).await;
    let dom = dom(&browser, &bed.administrator().unwrap()).await;
    for part in [
        "▼ drained ",
        "days ago, at most 0.2 a second",
        "1 old copy not confirmed gone in member0002 (silent): ",
        "1 not confirmed gone",
        "3 of 3, as last reported",
    ] {
        assert!(dom.contains(part), "{part:?} is not in {dom}");
    }
}

/// As large as fleets get (the lease monitor is measured with as many).
const LARGE: usize = 3_500;

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_of_thousands_of_clusters_those_that_need_attention() {
    let Some(browser) = browser() else { return };
    let bed = TestBed::fleet("page-large").await.unwrap();
    let clusters = seeds(&bed);
    let silent = LARGE - 1;
    for number in 0..LARGE {
        join(&clusters, number, number == silent);
    }
    let dom = dom(&browser, &bed.administrator().unwrap()).await;
    let (_, rows) = dom.split_once("id=\"clusters-table\"").unwrap();
    let (rows, _) = rows.split_once("</table>").unwrap();
    assert_eq!(
        rows.matches("<tr ").count(),
        1 + 200,
        "a line of titles and 200 rows"
    );
    let silent = format!("member{silent:04}");
    let first = rows.split("<tr ").nth(2).unwrap();
    for part in [&*silent, "? silent"] {
        assert!(first.contains(part), "{part:?} is not in {first}");
    }
    for part in [
        "first 200 of 3500 (filter to see others)",
        "3500, 1 not well",
        "Each box is a group",
        "▸ region7 ? 1 silent, ✔ 291 ready closed: 292 clusters: ? 1 silent, ✔ 291 ready",
    ] {
        assert!(dom.contains(part), "{part:?} is not in {dom}");
    }
}
