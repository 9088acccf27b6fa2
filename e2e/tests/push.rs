//! Clusters of sync mode Push: the control plane itself reports their status, applies their Works
//! and reflects their objects, against two real API servers.

use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::api::rbac::v1::Role;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, event, list, merge, merge_status};
use muster_e2e::harness::test_bed::{MemberApi, Task, TestBed, gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::k8s::{Api, Deployment, Event, Namespace, ResourceExt, Secret, ServiceAccount};
use serde_json::{Value, json};

use crate::support::kubectl;

/// A fleet API and members that it reaches.
struct Bench {
    bed: TestBed,
    members: BTreeMap<&'static str, MemberApi>,
}

impl Deref for Bench {
    type Target = TestBed;

    fn deref(&self) -> &TestBed {
        &self.bed
    }
}

impl Bench {
    async fn start(members: &[&'static str]) -> Self {
        let bed = TestBed::fleet("push").await.unwrap();
        let mut started = BTreeMap::new();
        for name in members {
            started.insert(*name, MemberApi::start(name).await.unwrap());
        }
        Self {
            bed,
            members: started,
        }
    }

    fn control_plane(&self) -> Task {
        let settings = Settings {
            cluster_status_update_frequency: "1s".parse().unwrap(),
            cluster_success_threshold: "1s".parse().unwrap(),
            cluster_failure_threshold: "2s".parse().unwrap(),
            cluster_monitor_grace_period: "2s".parse().unwrap(),
            ..Settings::default()
        };
        self.bed.control_plane(settings).unwrap()
    }

    /// Runs `kubectl muster` at the fleet API with the kubeconfig of a member at hand.
    async fn muster(&self, words: &[&str], member: &str) -> anyhow::Result<String> {
        let administrator = self.members[member].server.admin_kubeconfig().unwrap();
        let file = self.bed.file(member, &administrator).unwrap();
        let more = ["--member-kubeconfig", file.to_str().unwrap()];
        let words = [words, &more].concat();
        kubectl::answer(&self.bed.administrator().unwrap(), &words).await
    }

    async fn join(&self, member: &str) {
        self.muster(&["join", member], member).await.unwrap();
        self.ready(member, "True").await;
    }

    /// Waits until the Cluster has this condition, with a message that contains a text.
    async fn condition(&self, cluster: &str, kind: &str, status: &str, part: &str) {
        let what = format!("{kind} is {status} with {part:?}");
        until(&self.clusters(), cluster, &what, |cluster: &Cluster| {
            cluster
                .condition(kind)
                .is_some_and(|it| it.status == status && it.message.contains(part))
        })
        .await;
    }

    /// Deploys `web` in these clusters.
    async fn deploy(&self, clusters: &[&str]) {
        create::<Deployment>(&self.here(), deployment()).await;
        let policy = json!({
            "metadata": { "name": "web" },
            "spec": {
                "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }],
                "placement": { "clusterAffinity": { "clusterNames": clusters } },
            },
        });
        create::<PropagationPolicy>(&self.here(), policy).await;
    }

    /// Changes the Cluster of `m1`, so that the control plane reconciles it again.
    async fn touch(&self, mark: &str) {
        let label = json!({ "metadata": { "labels": { "look": mark } } });
        merge(&self.clusters(), "m1", label).await;
    }

    /// Waits until `web` is in a member.
    async fn arrives(&self, member: &str) -> Deployment {
        let deployments = self.members[member].here::<Deployment>();
        until(&deployments, "web", "it arrives", |_| true).await
    }

    /// Waits for an event about a Cluster.
    async fn reported(&self, cluster: &str, reason: &str, part: &str) {
        let about = format!("involvedObject.name={cluster},reason={reason}");
        event(&self.all::<Event>(), &about, part).await;
    }
}

fn deployment() -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    })
}

