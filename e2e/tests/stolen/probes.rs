//! What is tried: each of these has to be refused.

#![expect(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of probes, written out"
)]

use serde_json::{Value, json};

use crate::{Ask, CLUSTERS, OTHER, OWN};

const WORK: &str = "/apis/work.karmada.io";
const POLICY: &str = "/apis/policy.karmada.io/v1alpha1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CORE: &str = "/api/v1/namespaces";

/// All probes.
pub(crate) fn all() -> Vec<Ask> {
    [
        own_cluster(),
        other_clusters(),
        works(),
        bindings_and_policies(),
        leases(),
        secrets(),
        identities(),
        rights(),
        admission(),
        events(),
        the_rest(),
    ]
    .concat()
}

/// Those that an agent's role allows, so that only a policy can refuse them: changes of what it may write. The id of a Cluster, which
/// the definition keeps from everybody, is not among them.
pub(crate) fn of_policies() -> Vec<Ask> {
    let mut all = [own_cluster(), works(), events()].concat();
    all.retain(|ask| {
        let id = ask.what.ends_with(" id") || ask.what.contains("the id");
        let own = [
            "own Cluster",
            "own Work:",
            "events: rewrite",
            "events: count",
        ];
        !id && ask.method == "PATCH"
            && !ask.path.contains('?')
            && own.iter().any(|it| ask.what.starts_with(it))
    });
    all
}

