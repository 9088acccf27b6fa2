//! Clusters that watch each other: a member that is cut off from the host alone is not taken for
//! dead, one that nobody sees is, and one agent that lies changes nothing.

use std::time::Duration;

use kube::api::Api;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::heartbeat_fleet::HeartbeatFleet;
use muster_e2e::harness::objects::merge_status;
use muster_e2e::harness::observer::View;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::peers::condition_type;
use serde_json::json;

use crate::heartbeats::{self, GRACE, Setting, exactly, holds, silent, tainted, told, until};

/// Evicts from a cluster that is silent and that no peer sees.
const POLICY: &str = r#"
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata:
  name: dead-clusters
spec:
  matchConditions:
    - { conditionType: Ready, operator: In, statusValues: ["Unknown"] }
    - { conditionType: SeenByPeers, operator: In, statusValues: ["False"] }
  taintsToAdd:
    - { key: example.com/dead, effect: NoExecute, addOnMatchSeconds: 1, removeOnMismatchSeconds: 1 }
"#;

/// Time in which a taint would have come.
const LONG_ENOUGH: Duration = GRACE.saturating_mul(2);

/// Has the agent of a cluster report whether it reaches a peer, as an agent does: on its own
/// Cluster.
async fn report(fleet: &HeartbeatFleet, agent: &str, peer: &str, status: &str) {
    let clusters: Api<Cluster> = Api::all(fleet.client.clone());
    let known = clusters.get_status(agent).await.unwrap();
    let mut all = known.status.unwrap_or_default().conditions;
    let now = jiff::Timestamp::now();
    let said = conditions::new(&condition_type(peer), status, "R", "", now);
    conditions::set(&mut all, said);
    merge_status(&clusters, agent, json!({"status": {"conditions": all}})).await;
}

fn seen(view: &View, name: &str, wanted: &str) -> Result<(), String> {
    let cluster = view.clusters.get(None, name);
    let found = cluster.and_then(|it| it.condition("SeenByPeers").cloned());
    match found {
        Some(found) if found.status == wanted => Ok(()),
        other => Err(format!("{name}: {other:?}, not {wanted}")),
    }
}

/// Checks that the agents are asked to watch a cluster.
fn watched_by(view: &View, name: &str, agents: &[&str]) -> Result<(), String> {
    let names_it = |agent: &&&str| {
        let cluster = view.clusters.get(None, agent);
        let annotations = cluster.and_then(|it| it.metadata.annotations.clone());
        let peers = annotations.and_then(|it| it.get("failover.muster.io/peers").cloned());
        peers.is_some_and(|it| it.contains(&format!("{name:?}")))
    };
    match agents.iter().find(|it| !names_it(it)) {
        Some(agent) => Err(format!("{agent} is not asked to watch {name}")),
        None => Ok(()),
    }
}

fn nobody_tainted(view: &View) -> Result<(), String> {
    exactly(0, "are tainted", tainted(view))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_member_is_taken_for_dead_when_no_peer_sees_it_and_not_on_the_word_of_one_agent() {
    let setting = Setting::named("witnesses", 3).flag("--peers-per-cluster=2");
    heartbeats::run(setting, async |fleet| {
        apply(&fleet.client, POLICY).await?;
        let agents = ["member2", "member3"];
        until(fleet, "the others are asked", |view| {
            watched_by(view, "member1", &agents)
        })
        .await?;
        for agent in agents {
            report(fleet, agent, "member1", "True").await;
        }
        until(fleet, "it is seen", |view| seen(view, "member1", "True")).await?;
        // Cut off from the host; the peers still see it.
        fleet.cut(["member1"]);
        until(fleet, "it is silent", |view| silent(view, "member1")).await?;
        holds(fleet, "peers see it", LONG_ENOUGH, nobody_tainted).await?;
        // One agent lies, or has a trouble of its own.
        report(fleet, "member2", "member1", "False").await;
        holds(fleet, "one changes nothing", LONG_ENOUGH, nobody_tainted).await?;
        // Really dead.
        report(fleet, "member3", "member1", "False").await;
        until(fleet, "it is lost", |view| seen(view, "member1", "False")).await?;
        until(fleet, "it is tainted", |view| {
            exactly(1, "are tainted", tainted(view))
        })
        .await?;
        told(fleet, "member1", &["LostByPeers"]).await?;
        // It returns.
        fleet.heal(["member1"]);
        report(fleet, "member3", "member1", "True").await;
        until(fleet, "the taint goes", nobody_tainted).await
    })
    .await;
}
