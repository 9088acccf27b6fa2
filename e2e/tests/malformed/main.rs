//! Malformed requests over real connections: the right refusal, never a panic, never a lost object.
//!
//! A few seconds by default; `MUSTER_FUZZ_SECONDS` makes it longer, `MUSTER_FUZZ_SEED` another run.
//! Where `KUBEBUILDER_ASSETS` names a real server, a sample of what must be refused is sent there
//! as well and the codes are compared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test ends where it goes wrong.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss
)] // Dice don't mind.

mod make;
mod wire;

use std::time::{Duration, Instant};

use kube::config::Kubeconfig;
use make::{Dice, FREE, KEPT, definition, odd, refused, samples};
use muster_e2e::apiserver::ApiServer;
use muster_e2e::harness::envtest::{Envtest, Options};
use muster_e2e::harness::test_bed::eventually;
use parking_lot::Mutex;
use serde_json::{Value, json};
use wire::{Request, Wire};

/// Connections at the same time.
const AT_ONCE: u64 = 4;

/// How many requests a real server is asked, too.
const SAMPLE: usize = 150;

/// Panics of any thread: a task of the server that panics takes only its connection down.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

fn post(collection: &str, object: &Value) -> Request {
    Request {
        method: "POST",
        target: collection.to_owned(),
        media_type: Some("application/json".to_owned()),
        body: object.to_string().into_bytes(),
    }
}

fn get(target: &str) -> Request {
    Request {
        method: "GET",
        target: target.to_owned(),
        media_type: None,
        body: Vec::new(),
    }
}

/// Makes the objects that must be there afterwards as they are now.
async fn furnish(kubeconfig: &Kubeconfig) -> Wire {
    let wire = Wire::to(kubeconfig).unwrap();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    wire.send(&post(crds, &definition())).await.unwrap();
    for namespace in [KEPT, FREE] {
        let object = json!({ "metadata": { "name": namespace } });
        wire.send(&post("/api/v1/namespaces", &object))
            .await
            .unwrap();
    }
    for (collection, object) in samples(KEPT) {
        // The CRD is served a moment later.
        eventually(&collection, async || {
            let answer = wire.send(&post(&collection, &object)).await.unwrap();
            let is_made = (answer.code == 201).then_some(());
            is_made.ok_or_else(|| format!("is not served: {}", answer.body))
        })
        .await;
    }
    wire
}

async fn kept(wire: &Wire) -> Vec<Value> {
    let mut all = Vec::new();
    for (collection, _) in samples(KEPT) {
        let answer = wire.send(&get(&format!("{collection}/a"))).await.unwrap();
        assert_eq!(answer.code, 200, "{collection}");
        all.push(answer.body);
    }
    all
}

/// Sends one stream of requests until the end, and returns their number and what was answered
/// wrongly.
async fn run(wire: Wire, seed: u64, end: Instant) -> (usize, Vec<String>) {
    let mut dice = Dice::new(seed);
    let (mut count, mut wrong) = (0, Vec::new());
    while Instant::now() < end && wrong.len() < 10 {
        count += 1;
        if dice.below(40) == 0 {
            // Not even HTTP.
            let noise: Vec<u8> = (0..dice.below(3000))
                .map(|_| dice.below(256) as u8)
                .collect();
            let mut noise = noise;
            noise.extend_from_slice(b"\r\n\r\n");
            let _ = wire.raw(&noise).await;
            continue;
        }
        if dice.below(2) == 0 {
            let (request, right) = refused(&mut dice);
            match wire.send(&request).await {
                Ok(answer) if right.contains(&answer.code) => {}
                other => wrong.push(format!("{}\n  is answered {other:?}", request.shown())),
            }
        } else {
            let request = odd(&mut dice);
            match wire.send(&request).await {
                Ok(answer) if answer.code < 500 || excused(&request, &answer.body) => {}
                other => wrong.push(format!("{}\n  is answered {other:?}", request.shown())),
            }
        }
    }
    (count, wrong)
}

/// Returns whether a real server answers 500 as well, as it does to a configuration that does not
/// fit its schema, and to a test of a JSON patch that it cannot carry out.
fn excused(request: &Request, status: &Value) -> bool {
    let message = status["message"].as_str().unwrap_or_default();
    request.method == "PATCH"
        && (message.contains("failed to create typed patch object")
            || message.contains("failed to create manager"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_refused_and_change_nothing() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let mut panics = PANICS.lock();
        panics.push(info.to_string());
        before(info);
    }));
    let seed = number("MUSTER_FUZZ_SEED", 1);
    let seconds = number("MUSTER_FUZZ_SECONDS", 4);
    let api = ApiServer::for_test().await;
    let wire = furnish(&api.admin_kubeconfig().unwrap()).await;
    let expected = kept(&wire).await;
    let end = Instant::now() + Duration::from_secs(seconds);
    let streams = (0..AT_ONCE).map(|n| tokio::spawn(run(wire.clone(), seed * AT_ONCE + n, end)));
    let (mut count, mut wrong) = (0, Vec::new());
    for stream in futures::future::join_all(streams).await {
        let (asked, answered) = stream.unwrap();
        count += asked;
        wrong.extend(answered);
    }
    eprintln!("{count} malformed requests in {seconds} s from seed {seed}");
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
    let panics = std::mem::take(&mut *PANICS.lock());
    assert!(panics.is_empty(), "seed {seed}: {panics:?}");
    assert_eq!(kept(&wire).await, expected);
}

#[tokio::test]
async fn a_real_server_refuses_with_the_same_codes() {
    let Some(options) = Options::from_environment().unwrap() else {
        eprintln!("skipped: there is no real server to compare with");
        return;
    };
    let real = Envtest::start(options).await.unwrap();
    let theirs = furnish(&real.kubeconfig().unwrap()).await;
    let api = ApiServer::for_test().await;
    let ours = furnish(&api.admin_kubeconfig().unwrap()).await;
    let mut dice = Dice::new(number("MUSTER_FUZZ_SEED", 1));
    let mut different = Vec::new();
    for _ in 0..SAMPLE {
        let (request, _) = refused(&mut dice);
        let (real, mine) = tokio::join!(theirs.send(&request), ours.send(&request));
        // Some random protobuf makes the real one hang up instead of answering.
        let (Ok(real), mine) = (real, mine.unwrap()) else {
            continue;
        };
        if (real.code, &real.body["reason"]) != (mine.code, &mine.body["reason"]) {
            different.push(format!(
                "{}\n  real: {} {}\n  ours: {} {}",
                request.shown(),
                real.code,
                real.body["message"],
                mine.code,
                mine.body["message"]
            ));
        }
    }
    let count = different.len();
    assert!(
        different.is_empty(),
        "{count} of {SAMPLE} differ\n{}",
        different.join("\n")
    );
}