#[tokio::test]
async fn a_member_without_an_agent_is_joined_filled_reported_and_left() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    bench.condition("m1", "Monitored", "True", "connects").await;
    bench.deploy(&["m1"]).await;
    let member = &bench.members["m1"];
    let deployments: Api<Deployment> = member.here();
    bench.arrives("m1").await;
    // What its controllers say is shown on the binding and on the template.
    let status = json!({ "status": { "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "observedGeneration": 1 } });
    merge_status(&deployments, "web", status).await;
    let templates: Api<Deployment> = bench.here();
    until(
        &templates,
        "web",
        "its status is shown",
        |web: &Deployment| {
            web.status
                .as_ref()
                .is_some_and(|status| status.ready_replicas == Some(2))
        },
    )
    .await;
    // A change follows, and somebody else's change in the member is repaired.
    merge(&templates, "web", json!({ "spec": { "replicas": 3 } })).await;
    let has_three = |web: &Deployment| web.spec.as_ref().unwrap().replicas == Some(3);
    until(&deployments, "web", "it is scaled", has_three).await;
    merge(&deployments, "web", json!({ "spec": { "replicas": 9 } })).await;
    until(&deployments, "web", "it is repaired", has_three).await;

    let refused = bench.muster(&["unjoin", "m1"], "m1").await.unwrap_err();
    assert!(
        refused.to_string().contains("workloads are placed"),
        "{refused}"
    );
    let reported = bench
        .muster(&["unjoin", "m1", "--force"], "m1")
        .await
        .unwrap();
    assert!(
        reported.contains("is gone") && reported.contains("from the member"),
        "{reported}"
    );
    gone(&deployments, "web").await;
    let secrets: Api<Secret> = bench.within("karmada-cluster");
    assert!(secrets.get_opt("m1").await.unwrap().is_none());
    let accounts: Api<ServiceAccount> = Api::namespaced(member.client.clone(), "muster-system");
    assert!(accounts.get_opt("muster-push-m1").await.unwrap().is_none());
    let roles: Api<Role> = Api::namespaced(member.client.clone(), "muster-system");
    assert!(
        roles
            .get_opt("muster-push-m1-token")
            .await
            .unwrap()
            .is_none()
    );
    let nothing = bench.muster(&["unjoin", "m1"], "m1").await.unwrap_err();
    assert!(nothing.to_string().contains("nothing is left"), "{nothing}");
}

#[tokio::test]
async fn an_account_that_was_left_behind_can_be_removed_later() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    let fleet = bench.administrator().unwrap();
    let reported = kubectl::answer(&fleet, &["unjoin", "m1"]).await.unwrap();
    assert!(
        reported.contains("repeat this with --member-kubeconfig"),
        "{reported}"
    );
    let reported = bench.muster(&["unjoin", "m1"], "m1").await.unwrap();
    assert!(reported.contains("from the member"), "{reported}");
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_reported_and_mended_ones_are_taken() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    let secrets: Api<Secret> = bench.within("karmada-cluster");
    let sound = secrets.get("m1").await.unwrap().data;
    merge(&secrets, "m1", json!({ "stringData": { "token": "a\nb" } })).await;
    // The Secret itself is not watched: a change of the Cluster has it read.
    bench.touch("1").await;
    bench
        .condition("m1", "Monitored", "False", "line breaks")
        .await;
    merge(&secrets, "m1", json!({ "data": sound })).await;
    bench.touch("2").await;
    bench.condition("m1", "Monitored", "True", "connects").await;
    bench.deploy(&["m1"]).await;
    bench.arrives("m1").await;
}

#[tokio::test]
async fn a_member_that_is_not_recognised_any_more_is_not_ready_from_then_on() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    // Another cluster answers at its address.
    let namespaces = bench.members["m1"]
        .server
        .seeds("", "v1", "namespaces")
        .unwrap();
    let other = json!({ "name": "kube-system", "uid": "11111111-2222-3333-4444-555555555555" });
    namespaces
        .put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": other }))
        .unwrap();
    bench.touch("1").await;
    bench
        .reported("m1", "MemberNotRecognised", "another cluster")
        .await;
    bench.ready("m1", "False").await;
}

#[tokio::test]
async fn why_a_member_was_never_reached_is_reported() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    let words = [
        "join",
        "m1",
        "--cluster-api-endpoint",
        "https://127.0.0.1:1",
    ];
    bench.muster(&words, "m1").await.unwrap();
    bench.reported("m1", "MemberNotIdentified", "refused").await;
    bench.ready("m1", "False").await;
}

#[tokio::test]
async fn a_dead_member_is_not_ready_slows_no_other_and_comes_back() {
    let bench = Bench::start(&["m1", "m2"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    bench.join("m2").await;
    let faults = bench.members["m1"].server.faults();
    faults.inject_for(Scope::default(), Effect::Hang);
    bench.ready("m1", "False").await;
    until(
        &bench.clusters(),
        "m1",
        "it is tainted",
        |cluster: &Cluster| {
            cluster
                .spec
                .taints
                .iter()
                .any(|taint| taint.key.ends_with("/not-ready"))
        },
    )
    .await;
    bench.deploy(&["m2"]).await;
    bench.arrives("m2").await;
    faults.heal();
    bench.ready("m1", "True").await;
}

#[tokio::test]
async fn credentials_of_another_cluster_write_nothing_there() {
    let bench = Bench::start(&["m1", "m2"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    bench.deploy(&["m1"]).await;
    bench.arrives("m1").await;
    // The operator joins the other one for its Secret, and mixes the two up.
    bench.muster(&["join", "m2"], "m2").await.unwrap();
    let second = bench.clusters().get("m2").await.unwrap();
    let secrets: Api<Secret> = bench.within("karmada-cluster");
    let data = secrets.get("m2").await.unwrap().data;
    merge(&secrets, "m1", json!({ "data": data })).await;
    let endpoint = json!({ "spec": { "apiEndpoint": second.spec.api_endpoint } });
    merge(&bench.clusters(), "m1", endpoint).await;
    bench
        .reported("m1", "MemberNotRecognised", "another cluster")
        .await;
    bench.ready("m1", "False").await;
    let others: Api<Deployment> = bench.members["m2"].here();
    assert!(others.get_opt("web").await.unwrap().is_none());
}

#[tokio::test]
async fn what_cannot_be_joined_is_refused_and_leaves_no_cluster() {
    let bench = Bench::start(&["m1"]).await;
    let _control_plane = bench.control_plane();
    bench.join("m1").await;
    for (name, part) in [
        ("m1", "has a Cluster \"m1\" already"),
        ("again", "is in the fleet already, as Cluster \"m1\""),
        ("Bad Name", "is not the name of a cluster"),
    ] {
        let refused = bench
            .muster(&["join", name], "m1")
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let names: Vec<String> = list(&bench.clusters())
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["m1"]);
    let namespaces: Api<Namespace> = Api::all(bench.members["m1"].client.clone());
    namespaces.get("muster-system").await.unwrap();
    assert!(list(&bench.here::<ResourceBinding>()).await.is_empty());
}
