//! Admission by the control plane: an embedded fleet API with the chart's own webhook
//! configurations, and the control plane with its chart's own rights, over real TLS.

mod certificate;
mod kinds;
mod server;

use certificate::SelfSigned;
use kube::Client;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::access;
use muster_e2e::harness::apply::{apply, apply_all, objects};
use muster_e2e::harness::objects::delete;
use muster_e2e::harness::process::free_ports;
use muster_e2e::harness::test_bed::{Scratch, Task, TestBed, eventually, until};
use muster_e2e::harness::{fleet, raw};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::k8s::{Api, Secret};
use serde_json::{Value, json};

const CONFIGURATIONS: &str = include_str!("../../../charts/control-plane/access/webhooks.yaml");
const EXEMPT: &str = r#"["system:serviceaccount:karmada-system:muster-control-plane"]"#;
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
const TAINT_POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/clustertaintpolicies";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A fleet API that asks the control plane.
struct Stage {
    test_bed: TestBed,
    port: u16,
    shown: SelfSigned,
    directory: Scratch,
}

impl Stage {
    async fn set(name: &str) -> Self {
        let [port] = free_ports().unwrap();
        let stage = Self {
            test_bed: TestBed::fleet(name).await.unwrap(),
            port,
            shown: SelfSigned::new(),
            directory: Scratch::new(name).unwrap(),
        };
        stage.shown.write(stage.directory.path());
        stage
    }

    fn control_plane(&self) -> Task {
        self.control_plane_of("*")
    }

    /// Starts a control plane with some of its controllers.
    fn control_plane_of(&self, controllers: &str) -> Task {
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            cert_dir: Some(self.directory.path().to_owned()),
            bind_address: [127, 0, 0, 1].into(),
            secure_port: self.port,
            ..Settings::default()
        };
        self.test_bed.control_plane(settings).unwrap()
    }

    /// Starts a control plane that makes its certificate itself.
    fn self_certified(&self) -> Task {
        let settings = Settings {
            webhook_certificate_names: "127.0.0.1".parse().unwrap(),
            bind_address: [127, 0, 0, 1].into(),
            secure_port: self.port,
            ..Settings::default()
        };
        self.test_bed.control_plane(settings).unwrap()
    }

    /// Waits until the fleet API gets answers about policies from a server that it trusts.
    async fn answered(&self) {
        let path = format!("{POLICIES}?dryRun=All");
        eventually("admission answers", async || {
            let answer = self.send("POST", &path, &policy(&json!({}))).await;
            let is_refused = answer["kind"] == "Status";
            (!is_refused)
                .then_some(())
                .ok_or_else(|| answer.to_string())
        })
        .await;
    }

    fn configurations(&self) -> String {
        CONFIGURATIONS
            .replace("URL", &format!("https://127.0.0.1:{}", self.port))
            .replace("CABUNDLE", &self.shown.bundle())
            .replace("EXEMPT", &EXEMPT.replace('"', "'"))
    }

    async fn configure(&self) {
        apply(&self.test_bed.client, &self.configurations())
            .await
            .unwrap();
    }

    /// Starts a control plane, and waits until its webhooks answer.
    async fn answering(&self) -> Task {
        let control_plane = self.control_plane();
        self.configure().await;
        self.answered().await;
        control_plane
    }

    /// Sends a request; the answer is the object or `Status`.
    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.send_as(&self.test_bed.client, method, path, body)
            .await
    }

    /// Sends a request by this client; the answer is the object or `Status`.
    async fn send_as(&self, client: &Client, method: &str, path: &str, body: &Value) -> Value {
        raw::send(client, &[], method, path, body).await.body
    }
}

fn policy(with: &Value) -> Value {
    let mut spec = json!({ "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }] });
    for (field, value) in with.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({ "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": { "name": "p" }, "spec": spec })
}

fn taint_policy(effect: &str) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": { "name": "t" },
        "spec": { "taintsToAdd": [{ "key": "failed", "effect": effect }] },
    })
}

fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
        "spec": { "syncMode": "Pull" },
    })
}

fn graceful(mode: &str) -> Value {
    policy(&json!({
        "propagateDeps": true,
        "failover": { "application": { "decisionConditions": { "tolerationSeconds": 5 }, "purgeMode": mode } },
    }))
}

