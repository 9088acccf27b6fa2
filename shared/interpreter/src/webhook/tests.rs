//! Interpreters that ask a real HTTPS server with an authority of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use muster_shared::controller::Watched as _;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::{Error, Interpreters};

mod load;

/// What the server does with a question: a status and a body, after a while or never.
type Answering = dyn Fn(Value) -> BoxFuture<'static, (u16, Vec<u8>)> + Send + Sync;

/// A webhook on loopback.
struct Server {
    url: String,
    authority: String,
    asked: Arc<AtomicUsize>,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Server {
    async fn start(
        answer: impl Fn(Value) -> BoxFuture<'static, (u16, Vec<u8>)> + Send + Sync + 'static,
    ) -> Self {
        let issuer = authority();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count): (Arc<Answering>, _) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, count) = (tls.clone(), Arc::clone(&answer), Arc::clone(&count));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request: Request<Incoming>| {
                        count.fetch_add(1, Ordering::Relaxed);
                        let answer = Arc::clone(&answer);
                        async move {
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let question = serde_json::from_slice(&body).unwrap();
                            let (code, body) = answer(question).await;
                            let mut response = Response::new(Full::new(Bytes::from(body)));
                            *response.status_mut() = StatusCode::from_u16(code).unwrap();
                            Ok::<_, Infallible>(response)
                        }
                    });
                    let io = TokioIo::new(stream);
                    _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                });
            }
        });
        Self {
            url: format!("https://localhost:{port}/interpret"),
            authority: STANDARD.encode(issuer.pem()),
            asked,
        }
    }

    /// Starts a server that answers with fields of the response.
    async fn answering(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start(move |question| {
            let body = successful(&question, &answer(&question["request"]));
            Box::pin(async move { (200, body) })
        })
        .await
    }

    /// Returns a configuration with one webhook of this server for all operations on kinds.
    fn configuration(
        &self,
        name: &str,
        kinds: &[&str],
    ) -> muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration {
        let object = json!({ "metadata": { "name": name }, "webhooks": [{
            "name": "all.example.com", "timeoutSeconds": 1, "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": { "url": self.url, "caBundle": self.authority },
            "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": kinds }],
        }] });
        serde_json::from_value(object).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn successful(question: &Value, fields: &Value) -> Vec<u8> {
    let mut response = json!({ "uid": question["request"]["uid"], "successful": true });
    let fields = fields.as_object().unwrap().clone();
    response.as_object_mut().unwrap().extend(fields);
    json!({ "apiVersion": question["apiVersion"], "kind": question["kind"], "response": response })
        .to_string()
        .into_bytes()
}

fn running(hooks: Hooks) -> (Arc<Interpreters>, DropGuard) {
    let interpreters = Arc::new(Interpreters::of(&[]));
    interpreters.set_hooks(hooks);
    let shutdown = CancellationToken::new();
    let (runs, ends) = (Arc::clone(&interpreters), shutdown.clone());
    tokio::spawn(async move { runs.run(ends).await });
    (interpreters, shutdown.drop_guard())
}

/// Asks until there is an answer or a failure.
async fn answer<T>(ask: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let asking = async {
        loop {
            match ask() {
                Err(Error::Pending(pending)) => pending.answered().await,
                other => return other,
            }
        }
    };
    timeout(Duration::from_secs(20), asking).await.unwrap()
}

