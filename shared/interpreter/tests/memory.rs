//! How many bytes a question costs that waits for room in the queue of its webhook, counted by the
//! allocator: the same in every run on every machine. `cargo test -p muster-interpreter --test
//! memory -- --nocapture` prints the figure.

#![allow(clippy::unwrap_used)] // a test

use std::alloc::System;
use std::sync::Arc;

use muster_interpreter::Interpreters;
use muster_interpreter::webhook::Hooks;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Many times as many as there is room for.
const OBJECTS: usize = 10_000;
/// Bytes that each may cost.
const MOST: usize = 700;

fn widget(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 1 } })
}

#[tokio::test]
async fn a_question_without_room_costs_little() {
    muster_shared::tls::install_provider();
    // It accepts nothing, so that no question ends.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let configuration = json!({ "metadata": { "name": "c" }, "webhooks": [{
        "name": "all.example.com", "timeoutSeconds": 30, "interpreterContextVersions": ["v1alpha1"],
        "clientConfig": { "url": url },
        "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"] }],
    }] });
    let interpreters = Arc::new(Interpreters::of(&[]));
    let configuration = serde_json::from_value(configuration).unwrap();
    interpreters.set_hooks(Hooks::new([&configuration]));
    let (runs, shutdown) = (Arc::clone(&interpreters), CancellationToken::new());
    let ends = shutdown.clone();
    tokio::spawn(async move { runs.run(ends).await });
    let ask = async |from: usize, to: usize| {
        for at in from..to {
            let asked = interpreters.health(&widget(&format!("widget-{at:05}")));
            assert!(asked.unwrap_err().pending().is_some());
            if at % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        tokio::task::yield_now().await;
    };
    // These take all room.
    ask(0, 2_000).await;
    let region = Region::new(ALLOCATOR);
    ask(2_000, 2_000 + OBJECTS).await;
    let change = region.change();
    let each = (change.bytes_allocated - change.bytes_deallocated) / OBJECTS;
    println!("a question without room: {each} bytes");
    assert!(each <= MOST, "{each} bytes");
    shutdown.cancel();
}
