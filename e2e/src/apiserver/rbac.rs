//! Role-based access control over the stored roles and bindings.

use serde_json::{Value, json};

use super::authorize::Attributes;
use super::identity::User;
use super::server::Server;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A binding that applies to the user, with the rules of its role.
struct Grant {
    rules: Vec<Value>,
    reason: String,
}

/// Why the user may do it, if a binding says so.
pub fn grant(server: &Server, user: &User, attributes: &Attributes) -> Option<String> {
    let applicable = grants(server, user, &attributes.namespace);
    applicable.into_iter().find_map(|grant| {
        grant
            .rules
            .iter()
            .any(|rule| allows(rule, attributes))
            .then_some(grant.reason)
    })
}

/// The `status` of a SelfSubjectRulesReview.
pub fn rules(server: &Server, user: &User, namespace: &str) -> Value {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in grants(server, user, namespace)
        .into_iter()
        .flat_map(|g| g.rules)
    {
        if rule["nonResourceURLs"].is_array() {
            paths.push(rule);
        } else {
            resources.push(rule);
        }
    }
    json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false })
}

fn all(server: &Server, plural: &str, prefix: &str) -> Vec<Value> {
    let collection = server.store.collection(&format!("{GROUP}/{plural}"));
    let scan = super::store::Scan {
        prefix,
        ..Default::default()
    };
    collection.scan(scan, |_| true).map_or_else(
        |_| Vec::new(),
        |p| p.objects.iter().map(|o| o.value()).collect(),
    )
}

fn grants(server: &Server, user: &User, namespace: &str) -> Vec<Grant> {
    let mut grants = Vec::new();
    let mut bindings = all(server, "clusterrolebindings", "");
    if !namespace.is_empty() {
        bindings.extend(all(server, "rolebindings", &format!("{namespace}/")));
    }
    for binding in bindings {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let own = binding["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let Some(subject) = subjects.into_iter().find(|s| is_subject(s, user, own)) else {
            continue;
        };
        let role = &binding["roleRef"];
        let name = role["name"].as_str().unwrap_or_default();
        let (plural, key) = if role["kind"] == "Role" {
            ("roles", format!("{own}/{name}"))
        } else {
            ("clusterroles", name.to_owned())
        };
        let Some(found) = server
            .store
            .collection(&format!("{GROUP}/{plural}"))
            .get(&key)
        else {
            continue;
        };
        let rules = found.value()["rules"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let kind = binding["kind"].as_str().unwrap_or_default();
        let binding_name = binding["metadata"]["name"].as_str().unwrap_or_default();
        let slash = if own.is_empty() {
            String::new()
        } else {
            format!("/{own}")
        };
        let subject_kind = subject["kind"].as_str().unwrap_or_default();
        let subject_name = subject["name"].as_str().unwrap_or_default();
        let subject = if subject_kind == "ServiceAccount" {
            let namespace = subject["namespace"].as_str().unwrap_or(own);
            format!("{subject_kind} \"{subject_name}/{namespace}\"")
        } else {
            format!("{subject_kind} {subject_name:?}")
        };
        let role_kind = role["kind"].as_str().unwrap_or_default();
        let reason = format!(
            "RBAC: allowed by {kind} \"{binding_name}{slash}\" of {role_kind} {name:?} to {subject}"
        );
        grants.push(Grant { rules, reason });
    }
    grants
}

fn is_subject(subject: &Value, user: &User, binding_namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => name == user.name,
        Some("Group") => user.is_in(name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

/// Whether a rule covers what is wanted.
fn allows(rule: &Value, wanted: &Attributes) -> bool {
    let has = |field: &str, test: &dyn Fn(&str) -> bool| {
        rule[field]
            .as_array()
            .is_some_and(|list| list.iter().filter_map(Value::as_str).any(test))
    };
    if !has("verbs", &|v| v == "*" || v == wanted.verb) {
        return false;
    }
    if let Some(path) = &wanted.path {
        return has("nonResourceURLs", &|url| {
            url == "*"
                || url == path
                || url
                    .strip_suffix('*')
                    .is_some_and(|prefix| path.starts_with(prefix))
        });
    }
    let resource = if wanted.subresource.is_empty() {
        wanted.resource.clone()
    } else {
        format!("{}/{}", wanted.resource, wanted.subresource)
    };
    let any_of_sub = format!("*/{}", wanted.subresource);
    let names = rule["resourceNames"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    has("apiGroups", &|g| g == "*" || g == wanted.group)
        && has("resources", &|r| {
            r == "*" || r == resource || (!wanted.subresource.is_empty() && r == any_of_sub)
        })
        && (!names
            || has("resourceNames", &|n| {
                !wanted.name.is_empty() && n == wanted.name
            }))
}

/// The roles and bindings that every cluster begins with and that clients rely on.
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
    vec![
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(verb: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_covers_what_it_names() {
        let rule = json!({ "verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments", "*/scale"] });
        let named = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"] });
        let cases = [
            (&rule, wanted("get", "deployments", "", ""), true),
            (&rule, wanted("list", "deployments", "", ""), false),
            (&rule, wanted("get", "deployments", "status", ""), false),
            (&rule, wanted("get", "statefulsets", "scale", ""), true),
            (&named, wanted("delete", "deployments", "", "a"), true),
            (&named, wanted("delete", "deployments", "", "b"), false),
            (&named, wanted("list", "deployments", "", ""), false),
        ];
        for (rule, wanted, expected) in cases {
            assert_eq!(allows(rule, &wanted), expected, "{rule} {wanted:?}");
        }
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let rule = json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"] });
        let path = |p: &str| Attributes {
            verb: "get".to_owned(),
            path: Some(p.to_owned()),
            ..Attributes::default()
        };
        assert!(allows(&rule, &path("/api/v1")));
        assert!(!allows(&rule, &path("/healthz/etcd")));
    }
}