fn metadata(metadata: Value) -> Value {
    json!({ "metadata": metadata })
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

fn own_cluster() -> Vec<Ask> {
    let own = format!("{CLUSTERS}/{OWN}");
    let status = format!("{own}/status");
    let merge = |what: &str, body: Value| Ask::merge(&format!("own Cluster: {what}"), &own, body);
    let secret = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name});
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    let twin = |status: &str| {
        json!({"status": {"conditions": [{"type": "UniqueIdentity", "status": status, "reason": "a", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    };
    let whole = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": OWN, "labels": {"tier": "gold"}}, "spec": {"syncMode": "Push"}});
    vec![
        merge(
            "draw workloads by a label",
            metadata(json!({"labels": {"tier": "gold"}})),
        ),
        merge(
            "take a label off",
            metadata(json!({"labels": {"team": null}})),
        ),
        merge("take all labels off", metadata(json!({"labels": null}))),
        merge("change a label", metadata(json!({"labels": {"team": "b"}}))),
        merge(
            "add an annotation",
            metadata(json!({"annotations": {"x": "y"}})),
        ),
        merge(
            "forge the record of taints",
            metadata(json!({"annotations": {"taints.muster.io/record": "[{}]"}})),
        ),
        merge(
            "take an annotation off",
            metadata(json!({"annotations": {"note": null}})),
        ),
        merge(
            "fix its location",
            metadata(json!({"annotations": {"failover.muster.io/fixed-location": "true"}})),
        ),
        merge("take finalizers off", metadata(json!({"finalizers": null}))),
        merge("empty its finalizers", metadata(json!({"finalizers": []}))),
        merge(
            "add a finalizer",
            metadata(json!({"finalizers": ["karmada.io/cluster-controller", "example.com/stay"]})),
        ),
        merge(
            "get an owner",
            metadata(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]})),
        ),
        merge("lift the quarantine", spec(json!({"taints": null}))),
        merge("empty its taints", spec(json!({"taints": []}))),
        merge(
            "change its taints",
            spec(json!({"taints": taint("quarantine")})),
        ),
        merge(
            "add a taint",
            spec(json!({"taints": [
            {"key": "quarantine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, {"key": "more", "effect": "NoSchedule"}]})),
        ),
        merge("be pushed to", spec(json!({"syncMode": "Push"}))),
        merge("take another's id", spec(json!({"id": "other-id"}))),
        merge("take a new id", spec(json!({"id": "new-id"}))),
        merge("forget its id", spec(json!({"id": null}))),
        merge("empty its id", spec(json!({"id": ""}))),
        merge(
            "use another's Secret",
            spec(json!({"secretRef": secret("karmada-cluster", OTHER)})),
        ),
        merge(
            "use a Secret elsewhere",
            spec(json!({"secretRef": secret("kube-system", OWN)})),
        ),
        merge(
            "use another's Secret at an address of its own",
            spec(json!({
            "secretRef": secret("karmada-cluster", OTHER), "apiEndpoint": "https://evil:6443"})),
        ),
        merge(
            "use another's impersonator",
            spec(
                json!({"impersonatorSecretRef": secret("karmada-cluster", &format!("{OTHER}-impersonator"))}),
            ),
        ),
        merge(
            "use the administrator's Secret as impersonator",
            spec(json!({"impersonatorSecretRef": secret("karmada-cluster", OWN)})),
        ),
        merge(
            "set headers of a proxy",
            spec(json!({"proxyHeader": {"authorization": "x"}})),
        ),
        merge(
            "replace its grades",
            spec(
                json!({"resourceModels": [{"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "64"}]}]}),
            ),
        ),
        merge("give its grades up", spec(json!({"resourceModels": null}))),
        merge(
            "hide a label behind a region",
            json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"region": "r2"}}),
        ),
        merge(
            "hide a taint behind a region",
            spec(json!({"region": "r2", "taints": null})),
        ),
        Ask::json(
            "own Cluster: a label by JSON patch",
            &own,
            json!([{"op": "add", "path": "/metadata/labels/tier", "value": "gold"}]),
        ),
        Ask::json(
            "own Cluster: taints by JSON patch",
            &own,
            json!([{"op": "remove", "path": "/spec/taints"}]),
        ),
        Ask::json(
            "own Cluster: the id by JSON patch",
            &own,
            json!([{"op": "replace", "path": "/spec/id", "value": "other-id"}]),
        ),
        Ask::apply("own Cluster: a label by apply", &own, whole.clone()),
        Ask::apply(
            "own Cluster: a taint by apply",
            &own,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": OWN}, "spec": {"syncMode": "Pull", "id": "own-id", "taints": taint("x")}}),
        ),
        Ask::put("own Cluster: replace it", &own, whole),
        Ask::delete("own Cluster: delete it", &own),
        Ask::merge("own Cluster: deny the twin", &status, twin("True")),
        Ask::merge(
            "own Cluster: forget the twin",
            &status,
            json!({"status": {"conditions": []}}),
        ),
        Ask::merge(
            "own Cluster: forget its status",
            &status,
            json!({"status": null}),
        ),
        Ask::put("own Cluster: replace its status", &status, twin("True")),
    ]
}

fn other_clusters() -> Vec<Ask> {
    let other = format!("{CLUSTERS}/{OTHER}");
    let cluster = |name: &str| json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    vec![
        Ask::get("clusters: list all", CLUSTERS),
        Ask::get("clusters: watch all", &format!("{CLUSTERS}?watch=true")),
        Ask::get("clusters: see another", &other),
        Ask::get(
            "clusters: watch another",
            &format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name%3D{OTHER}"),
        ),
        Ask::merge(
            "clusters: taint another",
            &other,
            spec(json!({"taints": [{"key": "x", "effect": "NoExecute"}]})),
        ),
        Ask::merge(
            "clusters: label another",
            &other,
            metadata(json!({"labels": {"a": "b"}})),
        ),
        Ask::merge(
            "clusters: say another is ill",
            &format!("{other}/status"),
            json!({"status": {"conditions": []}}),
        ),
        Ask::apply("clusters: apply another", &other, cluster(OTHER)),
        Ask::delete("clusters: delete another", &other),
        Ask::delete("clusters: delete all", CLUSTERS),
        Ask::post("clusters: bring a new one", CLUSTERS, cluster("stolen-new")),
        Ask::apply(
            "clusters: apply a new one",
            &format!("{CLUSTERS}/stolen-new"),
            cluster("stolen-new"),
        ),
        Ask::post(
            "clusters: bring one of a generated name",
            CLUSTERS,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster", "metadata": {"generateName": "stolen-"}, "spec": {"syncMode": "Pull"}}),
        ),
    ]
}

fn works() -> Vec<Ask> {
    let works = |member: &str| format!("{WORK}/v1alpha1/namespaces/karmada-es-{member}/works");
    let (own, other) = (
        format!("{}/web", works(OWN)),
        format!("{}/web", works(OTHER)),
    );
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}});
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "new"},
        "spec": {"workload": {"manifests": [manifest]}}});
    let merge = |what: &str, body: Value| Ask::merge(&format!("own Work: {what}"), &own, body);
    vec![
        merge(
            "say something else",
            spec(json!({"workload": {"manifests": [manifest]}})),
        ),
        merge("suspend it", spec(json!({"suspendDispatching": true}))),
        merge(
            "keep its objects",
            spec(json!({"preserveResourcesOnDeletion": true})),
        ),
        merge(
            "label it",
            metadata(json!({"labels": {"work.karmada.io/permanent-id": "other"}})),
        ),
        merge("take its labels off", metadata(json!({"labels": null}))),
        merge(
            "annotate it",
            metadata(json!({"annotations": {"resourcebinding.karmada.io/name": "another's"}})),
        ),
        merge(
            "take another's finalizer off",
            metadata(json!({"finalizers": []})),
        ),
        merge(
            "add a finalizer",
            metadata(json!({"finalizers": ["example.com/keep", "example.com/stay"]})),
        ),
        merge(
            "get an owner",
            metadata(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]})),
        ),
        Ask::put("own Work: replace it", &own, work.clone()),
        Ask::delete("own Work: delete it", &own),
        Ask::delete("own Works: delete all", &works(OWN)),
        Ask::post("own Works: make one", &works(OWN), work.clone()),
        Ask::apply(
            "own Works: apply one",
            &format!("{}/new", works(OWN)),
            work.clone(),
        ),
        Ask::get("Works: see another's", &other),
        Ask::get("Works: list another's", &works(OTHER)),
        Ask::get(
            "Works: watch another's",
            &format!("{}?watch=true", works(OTHER)),
        ),
        Ask::get("Works: list everybody's", &format!("{WORK}/v1alpha1/works")),
        Ask::merge(
            "Works: change another's",
            &other,
            spec(json!({"suspendDispatching": true})),
        ),
        Ask::merge(
            "Works: let another's go",
            &other,
            metadata(json!({"finalizers": null})),
        ),
        Ask::merge(
            "Works: report another's",
            &format!("{other}/status"),
            json!({"status": {"conditions": []}}),
        ),
        Ask::delete("Works: delete another's", &other),
        Ask::post("Works: make another's", &works(OTHER), work),
    ]
}

