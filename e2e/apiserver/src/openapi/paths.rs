//! The paths of a document: which resources exist, and which parameters and patch forms their
//! operations take.

use serde_json::{Map, Value, json};

use super::schemas::Dialect;
use crate::kinds::catalog::Kind;

/// What a path is about.
pub struct Resource {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespaced: bool,
    verbs: Vec<&'static str>,
    strategic: bool,
}

impl Resource {
    /// A built-in kind.
    pub fn builtin(kind: &Kind) -> Self {
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
            namespaced: kind.namespaced,
            verbs: kind.verbs.to_vec(),
            strategic: true,
        }
    }

    /// One version of a CRD: all verbs, but no strategic merge patch.
    pub fn custom(crd: &Value, version: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = &crd["spec"];
        Self {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            namespaced: spec["scope"] == "Namespaced",
            verbs: vec!["create", "delete", "get", "list", "patch", "update"],
            strategic: false,
        }
    }

    fn base(&self) -> String {
        let Self {
            group,
            version,
            plural,
            ..
        } = self;
        let prefix = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        let scope = if self.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        format!("{prefix}{scope}/{plural}")
    }

    fn operation(&self, verb: &str, dialect: Dialect) -> Value {
        let changes = matches!(verb, "create" | "update" | "patch");
        let mut parameters = Vec::new();
        if changes || verb == "delete" {
            parameters.push("dryRun");
        }
        if changes {
            parameters.extend(["fieldManager", "fieldValidation"]);
        }
        if verb == "patch" {
            parameters.push("force");
        }
        let parameters: Vec<Value> = parameters
            .into_iter()
            .map(|name| parameter(name, dialect))
            .collect();
        let Self {
            group,
            version,
            kind,
            ..
        } = self;
        let mut operation = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action(verb),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if verb == "patch" {
            let mut forms = vec![
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ];
            if self.strategic {
                forms.push("application/strategic-merge-patch+json");
            }
            if dialect == Dialect::V3 {
                let content: Map<String, Value> = forms
                    .into_iter()
                    .map(|form| (form.to_owned(), json!({"schema": {"type": "object"}})))
                    .collect();
                operation["requestBody"] = json!({"content": content, "required": true});
            } else {
                operation["consumes"] = json!(forms);
            }
        }
        operation
    }
}

/// Adds the collection and the single object of `resource`.
pub fn add(paths: &mut Map<String, Value>, resource: &Resource, dialect: Dialect) {
    let base = resource.base();
    let mut item = |path: String, verbs: &[(&str, &str)]| {
        let operations: Map<String, Value> = verbs
            .iter()
            .filter(|(verb, _)| resource.verbs.contains(verb))
            .map(|(verb, method)| ((*method).to_owned(), resource.operation(verb, dialect)))
            .collect();
        if !operations.is_empty() {
            paths.insert(path, Value::Object(operations));
        }
    };
    item(base.clone(), &[("list", "get"), ("create", "post")]);
    item(
        format!("{base}/{{name}}"),
        &[
            ("get", "get"),
            ("update", "put"),
            ("patch", "patch"),
            ("delete", "delete"),
        ],
    );
}

fn action(verb: &str) -> &str {
    match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    }
}

fn parameter(name: &str, dialect: Dialect) -> Value {
    let kind = if name == "force" { "boolean" } else { "string" };
    match dialect {
        Dialect::V3 => {
            json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
        }
        Dialect::V2 => json!({"name": name, "in": "query", "type": kind, "uniqueItems": true}),
    }
}
