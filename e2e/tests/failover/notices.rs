//! Notices of a failover, to a receiver that fails at first, from a control plane that is killed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::OnceLock;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use muster_e2e::harness::test_bed::awaited;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;
use muster_shared::api::failover_record::Failover;
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::support::{Setting, scenario as play};
use super::the_rest;

/// Bytes of the key that signs.
const KEY: [u8; 32] = [7; 32];
/// Annotation of a record that says what the receiver was sent.
const RECEIVER: &str = "notices.failover.muster.io/pager";

/// Address of the receiver, for the flags of the control plane.
static ADDRESS: OnceLock<String> = OnceLock::new();

/// Request that the receiver got.
#[derive(Debug)]
struct Received {
    event: Value,
    was_taken: bool,
    is_signed: bool,
}

/// Receives notices. The first request of each event is answered 500.
async fn receive(listener: TcpListener, received: mpsc::UnboundedSender<Received>) {
    let mut seen = BTreeSet::new();
    let (sender, mut asked) = mpsc::unbounded_channel::<(HeaderMap, Bytes, _)>();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let answer = move |request: Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(Collected::to_bytes);
                    let (reply, status) = tokio::sync::oneshot::channel();
                    _ = sender.send((head.headers, body.unwrap_or_default(), reply));
                    let mut response = Response::new(Full::<Bytes>::default());
                    *response.status_mut() = status.await.unwrap_or_default();
                    Ok::<_, Infallible>(response)
                }
            };
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    while let Some((headers, body, reply)) = asked.recv().await {
        let event: Value = serde_json::from_slice(&body).unwrap_or_default();
        let was_taken = !seen.insert(event["id"].to_string());
        let status = if was_taken { 204 } else { 500 };
        let is_signed = verified(&headers, &body).is_some_and(|id| event["id"] == id);
        _ = reply.send(http::StatusCode::from_u16(status).unwrap_or_default());
        _ = received.send(Received {
            event,
            was_taken,
            is_signed,
        });
    }
}

/// Returns the id of a request whose signature is right.
fn verified(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    let signature = header("webhook-signature")?.strip_prefix("v1,")?;
    let signature = STANDARD.decode(signature).ok()?;
    let content = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &KEY);
    hmac::verify(&key, &content, &signature).ok()?;
    Some(id.to_owned())
}

/// Waits for a request about the victim, of a phase, that was taken or refused. Returns all until
/// then.
async fn until(
    received: &mut mpsc::UnboundedReceiver<Received>,
    phase: &str,
    was_taken: bool,
) -> anyhow::Result<Vec<Received>> {
    let mut all = Vec::new();
    loop {
        let next = received.recv().await.context("the receiver ended")?;
        anyhow::ensure!(next.is_signed, "unsigned: {next:?}");
        if next.event["subject"] != VICTIM {
            continue;
        }
        let is_it = next.event["data"]["phase"] == phase && next.was_taken == was_taken;
        all.push(next);
        if is_it {
            return Ok(all);
        }
    }
}

/// Waits until the record of the victim says that the receiver was notified of a phase.
async fn noted(story: &Story, phase: &str) -> anyhow::Result<()> {
    let api: Api<Failover> = Api::all(story.fleet().api.watch_client.clone());
    let all = api.list(&ListParams::default()).await?.items;
    let record = all.into_iter().find(|it| it.spec.cluster == VICTIM);
    let name = record.context("no record")?.name_any();
    let is_noted = |it: Option<&Failover>| {
        let reported = it.and_then(|it| it.annotations().get(RECEIVER));
        let reported = reported.and_then(|it| serde_json::from_str::<Value>(it).ok());
        reported.is_some_and(|it| it[phase].as_u64() >= Some(1))
    };
    awaited(&api, &name, "the record says what was reported", is_noted).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_at_first_is_notified_once_of_each_by_a_control_plane_that_dies() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    ADDRESS.set(address).unwrap();
    let (sender, mut received) = mpsc::unbounded_channel();
    tokio::spawn(receive(listener, sender));
    let setting = Setting {
        plan: |plan| {
            let key = plan.directory.join("notices.key");
            std::fs::create_dir_all(&plan.directory).unwrap();
            std::fs::write(&key, format!("whsec_{}", STANDARD.encode(KEY))).unwrap();
            let receivers = json!([{
                "name": "pager",
                "url": ADDRESS.get(),
                "secretFile": key,
                "phases": ["began", "ended"],
            }]);
            let flags = [
                format!("--notice-receivers={receivers}"),
                "--notice-source=https://fleet.example".to_owned(),
                "--notice-page-url=https://page.example/".to_owned(),
            ];
            plan.control_plane.extend(flags);
        },
        ..Setting::named("notices")
    };
    play(setting, async |story: &Story| {
        let control_plane = &story.fleet().control_plane;
        let mut all = Vec::new();
        story.cut()?;
        all.extend(until(&mut received, "began", false).await?);
        control_plane.kill().await;
        control_plane.resume();
        all.extend(until(&mut received, "began", true).await?);
        noted(story, "began").await?;
        control_plane.kill().await;
        control_plane.resume();
        story.until_moved().await?;
        the_rest(story).await?;
        all.extend(until(&mut received, "ended", true).await?);
        noted(story, "ended").await?;
        while let Ok(more) = received.try_recv() {
            all.push(more);
        }
        let mut taken: Vec<&Value> = Vec::new();
        for it in all.iter().filter(|it| it.was_taken) {
            taken.push(&it.event);
        }
        let [began, ended] = &taken[..] else {
            return Err(anyhow::anyhow!("not each once: {all:?}").into());
        };
        for (event, phase) in [(began, "began"), (ended, "ended")] {
            let (kind, data) = (format!("com.muster.failover.{phase}"), &event["data"]);
            let name = data["failover"].as_str().context("the record")?;
            for (what, found, expected) in [
                ("type", &event["type"], json!(kind)),
                ("source", &event["source"], json!("https://fleet.example")),
                ("cause", &data["cause"]["type"], json!("ClusterUnreachable")),
                (
                    "link",
                    &data["link"],
                    json!(format!("https://page.example/#failover/{name}")),
                ),
                (
                    "command",
                    &data["command"],
                    json!(format!("kubectl muster history {name}")),
                ),
            ] {
                if *found != expected {
                    let wrong = anyhow::anyhow!("{what} is {found}, not {expected}");
                    return Err(wrong.into());
                }
            }
        }
        let moved = ended["data"]["workloads"]["moved"].as_u64();
        if moved.is_none_or(|it| it < 2) || ended["data"]["moved"] == json!([]) {
            return Err(anyhow::anyhow!("what moved is missing: {ended}").into());
        }
        Ok(())
    })
    .await;
}
