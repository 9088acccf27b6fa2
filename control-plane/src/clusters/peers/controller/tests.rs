//! What agents are asked, and what is written on Clusters.

use muster_shared::peers::{Reach, condition_type};
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{Bench, cluster, pass};
use crate::settings::Settings;

/// Returns a ready cluster with an address.
fn member(name: &str) -> Value {
    let mut cluster = cluster(name);
    cluster["spec"]["apiEndpoint"] = json!(format!("https://{name}.example.com:6443"));
    cluster
}

/// Returns a fleet of clusters in which each has so many witnesses.
async fn bench(per_cluster: usize, clusters: Vec<Value>) -> Bench {
    let settings = Settings {
        peers_per_cluster: per_cluster,
        ..Settings::default()
    };
    let clusters = clusters.into_iter().map(|it| ("clusters", it));
    let mut bench = Bench::with(settings, clusters);
    bench.run(start, 20).await;
    bench
}

fn three() -> Vec<Value> {
    ["m1", "m2", "m3"].map(member).to_vec()
}

/// Returns the names and addresses of the peers that an agent is asked to watch.
fn asked(bench: &Bench, agent: &str) -> Vec<(String, String)> {
    let cluster = bench.fleet.clusters.get(None, agent).unwrap();
    let peers = asked_of(&cluster).into_iter();
    peers.map(|it| (it.name, it.address)).collect()
}

/// Returns status and reason of `SeenByPeers`.
fn seen(bench: &Bench, name: &str) -> (String, String) {
    let cluster = bench.fleet.clusters.get(None, name).unwrap();
    let reported = cluster.condition(SEEN_BY_PEERS).unwrap();
    (reported.status.clone(), reported.reason.clone())
}

fn says(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// Sets a condition of a cluster, as of now.
fn set(bench: &Bench, name: &str, kind: &str, status: &str, reason: &str) {
    let mut cluster = bench.api.object("clusters", "", name).unwrap();
    let conditions = cluster["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|it| it["type"] != json!(kind));
    let now = bench.fleet.clock.now().to_string();
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now,
    }));
    bench.api.put("clusters", cluster);
}

/// Has an agent report about a peer.
async fn report(bench: &Bench, agent: &str, peer: &str, reach: Reach) {
    let status = match reach {
        Reach::Reached => TRUE,
        Reach::Lost => FALSE,
        Reach::Never => UNKNOWN,
    };
    set(bench, agent, &condition_type(peer), status, "R");
    pass(1).await;
}