fn bindings_and_policies() -> Vec<Ask> {
    let bindings = format!("{WORK}/v1alpha2/namespaces/default/resourcebindings");
    let selector = json!([{"apiVersion": "v1", "kind": "Secret"}]);
    let policy = |kind: &str| {
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": {"name": "x"},
            "spec": {"resourceSelectors": selector, "placement": {"clusterAffinity": {"clusterNames": [OWN]}}}})
    };
    let taints = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": {"name": "x"},
        "spec": {"taintsToAdd": [{"key": "a", "effect": "NoExecute"}]}});
    vec![
        Ask::get("bindings: list", &bindings),
        Ask::get(
            "bindings: list everybody's",
            &format!("{WORK}/v1alpha2/resourcebindings"),
        ),
        Ask::post(
            "bindings: make one",
            &bindings,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "x"}, "spec": {"resource": {"apiVersion": "v1", "kind": "Secret", "name": "x", "namespace": "default"},
            "clusters": [{"name": OWN}]}}),
        ),
        Ask::merge(
            "bindings: change one",
            &format!("{bindings}/x"),
            spec(json!({"clusters": [{"name": OWN}]})),
        ),
        Ask::delete("bindings: delete all", &bindings),
        Ask::get(
            "cluster bindings: list",
            &format!("{WORK}/v1alpha2/clusterresourcebindings"),
        ),
        Ask::get("policies: list", &format!("{POLICY}/propagationpolicies")),
        Ask::post(
            "policies: draw Secrets",
            &format!("{POLICY}/namespaces/default/propagationpolicies"),
            policy("PropagationPolicy"),
        ),
        Ask::post(
            "policies: draw everybody's Secrets",
            &format!("{POLICY}/clusterpropagationpolicies"),
            policy("ClusterPropagationPolicy"),
        ),
        Ask::post(
            "policies: taint everybody",
            &format!("{POLICY}/clustertaintpolicies"),
            taints,
        ),
        Ask::delete(
            "policies: delete those of taints",
            &format!("{POLICY}/clustertaintpolicies"),
        ),
    ]
}

fn leases() -> Vec<Ask> {
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
    let held = spec(json!({"holderIdentity": "x"}));
    let (cluster, system) = (leases("karmada-cluster"), leases("karmada-system"));
    vec![
        Ask::merge(
            "leases: beat for another",
            &format!("{cluster}/{OTHER}"),
            held.clone(),
        ),
        Ask::apply(
            "leases: apply another's",
            &format!("{cluster}/{OTHER}"),
            lease(OTHER),
        ),
        Ask::delete("leases: delete another's", &format!("{cluster}/{OTHER}")),
        Ask::delete("leases: delete its own", &format!("{cluster}/{OWN}")),
        Ask::post("leases: make one", &cluster, lease("stolen-new")),
        Ask::get("leases: list", &cluster),
        Ask::get("leases: see another's", &format!("{cluster}/{OTHER}")),
        Ask::merge(
            "leases: lead the control plane",
            &format!("{system}/muster-control-plane"),
            held.clone(),
        ),
        Ask::apply(
            "leases: lead the control plane by apply",
            &format!("{system}/muster-control-plane"),
            lease("muster-control-plane"),
        ),
        Ask::apply(
            "leases: lead another's agents",
            &format!("{system}/karmada-agent-{OTHER}"),
            lease(&format!("karmada-agent-{OTHER}")),
        ),
        Ask::merge(
            "leases: lead the controllers",
            &format!("{}/kube-controller-manager", leases("kube-system")),
            held,
        ),
        Ask::post("leases: make one elsewhere", &leases("default"), lease(OWN)),
    ]
}

fn secrets() -> Vec<Ask> {
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
        Ask::delete("Secrets: delete its own", &own),
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

fn identities() -> Vec<Ask> {
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

fn rights() -> Vec<Ask> {
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

fn admission() -> Vec<Ask> {
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

fn events() -> Vec<Ask> {
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

fn the_rest() -> Vec<Ask> {
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
        Ask::get(
            "interpretation: list",
            "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
        ),
        Ask::post(
            "interpretation: change it",
            "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
            json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization", "metadata": {"name": "x"},
                "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": {}}}),
        ),
    ]
}