fn fault<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Fault {
    match outcome {
        Err(Error::Webhook(failure)) => failure.fault,
        other => panic!("no failure of a webhook: {other:?}"),
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": kind,
        "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 1 } })
}

fn patch(operations: &Value) -> Value {
    json!({ "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()) })
}

#[tokio::test]
async fn every_operation_is_answered_by_the_webhook_and_each_question_is_sent_once() {
    let server = Server::answering(|request| match request["operation"].as_str().unwrap() {
        "InterpretReplica" => json!({ "replicas": 7, "replicaRequirements": { "resourceRequest": { "cpu": "1" } } }),
        "InterpretHealth" => json!({ "healthy": request["object"]["spec"]["size"] == 1 }),
        "InterpretStatus" => json!({ "rawStatus": { "size": request["object"]["spec"]["size"] } }),
        "InterpretDependency" => json!({ "dependencies": [
            { "apiVersion": "v1", "kind": "Secret", "namespace": "default", "name": "s" }] }),
        "ReviseReplica" => patch(&json!([{ "op": "replace", "path": "/spec/size", "value": request["replicas"] }])),
        "Retain" => patch(&json!([{ "op": "replace", "path": "/spec/size", "value": request["observedObject"]["spec"]["size"] }])),
        "AggregateStatus" => patch(&json!([{ "op": "add", "path": "/status", "value": {
            "clusters": request["aggregatedStatus"].as_array().unwrap().len() } }])),
        other => panic!("{other}"),
    })
    .await;
    let (interpreters, _running) = running(Hooks::new([&server.configuration("c", &["Widget"])]));
    let one = &interpreters;
    let widget = object("Widget", "w");
    for _ in 0..2 {
        let replicas = answer(|| one.replicas(&widget)).await.unwrap().unwrap();
        assert_eq!(replicas.replicas, 7);
        assert_eq!(
            replicas.requirements.unwrap().resource_request["cpu"].0,
            "1"
        );
        assert_eq!(answer(|| one.health(&widget)).await, Ok(Some(true)));
        assert_eq!(
            answer(|| one.status(&widget)).await,
            Ok(Some(json!({ "size": 1 })))
        );
        let needs = answer(|| one.dependencies(&widget)).await.unwrap().unwrap();
        assert_eq!(needs[0].name.as_deref(), Some("s"));
        let revised = answer(|| one.revise_replica(widget.clone(), 3))
            .await
            .unwrap();
        assert_eq!(revised["spec"]["size"], 3);
        let mut observed = widget.clone();
        observed["spec"]["size"] = json!(9);
        let retained = answer(|| one.retain(widget.clone(), &observed))
            .await
            .unwrap();
        assert_eq!(retained["spec"]["size"], 9);
        let items = [muster_shared::api::binding::AggregatedStatusItem::default()];
        let status = answer(|| one.aggregate_status(&widget, &items, Timestamp::UNIX_EPOCH)).await;
        assert_eq!(status, Ok(Some(json!({ "clusters": 1 }))));
        assert_eq!(server.asked(), 7, "the second time nothing is sent");
    }
    let mut other = widget.clone();
    other["spec"]["size"] = json!(2);
    assert_eq!(answer(|| one.health(&other)).await, Ok(Some(false)));
    assert!(one.has_for(&widget, Operation::Retain));
    assert!(!one.has_for(&object("Gadget", "g"), Operation::Retain));
}

#[tokio::test]
async fn a_server_of_another_authority_or_another_name_is_not_trusted() {
    let server = Server::answering(|_| json!({ "healthy": true })).await;
    let mut stranger = server.configuration("c", &["Widget"]);
    stranger.webhooks[0].client_config.ca_bundle = Some(STANDARD.encode(authority().pem()));
    let mut misnamed = server.configuration("c", &["Widget"]);
    let url = server.url.replace("localhost", "127.0.0.1");
    misnamed.webhooks[0].client_config.url = Some(url);
    for configuration in [stranger, misnamed] {
        let (one, _running) = running(Hooks::new([&configuration]));
        let found = fault(answer(|| one.health(&object("Widget", "w"))).await);
        let Fault::Connection(text) = found else {
            panic!("{found:?}");
        };
        assert!(text.contains("certificate"), "{text}");
    }
    assert_eq!(server.asked(), 0);
}

/// Body of an answer, by the question.
type Body = Box<dyn Fn(&Value) -> (u16, Vec<u8>) + Send + Sync>;

#[tokio::test]
async fn an_answer_that_is_none_is_a_failure_with_its_reason() {
    let uid = |question: &Value| question["request"]["uid"].as_str().unwrap().to_owned();
    let cases: [(Body, &str); 6] = [
        (
            Box::new(|_| (500, b"out of\norder\xe2\x80\xae".to_vec())),
            "HTTP status 500: out of order",
        ),
        (Box::new(|_| (302, Vec::new())), "HTTP status 302"),
        (
            Box::new(|_| (200, b"{ nonsense".to_vec())),
            "no JSON of a ResourceInterpreterContext",
        ),
        (
            Box::new(|_| (200, vec![b' '; 10 << 20])),
            "more than the 65536 bytes",
        ),
        (
            Box::new(|question| {
                (
                    200,
                    successful(question, &json!({ "uid": "other", "healthy": true })),
                )
            }),
            "response.uid",
        ),
        (
            Box::new(move |question| {
                let refusal = json!({ "response": { "uid": uid(question), "successful": false,
                    "status": { "code": 400, "message": "no such kind" } } });
                (200, refusal.to_string().into_bytes())
            }),
            "it failed with code 400: no such kind",
        ),
    ];
    for (body, reported) in cases {
        let server = Server::start(move |question| {
            let answer = body(&question);
            Box::pin(async move { answer })
        })
        .await;
        let (one, _running) = running(Hooks::new([&server.configuration("c", &["Widget"])]));
        let error = answer(|| one.health(&object("Widget", "w")))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reported), "{reported}: {text}");
        assert!(
            text.contains("\"all.example.com\"") && text.contains("\"c\""),
            "{text}"
        );
        assert!(error.retry_after().is_some());
        // The failure is kept for a while, and is not asked for again.
        assert!(one.health(&object("Widget", "w")).is_err());
        assert_eq!(server.asked(), 1);
    }
}

#[tokio::test]
async fn a_long_answer_is_read_whole_up_to_the_length_of_its_operation() {
    let server = Server::answering(|request| {
        let bytes = request["object"]["spec"]["size"].as_u64().unwrap();
        let long = "x".repeat(usize::try_from(bytes).unwrap());
        match request["operation"].as_str().unwrap() {
            "InterpretStatus" => json!({ "rawStatus": { "long": long } }),
            _ => patch(&json!([{ "op": "add", "path": "/spec/long", "value": long }])),
        }
    })
    .await;
    let mut configuration = server.configuration("c", &["Widget"]);
    configuration.webhooks[0].timeout_seconds = Some(20);
    let (one, _running) = running(Hooks::new([&configuration]));
    let sized = |size: usize| {
        let mut widget = object("Widget", &format!("w{size}"));
        widget["spec"]["size"] = json!(size);
        widget
    };
    // More of them at a time than are read at a time.
    let widgets: Vec<Value> = (0..4).map(|at| sized(400_000 + at)).collect();
    let all = widgets.iter().map(|widget| {
        let one = &one;
        async move { answer(|| one.retain(widget.clone(), widget)).await.unwrap() }
    });
    for (at, retained) in futures::future::join_all(all).await.iter().enumerate() {
        let long = retained["spec"]["long"].as_str().unwrap();
        assert_eq!(long.len(), 400_000 + at);
    }
    let widget = sized(250_000);
    let status = answer(|| one.status(&widget)).await.unwrap().unwrap();
    assert_eq!(status["long"].as_str().unwrap().len(), 250_000);
    for size in [270_000, 2_000_000] {
        let widget = sized(size);
        let found = fault(answer(|| one.status(&widget)).await);
        assert_eq!(found, Fault::Large(256 << 10), "{size}");
    }
}

#[tokio::test]
async fn a_patch_that_makes_another_object_is_refused() {
    let server = Server::answering(|_| {
        patch(&json!([{ "op": "replace", "path": "/metadata/namespace", "value": "kube-system" }]))
    })
    .await;
    let (one, _running) = running(Hooks::new([&server.configuration("c", &["Widget"])]));
    let widget = object("Widget", "w");
    let found = fault(answer(|| one.retain(widget.clone(), &widget)).await);
    assert!(
        matches!(&found, Fault::Malformed(text) if text.contains("changes /metadata/namespace")),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_webhook_that_hangs_about_one_kind_delays_no_other_and_is_then_asked_seldom() {
    let server = Server::start(|question| {
        Box::pin(async move {
            if question["request"]["kind"]["kind"] == "Stuck" {
                std::future::pending::<()>().await;
            }
            (200, successful(&question, &json!({ "healthy": true })))
        })
    })
    .await;
    let (one, _running) = running(Hooks::new([
        &server.configuration("c", &["Stuck", "Widget"])
    ]));
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&reported);
    one.on_failure(move |failed| to.lock().push(failed.note.clone()));
    let stuck: Vec<Value> = (0..20)
        .map(|at| object("Stuck", &format!("s{at}")))
        .collect();
    let waits: Vec<_> = stuck
        .iter()
        .filter_map(|it| one.health(it).unwrap_err().pending())
        .collect();
    assert_eq!(waits.len(), 20);
    // The deadline of the stuck ones is a second.
    let begun = Instant::now();
    for at in 0..20 {
        let widget = object("Widget", &format!("w{at}"));
        assert_eq!(answer(|| one.health(&widget)).await, Ok(Some(true)));
    }
    assert!(
        begun.elapsed() < Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    for wait in waits {
        timeout(Duration::from_secs(5), wait.answered())
            .await
            .unwrap();
    }
    let found = fault(one.health(&stuck[19]));
    assert_eq!(found, Fault::Suspended(Box::new(Fault::Timeout(1))));
    // Four at a time, until three have failed.
    assert!(server.asked() <= 20 + 6, "{}", server.asked());
    assert_eq!(one.health(&object("Widget", "w0")), Ok(Some(true)));
    let reported = reported.lock();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("asked seldom"), "{reported:?}");
}

#[tokio::test]
async fn a_webhook_that_is_removed_while_it_is_asked_answers_nothing_any_more() {
    let server = Server::start(|_| Box::pin(std::future::pending())).await;
    let (one, _running) = running(Hooks::new([&server.configuration("c", &["Deployment"])]));
    let deployment =
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" } });
    let pending = one.health(&deployment).unwrap_err().pending().unwrap();
    let changes = Arc::new(AtomicUsize::new(0));
    let to = Arc::clone(&changes);
    one.on_change(move |changed| {
        assert!(changed.has("apps/v1", "Deployment") && !changed.has("v1", "Pod"));
        to.fetch_add(1, Ordering::Relaxed);
    });
    one.set_hooks(Hooks::default());
    timeout(Duration::from_millis(500), pending.answered())
        .await
        .unwrap();
    assert_eq!(changes.load(Ordering::Relaxed), 1);
    // The native rule answers.
    assert_eq!(one.health(&deployment), Ok(Some(true)));
}

#[tokio::test]
async fn a_script_goes_before_a_webhook_and_a_webhook_before_the_built_in_rules() {
    let server = Server::answering(|_| json!({ "healthy": true })).await;
    let configuration = server.configuration("c", &["Deployment", "FlinkDeployment"]);
    let (one, _running) = running(Hooks::new([&configuration]));
    let flink = json!({ "apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment" });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    for object in [&flink, &deployment] {
        assert_eq!(answer(|| one.health(object)).await, Ok(Some(true)));
    }
    let never = "function InterpretHealth(o) return false end";
    let health = [(Operation::InterpretHealth, never)];
    let customization = crate::lua::Customization::new("d", ("apps/v1", "Deployment"), &health);
    one.set(crate::lua::Rules::new([&customization]));
    assert_eq!(one.health(&deployment), Ok(Some(false)));
    assert_eq!(one.health(&flink), Ok(Some(true)));
}

#[tokio::test]
async fn who_waits_wakes_up_at_shutdown() {
    let server = Server::start(|_| Box::pin(std::future::pending())).await;
    let (one, running) = running(Hooks::new([&server.configuration("c", &["Widget"])]));
    let pending = one
        .health(&object("Widget", "w"))
        .unwrap_err()
        .pending()
        .unwrap();
    drop(running);
    timeout(Duration::from_millis(500), pending.answered())
        .await
        .unwrap();
}
