//! The host of the fleet API is lost: a standby is restored from a snapshot and promoted, and the
//! former host comes back.

use std::time::Instant;

use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::Forget;
use muster_e2e::harness::objects::{create, event, list, merge};
use muster_e2e::harness::test_bed::{MemberApi, Task, TestBed, until};
use muster_e2e::harness::{access, apply};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::fleet_servers::{self, FleetServer};
use muster_shared::k8s::{Api, ConfigMap, Event, Lease, Namespace, ResourceExt};
use muster_shared::names::annotation::{FLEET_ID, FLEET_SERVERS, SEEN_EPOCH};
use muster_shared::settings::FleetServers;
use serde_json::json;

use crate::support::{kubectl, taint_policy};

/// A ConfigMap that is placed in one of both clusters.
const WORKLOAD: &str = r"
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: app
  namespace: default
spec:
  resourceSelectors:
    - apiVersion: v1
      kind: ConfigMap
      name: app
  placement:
    clusterAffinity:
      clusterNames: [m1, m2]
    spreadConstraints:
      - {spreadByField: cluster, minGroups: 1, maxGroups: 1}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: app
  namespace: default
data:
  a: b
";

/// A host with a control plane, and two members whose agents know of it alone.
struct Hosts {
    first: TestBed,
    members: [MemberApi; 2],
    /// The agents of the members, in their order.
    agents: Vec<Task>,
    /// The control plane of the first host.
    led: Task,
}

/// Settings of a control plane that notices soon, on a machine that is busy with other tests.
fn settings() -> Settings {
    Settings {
        feature_gates: "Failover=true".parse().unwrap(),
        cluster_monitor_grace_period: "8s".parse().unwrap(),
        leader_elect_lease_duration: "4s".parse().unwrap(),
        leader_elect_renew_deadline: "3s".parse().unwrap(),
        leader_elect_retry_period: "1s".parse().unwrap(),
        ..Settings::default()
    }
}

/// Returns the address of a host. Its authority is that of the kubeconfigs.
fn server(bed: &TestBed, store: &str) -> FleetServer {
    FleetServer {
        server: bed.server.url(),
        store: store.to_owned(),
        ..FleetServer::default()
    }
}

/// Returns the group with the rights of a member's agent.
fn group(member: &str) -> String {
    format!("agents-{member}")
}

/// Starts an agent that knows the first host alone.
async fn agent(first: &TestBed, member: &MemberApi) -> Task {
    let name = &member.name;
    let group = group(name);
    access::admit_group(&first.client, &member.client, name, &group)
        .await
        .unwrap();
    let user = format!("system:karmada:agent:{name}");
    let fleet = first.server.kubeconfig(&user, &[&group]).unwrap();
    let fleet = first.file(&format!("fleet-{name}"), &fleet).unwrap();
    let own = server(first, "first");
    let agent = first.agent(member, |it| {
        it.fleet_servers = FleetServers(vec![own]);
        it.karmada_kubeconfig = Some(fleet);
        it.cluster_lease_duration = "4s".parse().unwrap();
        it.fleet_server_timeout = "2s".parse().unwrap();
        // The lease of the election is in the snapshot, and has to end in the standby.
        it.leader_elect_lease_duration = "4s".parse().unwrap();
        it.leader_elect_renew_deadline = "3s".parse().unwrap();
        it.leader_elect_retry_period = "1s".parse().unwrap();
    });
    agent.await.unwrap()
}

impl Hosts {
    /// Starts all, and waits until the members are ready.
    async fn start() -> Self {
        let first = TestBed::fleet("first").await.unwrap();
        let led = first.elected_control_plane(settings()).unwrap();
        let members = [
            MemberApi::start("m1").await.unwrap(),
            MemberApi::start("m2").await.unwrap(),
        ];
        let mut agents = Vec::new();
        for member in &members {
            agents.push(agent(&first, member).await);
        }
        for member in &members {
            first.ready(&member.name, "True").await;
        }
        let namespaces = first.all::<Namespace>();
        let has_id = |it: &Namespace| it.annotations().contains_key(FLEET_ID);
        until(&namespaces, "karmada-cluster", "it has the id", has_id).await;
        Self {
            first,
            members,
            agents,
            led,
        }
    }

    /// Starts a standby from a snapshot of the first host, and publishes its address. Returns it
    /// once all agents have learnt the address.
    async fn standby(&self) -> TestBed {
        let snapshot = self.first.server.snapshot();
        let standby = self.first.restored("standby", &snapshot).await.unwrap();
        let servers = vec![server(&self.first, "first"), server(&standby, "second")];
        let published = json!({FLEET_SERVERS: fleet_servers::write(&servers)});
        let patch = json!({"metadata": {"annotations": published}});
        merge(&self.first.all::<Namespace>(), "karmada-cluster", &patch).await;
        for member in &self.members {
            let records: Api<ConfigMap> = Api::namespaced(member.client.clone(), "karmada-system");
            let name = format!("muster-fleet-{}", member.name);
            let knows = |it: &ConfigMap| {
                let record = it.data.as_ref().and_then(|data| data.get("record"));
                record.is_some_and(|text| text.contains(&standby.server.url()))
            };
            until(&records, &name, "it has the address of the standby", knows).await;
        }
        standby
    }
}

