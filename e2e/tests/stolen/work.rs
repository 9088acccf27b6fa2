//! What there is, and what an agent does with it.

use serde_json::{Value, json};

use crate::stolen::{Ask, CLUSTERS, OTHER, OWN, Stage};

const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";
pub(crate) const FAILOVERS: &str = "/apis/failover.muster.io/v1alpha1/failovers";
pub(crate) const RECORD: &str = "own-20260101-000000";

fn models() -> Value {
    json!([{"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "2"}]}])
}

/// Returns the request by which an agent registers.
pub(crate) fn registration() -> Ask {
    let own = format!("{CLUSTERS}/{OWN}");
    let body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": OWN},
        "spec": {
            "id": "own-id", "syncMode": "Pull", "apiEndpoint": "https://own:6443", "provider": "p", "region": "r", "zones": ["z"],
            "secretRef": {"namespace": "karmada-cluster", "name": OWN},
            "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": format!("{OWN}-impersonator")},
        },
    });
    Ask::apply("register", &own, body)
}

/// Creates the other member, Works of both, and what the control plane wrote about them.
pub(crate) async fn furnish(stage: &Stage) {
    let other = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": OTHER},
        "spec": {"syncMode": "Pull", "id": "other-id"},
    });
    stage
        .administer(Ask::post("register the other", CLUSTERS, other))
        .await;
    for member in [OWN, OTHER] {
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "name": "web", "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/keep"],
            },
            "spec": {"workload": {"manifests": []}},
        });
        let path = format!("{WORKS}/karmada-es-{member}/works");
        stage.administer(Ask::post("a Work", &path, work)).await;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": member}, "spec": {}});
        let path = format!("{LEASES}/karmada-cluster/leases");
        stage.administer(Ask::post("a lease", &path, lease)).await;
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{member}.told")},
            "involvedObject": {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": member},
            "reason": "TaintAdded", "message": "because", "type": "Normal", "count": 1,
            "source": {"component": "muster-control-plane"}, "reportingComponent": "muster-control-plane",
        });
        let events = "/api/v1/namespaces/default/events";
        stage.administer(Ask::post("an event", events, event)).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": OTHER}, "stringData": {"token": "t"}});
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    stage
        .administer(Ask::post("a Secret", secrets, secret))
        .await;
    let record = json!({
        "apiVersion": "failover.muster.io/v1alpha1", "kind": "Failover", "metadata": {"name": RECORD},
        "spec": {"cluster": OWN, "subject": "Cluster", "startTime": "2026-01-01T00:00:00Z"},
    });
    stage
        .administer(Ask::post("a record", FAILOVERS, record))
        .await;
    // A role that is too generous: only the policy keeps the history.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "generous"},
        "rules": [{"apiGroups": ["failover.muster.io"], "resources": ["failovers", "failovers/status"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "generous"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "generous"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    });
    for (path, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
        stage
            .administer(Ask::post("a generous role", &path, object))
            .await;
    }
}

