//! What an agent sees of other clusters.

use std::net::TcpListener;

use muster_e2e::harness::objects::merge;
use serde_json::{Value, json};

use crate::agent::bench::{Bench, MEMBER, condition, until};

/// Asks the agent to watch peers, each with its address.
async fn ask(bench: &Bench, peers: &Value) {
    let annotations = json!({"failover.muster.io/peers": peers});
    let patch = json!({"metadata": {"annotations": annotations}});
    merge(&bench.clusters(), MEMBER, patch).await;
}

#[tokio::test]
async fn an_agent_reports_on_its_own_cluster_which_of_its_peers_it_reaches() {
    let (bench, _agent) = Bench::with_agent().await;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("https://{}", nobody.local_addr().unwrap());
    drop(nobody);
    // The API server asks for a certificate, which the agent has and does not give.
    let peers = json!([
        {"name": "alive", "address": bench.fleet.url()}, {"name": "away", "address": nowhere},
    ]);
    ask(&bench, &json!(peers.to_string())).await;
    let reports = [
        ("reaches.muster.io/alive", "True", "Reached"),
        ("reaches.muster.io/away", "Unknown", "NeverReached"),
    ];
    bench.has(MEMBER, &reports).await;
    ask(&bench, &Value::Null).await;
    let what = "the reports are taken back, and nothing else is";
    until(&bench.clusters(), MEMBER, what, |cluster| {
        let is_gone = |(kind, ..): &(&str, &str, &str)| condition(cluster, kind).is_none();
        reports.iter().all(is_gone) && condition(cluster, "Ready").is_some()
    })
    .await;
}
