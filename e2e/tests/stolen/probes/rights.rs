//! Who may do what: Secrets, identities, roles, admission, and the record of events.

use serde_json::{Value, json};

use super::{metadata, spec};
use crate::stolen::work::{FAILOVERS, RECORD};
use crate::stolen::{Ask, CLUSTERS, OTHER, OWN};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CORE: &str = "/api/v1/namespaces";

pub(super) fn secrets() -> Vec<Ask> {
    let secrets = |namespace: &str| format!("{CORE}/{namespace}/secrets");
    let cluster = secrets("karmada-cluster");
    let (own, other) = (format!("{cluster}/{OWN}"), format!("{cluster}/{OTHER}"));
    let secret = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}}})
    };
    let owned = |name: &str| {
        metadata(json!({"ownerReferences": [
        {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": name, "uid": "u"}]}))
    };
    let token = "kubernetes.io/service-account-token";
    vec![
        Ask::get("Secrets: list", &cluster),
        Ask::get("Secrets: watch", &format!("{cluster}?watch=true")),
        Ask::get("Secrets: see another's", &other),
        Ask::merge(
            "Secrets: change another's",
            &other,
            json!({"stringData": {"token": "x"}}),
        ),
        Ask::apply("Secrets: apply another's", &other, secret(OTHER, "Opaque")),
        Ask::delete("Secrets: delete another's", &other),
        Ask::merge(
            "Secrets: have a token written",
            &own,
            json!({"type": token}),
        ),
        Ask::apply("Secrets: apply one for a token", &own, secret(OWN, token)),
        Ask::post(
            "Secrets: make one for a token",
            &cluster,
            secret("stolen-token", token),
        ),
        Ask::merge("Secrets: give its own to another", &own, owned(OTHER)),
        Ask::post(
            "Secrets: make one elsewhere",
            &secrets("default"),
            secret(OWN, "Opaque"),
        ),
        Ask::post(
            "Secrets: make a bootstrap token",
            &secrets("kube-system"),
            secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token"),
        ),
        Ask::get("Secrets: see the bootstrap tokens", &secrets("kube-system")),
        Ask::get("Secrets: list everybody's", "/api/v1/secrets"),
    ]
}

pub(super) fn identities() -> Vec<Ask> {
    let accounts = |namespace: &str| format!("{CORE}/{namespace}/serviceaccounts");
    let system = accounts("karmada-system");
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let review = |group: &str, kind: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": ""}]}});
    let own = format!("{CLUSTERS}/{OWN}");
    vec![
        Ask::post(
            "tokens: the control plane's",
            &format!("{system}/muster-control-plane/token"),
            token.clone(),
        ),
        Ask::post(
            "tokens: another agent's",
            &format!("{system}/muster-agent-{OTHER}/token"),
            token.clone(),
        ),
        Ask::post(
            "tokens: its own, again",
            &format!("{system}/muster-agent-{OWN}/token"),
            token.clone(),
        ),
        Ask::post(
            "tokens: of kube-system",
            &format!("{}/default/token", accounts("kube-system")),
            token,
        ),
        Ask::post(
            "accounts: make one",
            &system,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}),
        ),
        Ask::get("accounts: list", &system),
        Ask::post(
            "reviews: whose token is it",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            review(
                "authentication.k8s.io",
                "TokenReview",
                json!({"token": "x"}),
            ),
        ),
        Ask::post(
            "reviews: what may others",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            review(
                "authorization.k8s.io",
                "SubjectAccessReview",
                json!({"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}),
            ),
        ),
        Ask::get("requests: list", CSRS),
        Ask::delete("requests: delete all", CSRS),
        Ask::merge(
            "requests: approve one",
            &format!("{CSRS}/x/approval"),
            approved.clone(),
        ),
        Ask::put(
            "requests: approve one by update",
            &format!("{CSRS}/x/approval"),
            approved.clone(),
        ),
        Ask::merge("requests: sign one", &format!("{CSRS}/x/status"), approved),
        Ask::get("be an administrator", &own).header("impersonate-user", "admin"),
        Ask::get("be the control plane", &own).header(
            "impersonate-user",
            "system:serviceaccount:karmada-system:muster-control-plane",
        ),
        Ask::get("be of the group of administrators", &own)
            .header("impersonate-user", &format!("system:karmada:agent:{OWN}"))
            .header("impersonate-group", "system:masters"),
        Ask::get("be another agent", &own)
            .header("impersonate-user", &format!("system:karmada:agent:{OTHER}")),
    ]
}

pub(super) fn rights() -> Vec<Ask> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = |kind: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": format!("muster-agent-{OWN}"), "namespace": "karmada-system"}]})
    };
    let all = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let own = format!("muster:agent:{OWN}");
    vec![
        Ask::post("rights: make a role", &format!("{RBAC}/clusterroles"), role),
        Ask::post(
            "rights: be bound to all",
            &format!("{RBAC}/clusterrolebindings"),
            binding("ClusterRoleBinding"),
        ),
        Ask::post(
            "rights: be bound in its namespace",
            &format!("{RBAC}/namespaces/karmada-es-{OWN}/rolebindings"),
            binding("RoleBinding"),
        ),
        Ask::merge(
            "rights: widen its role",
            &format!("{RBAC}/clusterroles/{own}"),
            all.clone(),
        ),
        Ask::merge(
            "rights: widen its role in its namespace",
            &format!("{RBAC}/namespaces/karmada-es-{OWN}/roles/muster:agent"),
            all,
        ),
        Ask::get("rights: list roles", &format!("{RBAC}/clusterroles")),
        Ask::get(
            "rights: list bindings",
            &format!("{RBAC}/clusterrolebindings"),
        ),
        Ask::delete(
            "rights: delete another's",
            &format!("{RBAC}/clusterrolebindings/muster:agent:{OTHER}"),
        ),
        Ask::delete(
            "rights: delete the control plane's",
            &format!("{RBAC}/clusterrolebindings/muster-control-plane"),
        ),
    ]
}

pub(super) fn admission() -> Vec<Ask> {
    let policy = "clusters.agents.muster.io";
    let webhook = |kind: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "webhooks": []});
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    vec![
        Ask::delete(
            "admission: delete the policy",
            &format!("{ADMISSION}/validatingadmissionpolicies/{policy}"),
        ),
        Ask::delete(
            "admission: delete its binding",
            &format!("{ADMISSION}/validatingadmissionpolicybindings/{policy}"),
        ),
        Ask::merge(
            "admission: loosen the policy",
            &format!("{ADMISSION}/validatingadmissionpolicies/{policy}"),
            spec(json!({"failurePolicy": "Ignore"})),
        ),
        Ask::merge(
            "admission: loosen its binding",
            &format!("{ADMISSION}/validatingadmissionpolicybindings/{policy}"),
            spec(json!({"validationActions": ["Audit"]})),
        ),
        Ask::get(
            "admission: see the policy",
            &format!("{ADMISSION}/validatingadmissionpolicies/{policy}"),
        ),
        Ask::post(
            "admission: be asked before writes",
            &format!("{ADMISSION}/validatingwebhookconfigurations"),
            webhook("ValidatingWebhookConfiguration"),
        ),
        Ask::post(
            "admission: change writes",
            &format!("{ADMISSION}/mutatingwebhookconfigurations"),
            webhook("MutatingWebhookConfiguration"),
        ),
        Ask::merge(
            "definitions: loosen a schema",
            &format!("{definition}/clusters.cluster.karmada.io"),
            spec(json!({"scope": "Cluster"})),
        ),
        Ask::delete(
            "definitions: delete one",
            &format!("{definition}/works.work.karmada.io"),
        ),
        Ask::get("definitions: list", definition),
        Ask::post(
            "serve an API",
            "/apis/apiregistration.k8s.io/v1/apiservices",
            json!({"apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService", "metadata": {"name": "v1.x"}, "spec": {"group": "x", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}),
        ),
    ]
}

pub(super) fn history() -> Vec<Ask> {
    let own = format!("{FAILOVERS}/{RECORD}");
    let record = json!({
        "apiVersion": "failover.muster.io/v1alpha1", "kind": "Failover", "metadata": {"name": "invented"},
        "spec": {"cluster": OTHER, "subject": "Cluster", "startTime": "2026-01-01T00:00:00Z"},
    });
    let status = json!({"status": {"state": "Ended", "cause": {"type": "Drain"}, "times": {},
        "workloads": {"affected": 0, "moved": 0, "healthy": 0, "stranded": 0, "strandedNow": 0}}});
    vec![
        Ask::post("history: invent a failover", FAILOVERS, record),
        Ask::merge(
            "history: rewrite a failover of its own",
            &format!("{own}/status"),
            status,
        ),
        Ask::merge(
            "history: mark a failover of its own",
            &own,
            json!({"metadata": {"annotations": {"seen": "never"}}}),
        ),
        Ask::delete("history: delete a failover of its own", &own),
    ]
}

pub(super) fn events() -> Vec<Ask> {
    let events = |namespace: &str| format!("{CORE}/{namespace}/events");
    let about = |kind: &str, name: &str| json!({"apiVersion": "x/v1", "kind": kind, "name": name});
    let event = |name: &str, about: Value, component: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about, "reason": "Evicted",
            "message": "m", "type": "Normal", "count": 1, "source": {"component": component}, "reportingComponent": component})
    };
    let (default, agent, control_plane) =
        (events("default"), "muster-agent", "muster-control-plane");
    let told = |member: &str| format!("{}/{member}.told", events("default"));
    vec![
        Ask::merge(
            "events: rewrite one about another",
            &told(OTHER),
            json!({"message": "nothing happened"}),
        ),
        Ask::merge(
            "events: rewrite the control plane's about itself",
            &told(OWN),
            json!({"message": "nothing happened"}),
        ),
        Ask::merge(
            "events: count up the control plane's about itself",
            &told(OWN),
            json!({"count": 9}),
        ),
        Ask::merge(
            "events: rewrite its own",
            &format!("{default}/own.account"),
            json!({"message": "something else"}),
        ),
        Ask::merge(
            "events: turn its own to another",
            &format!("{default}/own.account"),
            json!({"involvedObject": {"name": OTHER}}),
        ),
        Ask::apply(
            "events: apply one over another's",
            &told(OTHER),
            event(&format!("{OTHER}.told"), about("Cluster", OTHER), agent),
        ),
        Ask::post(
            "events: tell about another",
            &default,
            event("x1", about("Cluster", OTHER), agent),
        ),
        Ask::post(
            "events: speak for the control plane",
            &default,
            event("x2", about("Cluster", OWN), control_plane),
        ),
        Ask::post(
            "events: tell about a binding",
            &default,
            event("x3", about("ClusterResourceBinding", "x"), agent),
        ),
        Ask::post(
            "events: tell about a workload",
            &default,
            event("x4", about("Deployment", "web"), agent),
        ),
        Ask::post(
            "events: tell elsewhere",
            &events("kube-system"),
            event("x5", about("Pod", "x"), agent),
        ),
        Ask::post(
            "events: tell in another's namespace",
            &events(&format!("karmada-es-{OTHER}")),
            event("x6", about("Work", "web"), agent),
        ),
        Ask::delete("events: delete one", &told(OTHER)),
        Ask::delete("events: delete all", &default),
        Ask::get("events: list", &default),
        Ask::put(
            "events: replace one",
            &told(OTHER),
            event(&format!("{OTHER}.told"), about("Cluster", OTHER), agent),
        ),
    ]
}