/// Writes a Work with a ConfigMap of its name.
async fn write(bed: &TestBed, member: &str, name: &str) {
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"a": "1"},
    });
    let work = json!({
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": [manifest]}},
    });
    create(&bed.works(member), work).await;
}

async fn applied(member: &MemberApi, name: &str) -> ConfigMap {
    until(&member.here::<ConfigMap>(), name, "it is applied", |_| true).await
}

/// Returns the time at which a lease was renewed last.
fn renewed(lease: &Lease) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    spec.renew_time.as_ref().map(|it| it.0.to_string())
}

/// Returns the cluster that a workload is placed in alone.
fn place(binding: &ResourceBinding) -> Option<String> {
    let [target] = binding.spec.clusters.as_slice() else {
        return None;
    };
    Some(target.name.clone())
}

#[tokio::test]
async fn a_promoted_standby_is_obeyed_and_keeps_what_it_does_not_know_and_the_former_host_is_not() {
    let hosts = Hosts::start().await;
    let (first, [m1, m2]) = (&hosts.first, &hosts.members);
    write(first, "m1", "before").await;
    applied(m1, "before").await;
    let standby = hosts.standby().await;
    write(first, "m1", "after").await;
    applied(m1, "after").await;

    // The first host is lost. A standby that was not promoted is obeyed by nobody.
    standby.server.audit().begin();
    let lost = Instant::now();
    first.server.stop();
    hosts.led.stop().await.ok();
    for member in &hosts.members {
        let events: Api<Event> = Api::namespaced(member.client.clone(), "karmada-system");
        event(&events, "reason=NoFleetServer", "not promoted").await;
    }
    let administrator = standby.administrator().unwrap();
    let said = kubectl::answer(&administrator, &["promote", "--dry-run"]).await;
    let said = said.unwrap();
    assert!(
        said.contains("2 clusters") && said.contains("Nothing was done"),
        "{said}"
    );
    assert_eq!(standby.server.audit().end(), []);

    let leases: Api<Lease> = standby.within("karmada-cluster");
    let mut before = Vec::new();
    for member in &hosts.members {
        // The snapshot may be older than the first lease.
        let found = leases.get_opt(&member.name).await.unwrap();
        before.push(found.as_ref().and_then(renewed));
    }
    let said = kubectl::answer(&administrator, &["promote", "--grace", "1m"]).await;
    let said = said.unwrap();
    assert!(said.contains("epoch 1 now; it had 0"), "{said}");
    let promoted = Instant::now();
    let _leads = standby.elected_control_plane(settings()).unwrap();
    for (member, before) in hosts.members.iter().zip(before) {
        let is_renewed = |it: &Lease| renewed(it) != before;
        until(&leases, &member.name, "it is renewed there", is_renewed).await;
    }
    println!(
        "led again {:.1?} after the loss, {:.1?} after the promotion",
        lost.elapsed(),
        promoted.elapsed()
    );

    // What was written since the snapshot is kept and reported.
    let reported = |it: &Cluster| {
        let condition = it.condition("ObjectsWithoutWork");
        condition.is_some_and(|it| it.status == "True" && it.message.contains("default/after"))
    };
    let cluster = until(
        &standby.clusters(),
        "m1",
        "it tells of the object",
        reported,
    )
    .await;
    let condition = cluster.condition("ObjectsWithoutWork").unwrap();
    assert!(
        !condition.message.contains("default/before"),
        "{}",
        condition.message
    );
    applied(m1, "after").await;
    // What is written to the standby arrives.
    write(&standby, "m2", "since").await;
    applied(m2, "since").await;

    // The former host is back, with a control plane that knows no other address.
    first.server.restart(Forget::Nothing);
    let former: Api<Lease> = first.within("karmada-cluster");
    let renewal = renewed(&former.get("m1").await.unwrap());
    let back = first.elected_control_plane(settings()).unwrap();
    for member in &hosts.members {
        let knows = |it: &Lease| it.annotations().get(SEEN_EPOCH).is_some_and(|it| it == "1");
        until(
            &former,
            &member.name,
            "it says what its agent has seen",
            knows,
        )
        .await;
    }
    let ended = back.ended().await.unwrap_err().to_string();
    assert!(
        ended.contains("epoch 1") && ended.contains("this store has epoch 0"),
        "{ended}"
    );
    // It starts again, and does not lead.
    let stands_by = first.elected_control_plane(settings()).unwrap();
    let events: Api<Event> = first.here();
    event(&events, "reason=StoreSuperseded", "epoch 1").await;
    assert!(!stands_by.is_finished());
    assert_eq!(renewed(&former.get("m1").await.unwrap()), renewal);
    for member in &hosts.members {
        standby.ready(&member.name, "True").await;
        for work in list(&first.works(&member.name)).await {
            assert_eq!(
                work.metadata.deletion_timestamp,
                None,
                "{}",
                work.name_any()
            );
        }
    }
    applied(m1, "before").await;
    applied(m1, "after").await;
}

