//! Several agents of one member: one of them acts, with no more rights than Karmada gives to
//! agents.

use kube::api::PostParams;
use muster_e2e::harness::objects::{create, typed};
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Lease, Namespace};
use serde_json::json;

use crate::agent::bench::{Bench, MEMBER, until};
use crate::agent::meter::Meter;
use muster_e2e::harness::test_bed::Task;

/// The election's lease, as Karmada names it.
const ELECTION: &str = "karmada-agent-m1";

/// The group of Karmada's agents.
const AGENTS: &str = "system:karmada:agents";

fn elected(bench: &Bench) -> Task {
    bench.agent_in(&[AGENTS], |settings| settings.leader_elect = true)
}

fn leases(bench: &Bench, namespace: &str) -> Api<Lease> {
    Api::namespaced(bench.fleet_client.clone(), namespace)
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
    holder.unwrap_or_default()
}

/// Waits until a lease has been renewed so many times more.
async fn renewed(api: &Api<Lease>, name: &str, times: usize) {
    let at = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let mut last = None;
    for _ in 0..=times {
        let lease = until(api, name, "it is renewed", |lease| at(lease) > last).await;
        last = at(&lease);
    }
}

#[tokio::test]
async fn an_agent_leads_and_resigns_with_the_verbs_that_karmada_grants() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    crate::agent::survival::grant_karmadactl_role(&bench).await;
    let (election, signs) = (
        leases(&bench, "karmada-system"),
        leases(&bench, "karmada-cluster"),
    );

    let first = elected(&bench);
    bench.joined().await;
    renewed(&election, ELECTION, 1).await;
    renewed(&signs, MEMBER, 2).await;
    let leader = election.get(ELECTION).await.unwrap();
    let refused = || {
        meter.sum(
            "muster_api_requests_total",
            &["api=\"fleet\"", "code=\"403\"", "method=\"PATCH\""],
        )
    };
    let learnt = refused();
    assert!(learnt > 0.0, "patches are refused");
    renewed(&election, ELECTION, 1).await;
    renewed(&signs, MEMBER, 3).await;
    assert!(
        refused() < learnt + 1.0,
        "what is refused once is not tried at every renewal"
    );

    let _second = elected(&bench);
    first.stop().await.unwrap();
    let successor = until(&election, ELECTION, "another one leads", |lease| {
        !holder(lease).is_empty() && holder(lease) != holder(&leader)
    })
    .await;
    let transitions = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    assert!(transitions(&successor) > transitions(&leader));
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    renewed(&signs, MEMBER, 1).await;
}

#[tokio::test]
async fn the_agent_of_another_cluster_does_not_stand_by_behind_the_one_whose_name_it_has() {
    let bench = Bench::start().await;
    crate::agent::survival::grant_karmadactl_role(&bench).await;
    let params = PostParams::default();
    let cluster =
        json!({"metadata": {"name": MEMBER}, "spec": {"syncMode": "Pull", "id": "another"}});
    let cluster: Cluster = serde_json::from_value(cluster).unwrap();
    create(&bench.clusters(), &cluster).await;
    let namespaces: Api<Namespace> = Api::all(bench.fleet_client.clone());
    let namespace = json!({"metadata": {"name": "karmada-system"}});
    // It may be there.
    namespaces.create(&params, &typed(namespace)).await.ok();
    let now = muster_shared::clock::calendar();
    let now = format!("{now:.6}");
    let lease = json!({
        "metadata": {"name": ELECTION},
        "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 3_600,
            "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
        },
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let election = leases(&bench, "karmada-system");
    create(&election, &lease).await;
    let refused = elected(&bench).ended().await.unwrap_err();
    let words = format!("{refused:#}");
    assert!(
        words.contains("belongs to a cluster with id \"another\""),
        "{words}"
    );
    let lease = election.get(ELECTION).await.unwrap();
    assert_eq!(holder(&lease), "another");
}
