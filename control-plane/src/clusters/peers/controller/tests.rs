//! What agents are asked, and what is written on Clusters.

use muster_shared::peers::{Reach, condition_type};
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{Stand, cluster, pass};
use crate::settings::Settings;

/// Returns a ready cluster with an address.
fn member(name: &str) -> Value {
    let mut cluster = cluster(name);
    cluster["spec"]["apiEndpoint"] = json!(format!("https://{name}.example.com:6443"));
    cluster
}

/// Returns a fleet of clusters in which each has so many witnesses.
async fn stand(per_cluster: usize, clusters: Vec<Value>) -> Stand {
    let settings = Settings {
        peers_per_cluster: per_cluster,
        ..Settings::default()
    };
    let clusters = clusters.into_iter().map(|it| ("clusters", it));
    let mut stand = Stand::with(settings, clusters);
    start(&stand.fleet, &mut stand.tasks);
    stand.follow().await;
    pass(20).await;
    stand
}

fn three() -> Vec<Value> {
    ["m1", "m2", "m3"].map(member).to_vec()
}

/// Returns the names and addresses of the peers that an agent is asked to watch.
fn asked(stand: &Stand, agent: &str) -> Vec<(String, String)> {
    let cluster = stand.fleet.clusters.get(None, agent).unwrap();
    let peers = asked_of(&cluster).into_iter();
    peers.map(|it| (it.name, it.address)).collect()
}

/// Returns status and reason of `SeenByPeers`.
fn seen(stand: &Stand, name: &str) -> (String, String) {
    let cluster = stand.fleet.clusters.get(None, name).unwrap();
    let reported = cluster.condition(SEEN_BY_PEERS).unwrap();
    (reported.status.clone(), reported.reason.clone())
}

fn says(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// Sets a condition of a cluster, as of now.
fn set(stand: &Stand, name: &str, kind: &str, status: &str, reason: &str) {
    let mut cluster = stand.api.object("clusters", "", name).unwrap();
    let conditions = cluster["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|it| it["type"] != json!(kind));
    let now = stand.fleet.clock.now().to_string();
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now,
    }));
    stand.api.put("clusters", cluster);
}

/// Has an agent report about a peer.
async fn report(stand: &Stand, agent: &str, peer: &str, reach: Reach) {
    let status = match reach {
        Reach::Reached => TRUE,
        Reach::Lost => FALSE,
        Reach::Never => UNKNOWN,
    };
    set(stand, agent, &condition_type(peer), status, "R");
    pass(1).await;
}