#[tokio::test]
async fn a_cluster_that_joined_after_the_snapshot_says_what_it_lacks_and_is_found_again() {
    let hosts = Hosts::start().await;
    let standby = hosts.standby().await;
    let late = MemberApi::start("m3").await.unwrap();
    let _agent = agent(&hosts.first, &late).await;
    hosts.first.ready("m3", "True").await;
    let records: Api<ConfigMap> = Api::namespaced(late.client.clone(), "karmada-system");
    let url = standby.server.url();
    let knows = |it: &ConfigMap| {
        it.data
            .as_ref()
            .is_some_and(|it| it["record"].contains(&url))
    };
    until(
        &records,
        "muster-fleet-m3",
        "it has the address of the standby",
        knows,
    )
    .await;

    hosts.first.server.stop();
    hosts.led.stop().await.ok();
    let administrator = standby.administrator().unwrap();
    kubectl::answer(&administrator, &["promote"]).await.unwrap();
    let _leads = standby.elected_control_plane(settings()).unwrap();
    let events: Api<Event> = Api::namespaced(late.client.clone(), "karmada-system");
    event(
        &events,
        "reason=NoFleetServer",
        "token create --cluster-name m3",
    )
    .await;
    access::admit_group(&standby.client, &late.client, "m3", &group("m3"))
        .await
        .unwrap();
    standby.ready("m3", "True").await;
}

#[tokio::test]
async fn a_control_plane_asks_the_other_hosts_before_it_leads() {
    let hosts = Hosts::start().await;
    let standby = hosts.standby().await;
    hosts.led.stop().await.ok();
    let administrator = standby.administrator().unwrap();
    kubectl::answer(&administrator, &["promote"]).await.unwrap();
    let first = &hosts.first;
    let stands_by = first.elected_control_plane(Settings {
        fleet_servers: FleetServers(vec![server(&standby, "second")]),
        ..settings()
    });
    let stands_by = stands_by.unwrap();
    event(
        &first.here::<Event>(),
        "reason=StoreSuperseded",
        &standby.server.url(),
    )
    .await;
    assert!(!stands_by.is_finished());
}

#[tokio::test]
async fn a_failover_that_the_loss_of_the_host_interrupts_is_carried_out_after_the_promotion() {
    let hosts = Hosts::start().await;
    let first = &hosts.first;
    for text in [taint_policy(1, 1).as_str(), WORKLOAD] {
        apply::apply(&first.client, text).await.unwrap();
    }
    let bindings: Api<ResourceBinding> = first.here();
    let is_placed = |it: &ResourceBinding| place(it).is_some();
    let placed = until(&bindings, "app-configmap", "it is placed", is_placed).await;
    let home = place(&placed).unwrap();
    let (lost, other) = if home == "m1" { (0, 1) } else { (1, 0) };
    applied(&hosts.members[lost], "app").await;
    let standby = hosts.standby().await;

    // The cluster fails, and the host in the moment in which that is noticed.
    let mut agents = hosts.agents;
    drop(agents.remove(lost));
    let failed = Instant::now();
    let is_noticed = |it: &Cluster| {
        it.spec
            .taints
            .iter()
            .any(|it| it.key == "example.com/failed")
    };
    until(&first.clusters(), &home, "it is tainted", is_noticed).await;
    first.server.stop();
    hosts.led.stop().await.ok();
    let administrator = standby.administrator().unwrap();
    let promotion = kubectl::answer(&administrator, &["promote", "--grace", "3s"]).await;
    promotion.unwrap();
    let _leads = standby.elected_control_plane(settings()).unwrap();

    let target = &hosts.members[other].name;
    let bindings: Api<ResourceBinding> = standby.here();
    let is_moved = |it: &ResourceBinding| place(it).as_ref() == Some(target);
    until(
        &bindings,
        "app-configmap",
        "it is placed in the other cluster",
        is_moved,
    )
    .await;
    applied(&hosts.members[other], "app").await;
    println!(
        "the workload runs elsewhere {:.1?} after its cluster failed",
        failed.elapsed()
    );
    let kept = standby.ready(target, "True").await;
    assert!(kept.spec.taints.is_empty(), "{:?}", kept.spec.taints);
}
