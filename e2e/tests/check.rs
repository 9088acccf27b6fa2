//! `kubectl muster check`: all green after an installation, and a line for each broken thing.

use std::path::Path;

use kube::config::Kubeconfig;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, delete, merge, merge_status};
use muster_e2e::harness::test_bed::{MemberApi, Scratch, Task, TestBed, eventually, until};
use muster_e2e::harness::{access, kubeconfig};
use muster_kubectl::Reply;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::k8s::{Api, ClusterRoleBinding, Deployment, Secret};
use serde_json::{Value, json};

use crate::support::kubectl;

/// Namespace of the agent in its member.
const NAMESPACE: &str = "muster-system";

/// Runs `kubectl muster check` with a kubeconfig.
async fn check(kubeconfig: &Path, words: &[&str]) -> Reply {
    let words = [&["check"], words].concat();
    kubectl::outcome(kubeconfig, &words).await.unwrap()
}

/// Returns the lines of checks with a mark, and the hints below them.
fn lines(text: &str, mark: &str) -> Vec<String> {
    let marked = text.split('\n').filter(|it| it.starts_with(mark));
    marked.map(str::to_owned).collect()
}

/// An installation: a fleet API, a control plane, and a member with its agent.
struct Fleet {
    bed: TestBed,
    member: MemberApi,
    control_plane: Option<Task>,
    agent: Option<Task>,
    /// The agent's access to the fleet.
    agents_access: Kubeconfig,
}

impl Fleet {
    async fn start(name: &str) -> Self {
        let bed = TestBed::fleet(name).await.unwrap();
        let member = MemberApi::start("m1").await.unwrap();
        let settings = Settings {
            feature_gates: "Failover=true".parse().unwrap(),
            cluster_monitor_grace_period: "3s".parse().unwrap(),
            ..Settings::default()
        };
        let control_plane = bed.elected_control_plane(settings).unwrap();
        let account = access::admit_member(&bed.client, "m1").await.unwrap();
        let administrator = bed.server.admin_kubeconfig().unwrap();
        let access = access::kubeconfig(&bed.client, administrator, &account).await;
        let access = access.unwrap();
        let to_fleet = bed.file("agent-fleet", &access).unwrap();
        let agent = bed.agent(&member, |settings| {
            settings.karmada_kubeconfig = Some(to_fleet);
            settings.cluster_lease_duration = "4s".parse().unwrap();
        });
        let agent = agent.await.unwrap();
        bed.ready("m1", "True").await;
        Self {
            bed,
            member,
            control_plane: Some(control_plane),
            agent: Some(agent),
            agents_access: access,
        }
    }

    async fn check(&self, words: &[&str]) -> Reply {
        check(&self.bed.administrator().unwrap(), words).await
    }

    /// Waits until the check has a line with these words.
    async fn says(&self, line: &str) -> Reply {
        eventually(line, async || {
            let answer = self.check(&[]).await;
            if answer.text.contains(line) {
                Ok(answer)
            } else {
                Err(answer.text)
            }
        })
        .await
    }