/// Has two agents report the same about peers.
async fn both_report(stand: &Stand, agents: [&str; 2], peers: &[&str], reach: Reach) {
    for agent in agents {
        for peer in peers {
            report(stand, agent, peer, reach).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agents_are_asked_once_to_watch_the_others_and_a_fleet_at_rest_writes_nothing() {
    let stand = stand(2, three()).await;
    let at = |name: &str| (name.to_owned(), format!("https://{name}.example.com:6443"));
    assert_eq!(asked(&stand, "m1"), [at("m2"), at("m3")]);
    assert_eq!(asked(&stand, "m3"), [at("m1"), at("m2")]);
    assert_eq!(seen(&stand, "m1"), says("Unknown", "TooFewWitnesses"));
    stand.api.forget();
    pass(200).await;
    assert_eq!(stand.api.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_lost_when_two_have_lost_it_and_seen_when_one_sees_it() {
    let stand = stand(2, three()).await;
    both_report(&stand, ["m2", "m3"], &["m1"], Reach::Reached).await;
    assert_eq!(seen(&stand, "m1"), says("True", "Reached"));
    set(&stand, "m1", READY, "Unknown", "ClusterStatusUnknown");
    report(&stand, "m2", "m1", Reach::Lost).await;
    let reported = seen(&stand, "m1");
    assert_eq!(reported, says("True", "Reached"), "one changes nothing");
    report(&stand, "m3", "m1", Reach::Lost).await;
    assert_eq!(seen(&stand, "m1"), says("False", "NotReached"));
    let reported = ("m1".to_owned(), "LostByPeers".to_owned());
    assert_eq!(stand.api.reported().await, std::slice::from_ref(&reported));
    stand.api.forget();
    pass(200).await;
    // It stays lost, and that is written once.
    assert_eq!(stand.api.writes(), []);
    report(&stand, "m2", "m1", Reach::Reached).await;
    assert_eq!(seen(&stand, "m1"), says("True", "Reached"));
    let reported = ("m1".to_owned(), "SeenByPeers".to_owned());
    assert_eq!(stand.api.reported().await, [reported]);
}

#[tokio::test(start_paused = true)]
async fn the_word_of_a_silent_witness_does_not_count() {
    let stand = stand(2, three()).await;
    both_report(&stand, ["m2", "m3"], &["m1"], Reach::Reached).await;
    for name in ["m1", "m2", "m3"] {
        set(&stand, name, READY, "Unknown", "ClusterStatusUnknown");
    }
    pass(1).await;
    assert_eq!(seen(&stand, "m1"), says("Unknown", "TooFewWitnesses"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_ready_is_lost_for_five_minutes_at_most() {
    let stand = stand(2, three()).await;
    both_report(&stand, ["m2", "m3"], &["m1"], Reach::Lost).await;
    assert_eq!(seen(&stand, "m1"), says("False", "NotReached"));
    pass(301).await;
    assert_eq!(seen(&stand, "m1"), says("Unknown", "TooFewWitnesses"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_joins_is_watched_and_its_operator_may_name_another_address() {
    let stand = stand(2, vec![member("m1"), member("m2")]).await;
    assert_eq!(asked(&stand, "m1").len(), 1);
    let mut third = member("m3");
    third["metadata"]["annotations"] = json!({PEER_ADDRESS: "https://vip.example.com"});
    stand.api.put("clusters", third.clone());
    pass(20).await;
    let vip = ("m3".to_owned(), "https://vip.example.com".to_owned());
    assert!(asked(&stand, "m1").contains(&vip) && asked(&stand, "m2").contains(&vip));
    // An address that nobody can use is given to nobody.
    let mut now = stand.api.object("clusters", "", "m3").unwrap();
    now["metadata"]["annotations"][PEER_ADDRESS] = json!("tcp://vip");
    stand.api.put("clusters", now);
    pass(20).await;
    assert!(!asked(&stand, "m1").iter().any(|it| it.0 == "m3"));
    assert_eq!(seen(&stand, "m3"), says("Unknown", "NoAddress"));
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
    let stand = stand(0, vec![former, member("m2")]).await;
    assert_eq!(asked(&stand, "m1"), []);
    assert_eq!(seen(&stand, "m1"), says("Unknown", "Off"));
    let others = stand.api.writes().into_iter();
    assert_eq!(others.filter(|it| it.1.contains("/m2")).count(), 0);
    stand.api.forget();
    pass(200).await;
    assert_eq!(stand.api.writes(), []);
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
    let stand = stand(3, clusters).await;
    for name in ["m1", "m2", "m3"] {
        set(&stand, name, READY, "Unknown", "R");
    }
    // Each reaches 10.96.0.1: it is its own API server.
    report(&stand, "m4", "m1", Reach::Reached).await;
    pass(30).await;
    for name in ["m1", "m2", "m3"] {
        assert_eq!(seen(&stand, name), says("Unknown", "NoAddress"));
    }
    assert_eq!(asked(&stand, "m4"), []);
    // An address of its own makes the other one unique, too.
    let mut now = stand.api.object("clusters", "", "m2").unwrap();
    now["metadata"]["annotations"][PEER_ADDRESS] = json!("https://m2.example.com");
    stand.api.put("clusters", now);
    pass(30).await;
    assert_eq!(asked(&stand, "m4").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_the_other_one_of_two_regions_is_seen_and_a_cut_between_both_is_not() {
    let place = |name: &str| {
        let mut cluster = member(name);
        cluster["spec"]["region"] = json!(name.get(..2));
        cluster
    };
    let stand = stand(2, ["eu1", "eu2", "us1", "us2"].map(place).to_vec()).await;
    both_report(&stand, ["us1", "us2"], &["eu1", "eu2"], Reach::Reached).await;
    set(&stand, "eu1", READY, "Unknown", "ClusterStatusUnknown");
    both_report(&stand, ["us1", "us2"], &["eu1", "eu2"], Reach::Lost).await;
    pass(20).await;
    // What us1 and us2 say of eu1 may come from a trouble between both regions: eu2 lives.
    assert_eq!(seen(&stand, "eu1"), says("Unknown", "TooFewWitnesses"));
    set(&stand, "eu2", READY, "Unknown", "ClusterStatusUnknown");
    pass(20).await;
    for name in ["eu1", "eu2"] {
        assert_eq!(seen(&stand, name), says("False", "NotReached"));
    }
}