pub(super) fn the_rest() -> Vec<Ask> {
    let own = format!("{CORE}/karmada-es-{OWN}");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
    vec![
        Ask::get("namespaces: list", CORE),
        Ask::get(
            "namespaces: see another's",
            &format!("{CORE}/karmada-es-{OTHER}"),
        ),
        Ask::post(
            "namespaces: make one",
            CORE,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-new"}}),
        ),
        Ask::delete("namespaces: delete its own", &own),
        Ask::merge(
            "namespaces: label its own",
            &own,
            metadata(json!({"labels": {"a": "b"}})),
        ),
        Ask::merge(
            "namespaces: say what the fleet is",
            &format!("{CORE}/karmada-cluster"),
            metadata(json!({"annotations": {"fleet.muster.io/former-ids": "other"}})),
        ),
        Ask::merge(
            "cluster-info: change it",
            &format!("{CORE}/kube-public/configmaps/cluster-info"),
            json!({"data": {"kubeconfig": "x"}}),
        ),
        Ask::post(
            "templates: make one",
            &format!("{CORE}/default/configmaps"),
            map("x"),
        ),
        Ask::get(
            "templates: list Secrets",
            &format!("{CORE}/default/secrets"),
        ),
        Ask::get("templates: list workloads", "/apis/apps/v1/deployments"),
        Ask::merge(
            "templates: change one",
            "/apis/apps/v1/namespaces/default/deployments/web",
            spec(json!({"replicas": 9})),
        ),
        Ask::post(
            "pods: run one",
            &format!("{CORE}/default/pods"),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "a", "image": "a"}]}}),
        ),
        Ask::get("nodes: list", "/api/v1/nodes"),
        // It reads customizations, whose scripts it runs, and webhooks, which it asks.
        Ask::post(
            "interpretation: change who is asked",
            "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations",
            json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
                "metadata": {"name": "x"}, "webhooks": []}),
        ),
        Ask::post(
            "interpretation: change it",
            "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
            json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization", "metadata": {"name": "x"},
                "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": {}}}),
        ),
    ]
}