    /// Creates what the README has people apply: a taint policy, and an application with its
    /// policy.
    async fn place(&self) {
        let matched = json!([{"conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"]}]);
        let taint = json!([{"key": "example.com/failed", "effect": "PreferNoExecute"}]);
        let policy = json!({
            "metadata": {"name": "failed-clusters"},
            "spec": {"matchConditions": matched, "taintsToAdd": taint},
        });
        create::<ClusterTaintPolicy>(&self.bed.all(), policy).await;
        self.policy("web", "web").await;
        let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod},
        });
        create::<Deployment>(&self.bed.here(), deployment).await;
        let placed = |it: &ResourceBinding| !it.spec.clusters.is_empty();
        until::<ResourceBinding>(&self.bed.here(), "web-deployment", "it is placed", placed).await;
    }

    async fn policy(&self, name: &str, deployment: &str) {
        let policy = json!({
            "metadata": {"name": name},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}],
                "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
                "failover": {"cluster": {}},
            },
        });
        create::<PropagationPolicy>(&self.bed.here(), policy).await;
    }

    /// Creates the objects that the agent's chart makes in the member.
    async fn install_chart(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.member.client.clone(), NAMESPACE);
        let text = serde_json::to_string(&self.agents_access).unwrap();
        let secret = json!({"metadata": {"name": "muster-fleet-kubeconfig"}, "stringData": {"kubeconfig": text}});
        create(&secrets, secret).await;
        let labels = json!({"app.kubernetes.io/name": "muster-agent"});
        let container = json!({
            "name": "agent", "image": "muster-agent",
            "args": ["--karmada-kubeconfig=/etc/muster/fleet/kubeconfig", "--cluster-name=m1"],
            "volumeMounts": [{"name": "fleet", "mountPath": "/etc/muster/fleet"}],
        });
        let volume = json!({"name": "fleet", "secret": {"secretName": "muster-fleet-kubeconfig"}});
        let pod = json!({"serviceAccountName": "muster-agent", "containers": [container], "volumes": [volume]});
        let deployment = json!({
            "metadata": {"name": "muster-agent", "labels": labels},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        });
        let deployments: Api<Deployment> = Api::namespaced(self.member.client.clone(), NAMESPACE);
        create(&deployments, deployment).await;
        let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
        merge_status(&deployments, "muster-agent", status).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_installation_everything_is_green_and_each_broken_thing_has_its_line() {
    let mut fleet = Fleet::start("check").await;
    fleet.place().await;
    let green = eventually("all is green", async || {
        let answer = fleet.check(&["--strict"]).await;
        // What the agent says of itself may come a moment after the rest.
        let is_whole = ["versions", "credentials"]
            .iter()
            .all(|about| answer.text.contains(&format!("[ok] agent-{about}: ")));
        if answer.code == 0 && is_whole {
            Ok(answer.text)
        } else {
            Err(answer.text)
        }
    })
    .await;
    for line in [
        "[ok] answers: https://",
        "[ok] served: all 13 kinds are served",
        "[ok] definitions: they have every field",
        "[ok] control-plane-rights: the control plane has its rights",
        "[ok] leader: ",
        "[ok] pauses: movement is not paused",
        "[ok] control-plane-version: version ",
        "[ok] gates: Failover is on",
        "[ok] ready: m1 is ready",
        "[ok] agent-versions: 1 of version ",
        "[ok] agent-credentials: the first to end: m1 ",
        "[ok] agent-rights: the agent of m1 has its rights",
        "[ok] agent-clocks: 1 agree",
        "[ok] policies: each of 1 places something",
        "[ok] taint-policies: ",
        "[ok] taints: ",
        "[skipped] room: there is no other cluster",
        "[skipped] admission: ",
    ] {
        assert!(green.contains(line), "{line}: {green}");
    }
    assert!(green.is_ascii(), "{green}");
    println!("{green}");

    // For programs.
    let document = fleet.check(&["-o", "json"]).await;
    let document: Value = serde_json::from_str(&document.text).unwrap();
    assert_eq!(document["status"], "ok");
    assert_eq!(document["counts"]["error"], 0);
    let checks = document["checks"].as_array().unwrap();
    assert!(
        checks
            .iter()
            .any(|it| it["name"] == "leader" && it["status"] == "ok")
    );

    // Warnings: nothing fails.
    fleet.policy("idle", "nosuch").await;
    let answer = fleet.says("PropagationPolicy default/idle").await;
    assert!(answer.code == 0, "{}", answer.text);
    assert!(fleet.check(&["--strict"]).await.code == 1);
    let skipped = ["--strict", "--skip", "policies,policy-parts"];
    let skipped = fleet.check(&skipped).await;
    assert!(skipped.code == 0, "{}", skipped.text);
    let taint = json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}});
    merge(&fleet.bed.clusters(), "m1", taint).await;
    fleet
        .says("[warning] taints: m1 has the taint mine:NoExecute, which no policy set")
        .await;

    // Errors: an agent, and a control plane, that are gone.
    fleet.agent.take().unwrap().stop().await.unwrap();
    fleet.bed.ready("m1", "Unknown").await;
    let answer = fleet
        .says("[error] ready: m1: Ready is Unknown since")
        .await;
    assert!(answer.code == 1);
    assert!(
        answer
            .text
            .contains("    In the member: kubectl muster check --member"),
        "{}",
        answer.text
    );
    fleet.control_plane.take().unwrap().stop().await.unwrap();
    delete::<ClusterRoleBinding>(&fleet.bed.all(), "muster-control-plane").await;
    let answer = fleet
        .says("[error] control-plane-rights: the control plane (")
        .await;
    assert!(
        answer.text.contains("[error] leader: none leads"),
        "{}",
        answer.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_members_side_is_green_and_each_broken_thing_has_its_line() {
    let fleet = Fleet::start("check-member").await;
    let config = fleet.member.server.admin_kubeconfig().unwrap();
    let file = fleet.bed.file("asking", &config).unwrap();
    let before = check(&file, &["--member", "--pre"]).await;
    assert!(before.code == 0, "{}", before.text);
    assert!(before.text.contains("[ok] own-rights"), "{}", before.text);

    let bare = check(&file, &["--member"]).await;
    assert!(bare.code == 1, "{}", bare.text);
    assert!(
        bare.text.contains("[error] agent: no agent is installed"),
        "{}",
        bare.text
    );

    fleet.install_chart().await;
    let green = check(&file, &["--member", "--strict"]).await;
    assert!(green.code == 0, "{}", green.text);
    for line in [
        "[ok] agent: muster-agent: 2 of 2 replicas are ready",
        "[ok] agent-rights: ",
        "[ok] fleet-credentials: the agent's credentials: ",
        "[ok] clocks: ",
        "[ok] registered: the fleet knows this cluster as m1",
        "[ok] ready: m1 is ready",
    ] {
        assert!(green.text.contains(line), "{line}: {}", green.text);
    }
    println!("{}", green.text);

    // With the member itself in place of the fleet.
    let words = ["--member", "--fleet-kubeconfig", file.to_str().unwrap()];
    let wrong = check(&file, &words).await;
    assert!(
        wrong.text.contains("[error] another-cluster: "),
        "{}",
        wrong.text
    );
    assert!(
        wrong
            .text
            .contains("[error] registered: it is no fleet API"),
        "{}",
        wrong.text
    );

    // Of another cluster's name.
    let deployments: Api<Deployment> = Api::namespaced(fleet.member.client.clone(), NAMESPACE);
    let status = json!({"status": {"readyReplicas": 0}});
    merge_status(&deployments, "muster-agent", status).await;
    let gone = check(&file, &["--member"]).await;
    assert_eq!(lines(&gone.text, "[error]").len(), 1, "{}", gone.text);
    assert!(
        gone.text.contains("none of 2 replicas is ready"),
        "{}",
        gone.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn before_an_installation_an_empty_api_is_fit_and_no_fleet() {
    let empty = MemberApi::start("empty").await.unwrap();
    let scratch = Scratch::new("check-empty").unwrap();
    let config = empty.server.admin_kubeconfig().unwrap();
    let file = scratch.path().join("asking");
    kubeconfig::write(&config, &file).unwrap();
    for (words, line) in [
        (
            &["--pre"][..],
            "[ok] not-installed: no control plane is installed yet",
        ),
        (&["--pre", "--external"], "[ok] dedicated: "),
        (
            &["--pre", "--member"],
            "[ok] not-installed: no agent is there yet",
        ),
    ] {
        let answer = check(&file, words).await;
        assert!(answer.code == 0, "{}", answer.text);
        assert!(answer.text.contains(line), "{line}: {}", answer.text);
        println!("{}", answer.text);
    }
    let fleet = check(&file, &["--wait", "0s"]).await;
    assert!(fleet.code == 1);
    assert!(
        fleet
            .text
            .contains("[error] served: not served: clusters.cluster.karmada.io"),
        "{}",
        fleet.text
    );
    // Which definitions to apply depends on whose API it is, and both are said.
    for part in [
        "Do NOT apply all of",
        "muster-control-plane crds | kubectl apply --server-side -f -",
    ] {
        assert!(fleet.text.contains(part), "{part}: {}", fleet.text);
    }

    // Nothing listens there.
    let mut nowhere = config.clone();
    nowhere.clusters[0].cluster.as_mut().unwrap().server = Some("https://127.0.0.1:1".to_owned());
    kubeconfig::write(&nowhere, &file).unwrap();
    let answer = check(&file, &[]).await;
    assert_eq!(lines(&answer.text, "[error]").len(), 1, "{}", answer.text);
    assert!(answer.code == 1);
}