/// Has two agents report the same about peers.
async fn both_report(bench: &Bench, agents: [&str; 2], peers: &[&str], reach: Reach) {
    for agent in agents {
        for peer in peers {
            report(bench, agent, peer, reach).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agents_are_asked_once_to_watch_the_others_and_a_fleet_at_rest_writes_nothing() {
    let bench = bench(2, three()).await;
    let at = |name: &str| (name.to_owned(), format!("https://{name}.example.com:6443"));
    assert_eq!(asked(&bench, "m1"), [at("m2"), at("m3")]);
    assert_eq!(asked(&bench, "m3"), [at("m1"), at("m2")]);
    assert_eq!(seen(&bench, "m1"), says("Unknown", "TooFewWitnesses"));
    bench.api.forget();
    pass(200).await;
    assert_eq!(bench.api.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_lost_when_two_have_lost_it_and_seen_when_one_sees_it() {
    let bench = bench(2, three()).await;
    both_report(&bench, ["m2", "m3"], &["m1"], Reach::Reached).await;
    assert_eq!(seen(&bench, "m1"), says("True", "Reached"));
    set(&bench, "m1", READY, "Unknown", "ClusterStatusUnknown");
    report(&bench, "m2", "m1", Reach::Lost).await;
    let reported = seen(&bench, "m1");
    assert_eq!(reported, says("True", "Reached"), "one changes nothing");
    report(&bench, "m3", "m1", Reach::Lost).await;
    assert_eq!(seen(&bench, "m1"), says("False", "NotReached"));
    let reported = ("m1".to_owned(), "LostByPeers".to_owned());
    assert_eq!(bench.api.reported().await, std::slice::from_ref(&reported));
    bench.api.forget();
    pass(200).await;
    // It stays lost, and that is written once.
    assert_eq!(bench.api.writes(), []);
    report(&bench, "m2", "m1", Reach::Reached).await;
    assert_eq!(seen(&bench, "m1"), says("True", "Reached"));
    let reported = ("m1".to_owned(), "SeenByPeers".to_owned());
    assert_eq!(bench.api.reported().await, [reported]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_ready_is_lost_for_five_minutes_at_most() {
    let bench = bench(2, three()).await;
    both_report(&bench, ["m2", "m3"], &["m1"], Reach::Lost).await;
    assert_eq!(seen(&bench, "m1"), says("False", "NotReached"));
    pass(301).await;
    assert_eq!(seen(&bench, "m1"), says("Unknown", "TooFewWitnesses"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_joins_is_watched_and_its_operator_may_name_another_address() {
    let bench = bench(2, vec![member("m1"), member("m2")]).await;
    assert_eq!(asked(&bench, "m1").len(), 1);
    let mut third = member("m3");
    third["metadata"]["annotations"] = json!({PEER_ADDRESS: "https://vip.example.com"});
    bench.api.put("clusters", third.clone());
    pass(20).await;
    let vip = ("m3".to_owned(), "https://vip.example.com".to_owned());
    assert!(asked(&bench, "m1").contains(&vip) && asked(&bench, "m2").contains(&vip));
    // An address that nobody can use is given to nobody.
    let mut now = bench.api.object("clusters", "", "m3").unwrap();
    now["metadata"]["annotations"][PEER_ADDRESS] = json!("tcp://vip");
    bench.api.put("clusters", now);
    pass(20).await;
    assert!(!asked(&bench, "m1").iter().any(|it| it.0 == "m3"));
    assert_eq!(seen(&bench, "m3"), says("Unknown", "NoAddress"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_unless_it_is_on_and_what_was_reported_before_is_taken_back() {
    let mut former = member("m1");
    former["metadata"]["annotations"] =
        json!({PEERS: r#"[{"name": "m2", "address": "https://a"}]"#});
    let conditions = former["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({
        "type": SEEN_BY_PEERS, "status": "False", "reason": "NotReached", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }));
    let bench = bench(0, vec![former, member("m2")]).await;
    assert_eq!(asked(&bench, "m1"), []);
    assert_eq!(seen(&bench, "m1"), says("Unknown", "Off"));
    let others = bench.api.writes().into_iter();
    assert_eq!(others.filter(|it| it.1.contains("/m2")).count(), 0);
    bench.api.forget();
    pass(200).await;
    assert_eq!(bench.api.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_means_another_api_server_in_each_cluster_is_given_to_nobody() {
    let at = |name: &str, address: &str| {
        let mut cluster = cluster(name);
        cluster["spec"]["apiEndpoint"] = json!(address);
        cluster
    };
    let clusters = vec![
        at("m1", "https://10.96.0.1/"),
        at("m2", "https://10.96.0.1:443"),
        at("m3", "https://kubernetes.default.svc"),
        member("m4"),
    ];
    let bench = bench(3, clusters).await;
    for name in ["m1", "m2", "m3"] {
        set(&bench, name, READY, "Unknown", "R");
    }
    // Each reaches 10.96.0.1: it is its own API server.
    report(&bench, "m4", "m1", Reach::Reached).await;
    pass(30).await;
    for name in ["m1", "m2", "m3"] {
        assert_eq!(seen(&bench, name), says("Unknown", "NoAddress"));
    }
    assert_eq!(asked(&bench, "m4"), []);
    // An address of its own makes the other one unique, too.
    let mut now = bench.api.object("clusters", "", "m2").unwrap();
    now["metadata"]["annotations"][PEER_ADDRESS] = json!("https://m2.example.com");
    bench.api.put("clusters", now);
    pass(30).await;
    assert_eq!(asked(&bench, "m4").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_the_other_one_of_two_regions_is_seen_and_a_cut_between_both_is_not() {
    let place = |name: &str| {
        let mut cluster = member(name);
        cluster["spec"]["region"] = json!(name.get(..2));
        cluster
    };
    let bench = bench(2, ["eu1", "eu2", "us1", "us2"].map(place).to_vec()).await;
    both_report(&bench, ["us1", "us2"], &["eu1", "eu2"], Reach::Reached).await;
    set(&bench, "eu1", READY, "Unknown", "ClusterStatusUnknown");
    both_report(&bench, ["us1", "us2"], &["eu1", "eu2"], Reach::Lost).await;
    pass(20).await;
    // What us1 and us2 say of eu1 may come from a trouble between both regions: eu2 lives.
    assert_eq!(seen(&bench, "eu1"), says("Unknown", "TooFewWitnesses"));
    set(&bench, "eu2", READY, "Unknown", "ClusterStatusUnknown");
    pass(20).await;
    for name in ["eu1", "eu2"] {
        assert_eq!(seen(&bench, name), says("False", "NotReached"));
    }
}
