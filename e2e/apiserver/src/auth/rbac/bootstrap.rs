//! The roles and bindings that every cluster begins with and that clients rely on: facts about
//! kube-apiserver 1.33.

use serde_json::{Value, json};

use super::GROUP;

/// Returns the objects, with their plurals. The rules of `admin`, `edit` and `view` are written out
/// instead of aggregated.
pub fn bootstrap() -> Vec<(&'static str, Value)> {
    let meta = |name: &str| json!({ "name": name, "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" } });
    let role = |name: &str, rules: Value| {
        let value = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": meta(name), "rules": rules,
        });
        ("clusterroles", value)
    };
    let bind = |name: &str, groups: &[&str]| {
        let subject = |g: &&str| json!({ "kind": "Group", "apiGroup": GROUP, "name": g });
        let value = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": meta(name),
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": name },
            "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
        });
        ("clusterrolebindings", value)
    };
    let everything = json!([
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ]);
    let discovery = json!([{ "verbs": ["get"], "nonResourceURLs":
        ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"] }]);
    let public = json!([{ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"] }]);
    let basic = json!([
        { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"] },
        { "verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"] },
    ]);
    let delegator = json!([
        { "verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"] },
        { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"] },
    ]);
    let issuer = json!([{ "verbs": ["get"], "nonResourceURLs": ["/.well-known/openid-configuration", "/openid/v1/jwks"] }]);
    let approver = |signer: &str| json!([{ "verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer] }]);
    vec![
        role("admin", admin()),
        role("edit", edit()),
        role("view", view()),
        role("system:auth-delegator", delegator),
        role("system:service-account-issuer-discovery", issuer),
        role(
            "system:certificates.k8s.io:kube-apiserver-client-approver",
            approver("kubernetes.io/kube-apiserver-client"),
        ),
        role(
            "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
            approver("kubernetes.io/kube-apiserver-client-kubelet"),
        ),
        role("cluster-admin", everything),
        role("system:discovery", discovery),
        role("system:public-info-viewer", public),
        role("system:basic-user", basic),
        bind("cluster-admin", &["system:masters"]),
        bind("system:discovery", &["system:authenticated"]),
        bind(
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
        bind("system:basic-user", &["system:authenticated"]),
    ]
}

/// What workloads consist of, by group. Plain settings first: they differ between the roles in who
/// sees secrets.
const WORKLOADS: [(&str, &[&str]); 8] = [
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "events",
            "persistentvolumeclaims",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
        ],
    ),
    (
        "apps",
        &[
            "daemonsets",
            "deployments",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
    ),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("coordination.k8s.io", &["leases"]),
];

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Returns the rules for reading whatever is no secret.
fn view() -> Value {
    let mut rules: Vec<Value> = WORKLOADS
        .iter()
        .filter(|(group, _)| *group != "coordination.k8s.io")
        .map(|(group, resources)| {
            let statuses = resources.iter().filter(|r| !r.contains('/'));
            let statuses = statuses.map(|r| format!("{r}/status"));
            let all: Vec<String> = resources
                .iter()
                .map(|r| (*r).to_owned())
                .chain(statuses)
                .collect();
            json!({ "verbs": READ, "apiGroups": [group], "resources": all })
        })
        .collect();
    let quotas = [
        "limitranges",
        "namespaces",
        "namespaces/status",
        "pods/log",
        "resourcequotas",
        "resourcequotas/status",
    ];
    rules.push(json!({ "verbs": READ, "apiGroups": [""], "resources": quotas }));
    rules.push(
        json!({ "verbs": READ, "apiGroups": ["apps"], "resources": ["controllerrevisions"] }),
    );
    rules.into()
}

/// Returns the rules for writing workloads and their secrets, and for acting as their accounts.
fn edit() -> Value {
    let Value::Array(mut rules) = view() else {
        return Value::Null;
    };
    let secrets = [
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "secrets",
        "services/proxy",
    ];
    rules.push(json!({ "verbs": READ, "apiGroups": [""], "resources": secrets }));
    rules.push(
        json!({ "verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"] }),
    );
    rules.push(json!({ "verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"] }));
    rules.push(json!({ "verbs": WRITE, "apiGroups": [""], "resources": secrets }));
    rules.push(
        json!({ "verbs": READ, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"] }),
    );
    for (group, resources) in WORKLOADS
        .iter()
        .filter(|(group, _)| *group != "discovery.k8s.io")
    {
        // Endpoints lead traffic, and are written by controllers alone.
        let resources: Vec<&&str> = resources.iter().filter(|r| **r != "endpoints").collect();
        rules.push(json!({ "verbs": WRITE, "apiGroups": [group], "resources": resources }));
    }
    rules.into()
}

/// Returns the rules for editing, and for saying who else may, within a namespace.
fn admin() -> Value {
    let Value::Array(mut rules) = edit() else {
        return Value::Null;
    };
    let all: Vec<&str> = READ.iter().chain(&WRITE).copied().collect();
    rules.push(json!({ "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"] }));
    rules.push(
        json!({ "verbs": all, "apiGroups": [GROUP], "resources": ["rolebindings", "roles"] }),
    );
    rules.into()
}
