//! Which webhooks and policies are asked about a request: rules and conditions. Pure.

use serde_json::Value;

use crate::auth::rbac::any;
use crate::schema::cel::{self, Expr, Failure, Scope};
use crate::wire::json::texts;

/// A group, a version and a plural.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// Version of the group.
    pub version: String,
    /// Name in paths.
    pub plural: String,
}

/// What a rule is held against.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'a str,
    /// The resource, perhaps in another version than that of the request.
    pub resource: &'a Resource,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Namespace, empty for cluster-scoped objects; of a namespace its own name.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

/// One entry of a webhook's `rules`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// Names of objects, of rules of policies; empty for all.
    names: Vec<String>,
    scope: String,
}

impl Rule {
    /// Reads a rule.
    pub fn read(rule: &Value) -> Self {
        let list = |name: &str| texts(&rule[name]);
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            names: list("resourceNames"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    /// Returns whether the rule covers what is asked.
    pub fn covers(&self, asked: Asked<'_>) -> bool {
        self.in_scope(asked)
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
            && any(&self.operations, asked.operation)
            && any(&self.groups, &asked.resource.group)
            && any(&self.versions, &asked.resource.version)
            && self.resources.iter().any(|pattern| {
                // `a/*` covers the object itself, too; `*` covers no subresource.
                let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
                (resource == "*" || resource == asked.resource.plural)
                    && (subresource == "*" || subresource == asked.subresource)
            })
    }

    /// Namespaces themselves are cluster-scoped, though requests about them have a namespace.
    fn in_scope(&self, asked: Asked<'_>) -> bool {
        let cluster = is_namespaces(asked.resource) || asked.namespace.is_empty();
        match self.scope.as_str() {
            "Namespaced" => !cluster,
            "Cluster" => cluster,
            _ => true,
        }
    }
}

/// Returns whether the resource is that of namespaces themselves.
pub fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Webhooks are never asked about their own configurations, lest nobody could repair one.
pub fn is_exempt(resource: &Resource) -> bool {
    resource.group == "admissionregistration.k8s.io"
}

/// Reads a list of rules.
pub fn rules(list: &Value) -> Vec<Rule> {
    list.as_array()
        .into_iter()
        .flatten()
        .map(Rule::read)
        .collect()
}

/// One entry of `matchConditions`.
#[derive(Debug, Clone)]
pub struct Condition {
    name: String,
    expression: Option<Expr>,
}

impl Condition {
    /// Reads a condition; one that can't be read counts as met.
    pub fn read(condition: &Value) -> Self {
        let source = condition["expression"].as_str().unwrap_or_default();
        Self {
            name: condition["name"].as_str().unwrap_or_default().to_owned(),
            expression: cel::parse(source).ok(),
        }
    }
}

/// Returns whether all conditions are met. One that is false decides; otherwise the error says
/// those that went wrong.
pub fn met(conditions: &[Condition], scope: &Scope<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        let Some(expression) = &condition.expression else {
            continue;
        };
        match scope.holds(expression) {
            Ok(false) => return Ok(false),
            Ok(true) | Err(Failure::Unsupported) => {}
            Err(Failure::Wrong(error)) => errors.push(format!(
                "failed to evaluate match condition '{}': {error}",
                condition.name
            )),
        }
    }
    match errors.len() {
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(group: &str, plural: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
        }
    }

    #[test]
    fn rules_cover_what_their_patterns_say() {
        let rule = |resources: &[&str], scope: &str| {
            Rule::read(
                &json!({"operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps"],
                "apiVersions": ["*"], "resources": resources, "scope": scope}),
            )
        };
        let (pods, nodes, spaces) = (
            resource("", "pods"),
            resource("", "nodes"),
            resource("", "namespaces"),
        );
        let foreign = resource("batch", "jobs");
        let cases = [
            (rule(&["pods"], "*"), "CREATE", &pods, "", "a", true),
            (rule(&["pods"], "*"), "DELETE", &pods, "", "a", false),
            (rule(&["pods"], "*"), "UPDATE", &pods, "status", "a", false),
            (rule(&["pods/*"], "*"), "UPDATE", &pods, "status", "a", true),
            (rule(&["pods/*"], "*"), "UPDATE", &pods, "", "a", true),
            (rule(&["*"], "*"), "UPDATE", &pods, "status", "a", false),
            (rule(&["*/*"], "*"), "UPDATE", &pods, "status", "a", true),
            (
                rule(&["*/status"], "*"),
                "UPDATE",
                &pods,
                "status",
                "a",
                true,
            ),
            (rule(&["*"], "*"), "CREATE", &foreign, "", "a", false),
            (rule(&["*"], "Namespaced"), "CREATE", &nodes, "", "", false),
            (rule(&["*"], "Cluster"), "CREATE", &nodes, "", "", true),
            (rule(&["*"], "Cluster"), "CREATE", &pods, "", "a", false),
            (rule(&["*"], "Cluster"), "CREATE", &spaces, "", "a", true),
            (
                rule(&["*"], "Namespaced"),
                "CREATE",
                &spaces,
                "",
                "a",
                false,
            ),
        ];
        for (rule, operation, resource, subresource, namespace, expected) in cases {
            let asked = Asked {
                operation,
                resource,
                subresource,
                namespace,
                name: "x",
            };
            assert_eq!(rule.covers(asked), expected, "{rule:?} {asked:?}");
        }
    }

    #[test]
    fn a_condition_that_is_false_outweighs_one_that_went_wrong() {
        let condition = |name: &str, expression: &str| {
            Condition::read(&json!({"name": name, "expression": expression}))
        };
        let object = json!({"metadata": {"name": "x"}});
        let (request, none) = (json!({"operation": "CREATE"}), Value::Null);
        let scope = Scope::new([
            ("object", &object),
            ("oldObject", &none),
            ("request", &request),
        ]);
        let met = |conditions: &[Condition]| met(conditions, &scope);
        assert_eq!(
            met(&[condition(
                "a",
                "request.operation == 'CREATE' && oldObject == null"
            )]),
            Ok(true)
        );
        assert_eq!(
            met(&[
                condition("a", "object.spec.x == 1"),
                condition("b", "false")
            ]),
            Ok(false)
        );
        assert_eq!(
            met(&[condition("a", "object.spec.x == 1")]),
            Err("failed to evaluate match condition 'a': no such key: spec".to_owned())
        );
    }
}