/// Returns the requests that an agent makes, once for each of its identities.
#[expect(clippy::too_many_lines, reason = "a table, written out")]
pub(crate) fn of_an_agent(identity: &str) -> Vec<Ask> {
    let own = format!("{CLUSTERS}/{OWN}");
    let web = format!("{WORKS}/karmada-es-{OWN}/works/web");
    let lease = format!("{LEASES}/karmada-cluster/leases/{OWN}");
    let election = format!("{LEASES}/karmada-system/leases/karmada-agent-{OWN}");
    let secret = |name: &str| format!("/api/v1/namespaces/karmada-cluster/secrets/{name}");
    let impersonator = format!("{OWN}-impersonator");
    let beat = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}})
    };
    let credentials = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"karmada.io/system": "true"}},
            "stringData": {"token": "t"}})
    };
    let spec = |spec: Value| json!({ "spec": spec });
    let event = |name: &str, about: Value| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.{identity}")},
            "involvedObject": about, "reason": "SyncSucceed", "message": "well", "type": "Normal", "count": 1,
            "source": {"component": "muster-agent"}, "reportingComponent": "muster-agent"})
    };
    let about_own =
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": OWN});
    let about_work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "name": "web",
        "namespace": format!("karmada-es-{OWN}")});
    let events = |namespace: &str| format!("/api/v1/namespaces/{namespace}/events");
    let all_of = format!("{CLUSTERS}?fieldSelector=metadata.name%3D{OWN}");
    let keep = |more: &[&str]| {
        let list: Vec<&str> = ["example.com/keep"].iter().chain(more).copied().collect();
        json!({"metadata": {"finalizers": list}})
    };
    vec![
        registration(),
        Ask::get("see its Cluster", &own),
        Ask::get("list its Cluster", &all_of),
        Ask::get("watch its Cluster", &format!("{all_of}&watch=true")),
        Ask::merge(
            "say its region",
            &own,
            spec(json!({"region": format!("r-{identity}")})),
        ),
        Ask::merge(
            "say its provider",
            &own,
            spec(json!({"provider": format!("p-{identity}")})),
        ),
        Ask::merge(
            "say its zones",
            &own,
            spec(json!({"zones": ["z1", identity]})),
        ),
        Ask::merge(
            "say its address",
            &own,
            spec(json!({"apiEndpoint": format!("https://{identity}:6443")})),
        ),
        Ask::merge(
            "say its proxy",
            &own,
            spec(json!({"proxyURL": "https://proxy:8080"})),
        ),
        Ask::merge(
            "give grades where there are none",
            &own,
            spec(json!({"resourceModels": models()})),
        ),
        Ask::merge(
            "say the id that it has",
            &own,
            spec(json!({"id": "own-id"})),
        ),
        Ask::merge(
            "name its Secret",
            &own,
            spec(json!({"secretRef": {"namespace": "karmada-cluster", "name": OWN}})),
        ),
        Ask::merge(
            "report",
            &format!("{own}/status"),
            json!({"status": {"kubernetesVersion": format!("v1.34.0+{identity}")}}),
        ),
        Ask::apply("beat", &lease, beat(OWN)),
        Ask::merge(
            "beat again",
            &lease,
            spec(json!({"leaseDurationSeconds": 41})),
        ),
        Ask::apply(
            "stand for election",
            &election,
            beat(&format!("karmada-agent-{OWN}")),
        ),
        Ask::get("see the election", &election),
        Ask::get(
            "see its namespace",
            &format!("/api/v1/namespaces/karmada-es-{OWN}"),
        ),
        Ask::get("list its Works", &format!("{WORKS}/karmada-es-{OWN}/works")),
        Ask::get(
            "watch its Works",
            &format!("{WORKS}/karmada-es-{OWN}/works?watch=true"),
        ),
        Ask::merge(
            "promise to remove",
            &web,
            keep(&["karmada.io/execution-controller"]),
        ),
        Ask::merge(
            "report a Work",
            &format!("{web}/status"),
            json!({"status": {"conditions": [{
            "type": "Applied", "status": "True", "reason": identity, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        ),
        Ask::merge("let a Work go", &web, keep(&[])),
        Ask::post(
            "tell about its Cluster",
            &events("default"),
            event("own", about_own),
        ),
        Ask::merge(
            "tell it again",
            &format!("{}/own.{identity}", events("default")),
            json!({"count": 2}),
        ),
        Ask::post(
            "tell about a Work",
            &events(&format!("karmada-es-{OWN}")),
            event("web", about_work),
        ),
        Ask::apply("report credentials", &secret(OWN), credentials(OWN)),
        Ask::apply(
            "report the impersonator's",
            &secret(&impersonator),
            credentials(&impersonator),
        ),
        Ask::merge(
            "report new credentials",
            &secret(OWN),
            json!({"stringData": {"token": identity}}),
        ),
        Ask::get("see its credentials", &secret(OWN)),
    ]
}

/// Writes on the stolen Cluster what people and the control plane write there.
pub(crate) async fn quarantine(stage: &Stage) {
    let own = format!("{CLUSTERS}/{OWN}");
    let marks = json!({
        "metadata": {
            "labels": {"team": "a"}, "annotations": {"note": "seen", "taints.muster.io/record": "[]"},
            "finalizers": ["karmada.io/cluster-controller"],
        },
        "spec": {"taints": [{"key": "quarantine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
    });
    stage
        .administer(Ask::merge("quarantine", &own, marks))
        .await;
    let twin = json!({"status": {"conditions": [{"type": "UniqueIdentity", "status": "False", "reason": "RegisteredAlready",
        "message": "twice", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    stage
        .administer(Ask::merge("name the twin", &format!("{own}/status"), twin))
        .await;
}

/// Returns what no probe may change: the stolen Cluster but for its report, the other one, and the
/// Works of both.
pub(crate) async fn kept(stage: &Stage) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        format!("{CLUSTERS}/{OWN}"),
        format!("{CLUSTERS}/{OTHER}"),
        format!("{WORKS}/karmada-es-{OWN}/works/web"),
        format!("{WORKS}/karmada-es-{OTHER}/works/web"),
        format!("/api/v1/namespaces/default/events/{OTHER}.told"),
        format!("{LEASES}/karmada-cluster/leases/{OTHER}"),
        format!("{FAILOVERS}/{RECORD}"),
        format!("/api/v1/namespaces/karmada-cluster/secrets/{OTHER}"),
    ] {
        let mut object = stage.administer(Ask::get("look", &path)).await;
        object["metadata"]["managedFields"].take();
        object["metadata"]["resourceVersion"].take();
        all.push(object);
    }
    all
}