#[tokio::test]
async fn nobody_who_answers_holds_up_policies_and_neither_clusters_nor_the_control_plane() {
    let stage = Stage::set("webhook-none").await;
    // From before admission was switched on.
    let old = stage.send("POST", POLICIES, &policy(&json!({}))).await;
    assert_eq!(old["metadata"]["name"], "p", "{old}");
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "a", "image": "i" }] } },
    } });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    stage.send("POST", deployments, &deployment).await;

    // Every webhook refuses when there is no answer; those of the chart leave clusters and bindings
    // alone.
    let mut configurations = objects(&stage.configurations()).unwrap();
    let clusters = cluster("m1");
    stage.configure().await;
    let refused = stage
        .send("POST", TAINT_POLICIES, &taint_policy("NoSchedule"))
        .await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(r#"failed calling webhook "policies.muster.io""#),
        "{refused}"
    );
    let made = stage.send("POST", CLUSTERS, &clusters).await;
    assert_eq!(made["metadata"]["name"], "m1", "{made}");
    for configuration in &mut configurations {
        for webhook in configuration.data["webhooks"].as_array_mut().unwrap() {
            webhook["failurePolicy"] = json!("Fail");
        }
    }
    apply_all(&stage.test_bed.client, configurations)
        .await
        .unwrap();
    let clusters = cluster("m2");
    let refused = stage.send("POST", CLUSTERS, &clusters).await;
    assert_eq!(refused["kind"], "Status", "{refused}");

    // The control plane serves nothing, and still marks the policy and makes the binding: it is
    // exempt.
    let settings = Settings::default();
    let _control_plane = stage.test_bed.control_plane(settings).unwrap();
    let bindings: Api<ResourceBinding> = Api::namespaced(stage.test_bed.client.clone(), "default");
    let what = "it is bound";
    until(&bindings, "web-deployment", what, |_| true).await;
}

#[tokio::test]
async fn a_certificate_of_its_own_is_trusted_and_made_anew_when_it_is_gone() {
    let stage = Stage::set("webhook-own").await;
    // As the chart renders them where nobody brings a certificate.
    let configurations = stage
        .configurations()
        .replace(&format!("      caBundle: {}\n", stage.shown.bundle()), "");
    assert!(!configurations.contains("caBundle"));
    apply(&stage.test_bed.client, &configurations)
        .await
        .unwrap();
    let _control_plane = stage.self_certified();
    stage.answered().await;
    let bad = policy(
        &json!({ "placement": { "clusterTolerations": [{ "key": "a", "operator": "Lt" }] } }),
    );
    let refused = stage.send("POST", POLICIES, &bad).await;
    assert_eq!(refused["code"], 403, "{refused}");

    let secrets: Api<Secret> = Api::namespaced(stage.test_bed.client.clone(), "karmada-system");
    let shown = |secret: &Secret| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get("tls.crt"))
            .cloned()
    };
    let first = secrets.get("muster-webhook-tls").await.unwrap();
    delete(&secrets, "muster-webhook-tls").await;
    until(
        &secrets,
        "muster-webhook-tls",
        "there is another certificate",
        |secret: &Secret| shown(secret).is_some() && shown(secret) != shown(&first),
    )
    .await;
    stage.answered().await;
}

/// Checks that an agent may change its Cluster: the policies for agents refuse a write that changes
/// taints or grades, whoever changed them.
#[tokio::test]
async fn an_agent_may_change_its_cluster_although_it_has_what_admission_would_write_otherwise() {
    let stage = Stage::set("webhook-agent").await;
    let client = &stage.test_bed.client;
    let account = access::admit_member(client, "m1").await.unwrap();
    let config = stage.test_bed.server.admin_kubeconfig().unwrap();
    let config = access::kubeconfig(client, config, &account).await.unwrap();
    let agent = Client::try_from(fleet::config(config).await.unwrap()).unwrap();
    // From before there was admission: a taint without a time, and grades that are not sorted.
    let mut old = cluster("m1");
    let taint = json!({ "key": "quarantine", "effect": "NoExecute" });
    old["spec"]["taints"] = json!([taint]);
    old["spec"]["resourceModels"] = json!([
        { "grade": 1, "ranges": [{ "name": "cpu", "min": "2", "max": "4" }] },
        { "grade": 0, "ranges": [{ "name": "cpu", "min": "0", "max": "2" }] },
    ]);
    let old = stage.send("POST", CLUSTERS, &old).await;
    // Of its controllers none that writes Clusters: another would date the taint first.
    let _control_plane = stage.control_plane_of("gracefulEviction");
    stage.configure().await;
    stage.answered().await;
    let own = format!("{CLUSTERS}/m1");
    let moved = json!({ "spec": { "region": "eu" } });
    let answer = stage.send_as(&agent, "PATCH", &own, &moved).await;
    assert_eq!(answer["spec"]["region"], "eu", "{answer}");
    assert_eq!(
        answer["spec"]["resourceModels"],
        old["spec"]["resourceModels"]
    );
    let taints = answer["spec"]["taints"].as_array().unwrap();
    assert!(taints.contains(&taint), "{answer}");

    // What a person writes is defaulted, and nothing beside it.
    let mut more = answer["spec"]["taints"].clone();
    let failed = json!({ "key": "failed", "effect": "NoExecute" });
    more.as_array_mut().unwrap().push(failed);
    let sorted = json!([{ "grade": 0, "ranges": [{ "name": "cpu", "min": "1", "max": "2" }] }]);
    let spec = json!({ "spec": { "taints": more, "resourceModels": sorted } });
    let answer = stage.send("PATCH", &own, &spec).await;
    let taints = answer["spec"]["taints"].as_array().unwrap();
    assert!(taints.contains(&taint), "{answer}");
    let dated = |it: &&Value| it["key"] == "failed" && it["timeAdded"].is_string();
    assert_eq!(taints.iter().filter(dated).count(), 1, "{answer}");
    let lowest = &answer["spec"]["resourceModels"][0]["ranges"][0]["min"];
    assert_eq!(lowest, "0", "{answer}");
}
