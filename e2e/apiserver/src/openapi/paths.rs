//! The paths of a document. kubectl looks there for the kind of a resource (`explain`), and whether
//! its patches validate fields and merge strategically (`apply`).

use serde_json::{Map, Value, json};

use crate::catalog::Kind;

/// What a path is about.
pub struct Resource {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespaced: bool,
    patched: bool,
}

impl Resource {
    /// Returns what the path of a built-in kind is about.
    pub fn builtin(kind: &Kind) -> Self {
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
            namespaced: kind.namespaced,
            patched: kind.verbs.contains(&"patch"),
        }
    }

    /// Returns what the path of one version of a CRD is about: it has patches.
    pub fn custom(crd: &Value, version: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = &crd["spec"];
        Self {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            namespaced: spec["scope"] == "Namespaced",
            patched: true,
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

    /// Returns the operation by which kubectl knows the kind: a patch, with its parameters and
    /// forms, or a creation where there are no patches.
    fn operation(&self) -> Value {
        let Self {
            group,
            version,
            kind,
            ..
        } = self;
        let mut operation = json!({
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if self.patched {
            let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
            operation["parameters"] = ["dryRun", "fieldValidation"].map(parameter).into();
            let content: Map<String, Value> = FORMS
                .iter()
                .map(|form| ((*form).to_owned(), json!({"schema": {"type": "object"}})))
                .collect();
            operation["requestBody"] = json!({"content": content, "required": true});
        }
        operation
    }
}

/// Forms of patches. The strategic one is left out: kubectl then merges built-in kinds by its own
/// knowledge of their lists, which the schemas here do not tell.
const FORMS: [&str; 3] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// Adds the path of `resource` that kubectl looks for.
pub fn add(paths: &mut Map<String, Value>, resource: &Resource) {
    let base = resource.base();
    let (path, method) = if resource.patched {
        (format!("{base}/{{name}}"), "patch")
    } else {
        (base, "post")
    };
    paths.insert(path, json!({method: resource.operation()}));
}
