//! CustomResourceDefinitions from Rust types.
//!
//! schemars describes JSON for validators. An API server accepts only *structural* schemas: one
//! type per node, no references, no `null` alternatives, only known formats. [`schema_of`] converts
//! the one into the other.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Pattern of quantities (the expression that Kubernetes generates for its own types).
pub(super) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading of the column.
    pub name: &'static str,
    /// Type of the value: `string`, `integer` or `date`.
    pub kind: &'static str,
    /// JSONPath of the value in the object.
    pub path: &'static str,
    /// Whether the column is shown only with `-o wide`.
    pub wide: bool,
}

impl Column {
    /// Makes a column with a string.
    pub const fn text(name: &'static str, path: &'static str) -> Self {
        Self::of("string", name, path)
    }

    /// Makes the column with the age of the object.
    pub const fn age(name: &'static str) -> Self {
        Self::date(name, ".metadata.creationTimestamp")
    }

    /// Makes a column with a whole number.
    pub const fn integer(name: &'static str, path: &'static str) -> Self {
        Self::of("integer", name, path)
    }

    /// Makes a column with a time, shown as the time that has passed since.
    pub const fn date(name: &'static str, path: &'static str) -> Self {
        Self::of("date", name, path)
    }

    const fn of(kind: &'static str, name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            kind,
            path,
            wide: false,
        }
    }

    /// Returns the column, shown only with `-o wide`.
    #[must_use]
    pub const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// CEL rule on the whole object.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Expression that must be true.
    pub rule: &'static str,
    /// Message of the rejection if it is false.
    pub message: &'static str,
}

/// Place of a kind's fields in its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Under `spec`.
    Spec,
    /// Beside `metadata`.
    Fields,
}

/// Definition of a kind, including its schema.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// API group.
    pub group: &'static str,
    /// Version, the only one that is served and stored.
    pub version: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Plural in lower case.
    pub plural: &'static str,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// Description of the kind.
    pub description: &'static str,
    /// Place of the kind's fields.
    pub body: Body,
    /// Schema of these fields.
    pub spec: fn() -> Value,
    /// Schema of `status`; its presence enables the status subresource.
    pub status: Option<fn() -> Value>,
    /// Abbreviations for the command line.
    pub short_names: &'static [&'static str],
    /// Groups of kinds for the command line, such as `karmada-io`.
    pub categories: &'static [&'static str],
    /// Columns of `kubectl get`.
    pub columns: &'static [Column],
    /// Rules on the whole object.
    pub rules: &'static [Rule],
}

/// A kind that has a definition.
pub trait Defined {
    /// The definition of the kind.
    const DEFINITION: Definition;

    /// Returns the definition as an API object.
    fn crd() -> CustomResourceDefinition {
        Self::DEFINITION.crd()
    }
}

impl Definition {
    /// Renders the definition for `apiextensions.k8s.io/v1`.
    ///
    /// # Panics
    /// Never for the definitions of this crate, all of which a test renders.
    pub fn crd(&self) -> CustomResourceDefinition {
        let mut schema = json!({
            "type": "object",
            "description": prose(self.description),
            "required": ["spec"],
            "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "metadata": { "type": "object" },
                "spec": (self.spec)(),
            },
        });
        if self.body == Body::Fields {
            hoist(&mut schema);
        }
        if let Some(status) = self.status {
            schema["properties"]["status"] = status();
        }
        if !self.rules.is_empty() {
            let rule = |r: &Rule| json!({ "rule": r.rule, "message": r.message });
            schema["x-kubernetes-validations"] = self.rules.iter().map(rule).collect();
        }
        let columns: Vec<Value> = self.columns.iter().map(column).collect();
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "schema": { "openAPIV3Schema": schema },
        });
        if !columns.is_empty() {
            version["additionalPrinterColumns"] = columns.into();
        }
        if self.status.is_some() {
            version["subresources"] = json!({ "status": {} });
        }
        let crd = json!({
            "metadata": { "name": format!("{}.{}", self.plural, self.group) },
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                    "shortNames": self.short_names,
                    "categories": self.categories,
                },
                "versions": [version],
            },
        });
        serde_json::from_value(without_empty_lists(crd))
            .expect("a definition of ours has the form of a CustomResourceDefinition by invariant")
    }
}

/// Moves the fields of `spec` to the root.
fn hoist(schema: &mut Value) {
    let Some(mut spec) = schema["properties"]
        .as_object_mut()
        .and_then(|properties| properties.remove("spec"))
    else {
        return;
    };
    schema["required"] = spec["required"].take();
    if let (Some(properties), Value::Object(fields)) = (
        schema["properties"].as_object_mut(),
        spec["properties"].take(),
    ) {
        properties.extend(fields);
    }
}

fn column(column: &Column) -> Value {
    let mut value = json!({ "name": column.name, "type": column.kind, "jsonPath": column.path });
    if column.wide {
        value["priority"] = 1.into();
    }
    value
}

fn without_empty_lists(mut crd: Value) -> Value {
    if let Some(names) = crd["spec"]["names"].as_object_mut() {
        names.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    }
    crd
}

/// Returns the structural schema of a type.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    make_structural(&mut schema);
    schema
}

/// Converts a schema of schemars into a structural one.
fn make_structural(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else {
        return;
    };
    for keyword in ["$schema", "title", "nullable"] {
        node.remove(keyword);
    }
    drop_null(node);
    if let Some(Value::String(text)) = node.get_mut("description") {
        *text = prose(text);
    }
    // Kubernetes knows no unsigned formats; `minimum: 0` says the same.
    if let Some("uint8" | "uint16" | "uint32" | "uint64" | "uint") =
        node.get("format").and_then(Value::as_str)
    {
        node.insert("format".into(), "int64".into());
    }
    drop_defaults_of_required(node);
    for keyword in ["items", "additionalProperties"] {
        if let Some(child) = node.get_mut(keyword) {
            make_structural(child);
        }
    }
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
}

/// Removes `null` from the accepted values. An optional field is absent, never `null`: the API
/// server would store `null`, and other readers may not accept it.
fn drop_null(node: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = node.get("type") {
        let kept = types.iter().find(|t| *t != "null").cloned();
        node.insert("type".into(), kept.unwrap_or_else(|| "object".into()));
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let int_or_string = node.contains_key("x-kubernetes-int-or-string");
    if !int_or_string && let Some(Value::Array(alternatives)) = node.remove("anyOf") {
        let null = json!({ "type": "null" });
        if let Some(Value::Object(value)) = alternatives.into_iter().find(|a| *a != null) {
            for (keyword, argument) in value {
                node.entry(keyword).or_insert(argument);
            }
            drop_null(node);
        }
    }
}

/// Removes the defaults of required fields. The types give every field a zero value to decode from,
/// which is not a default of the API.
fn drop_defaults_of_required(node: &mut Map<String, Value>) {
    let Some(Value::Array(required)) = node.get("required").cloned() else {
        return;
    };
    for field in required.iter().filter_map(Value::as_str) {
        if let Some(Value::Object(property)) = node
            .get_mut("properties")
            .and_then(|properties| properties.get_mut(field))
        {
            property.remove("default");
        }
    }
}

/// Joins the lines of a doc comment. Paragraphs are separated by an empty line, and items of a list
/// are lines of their own, which is what `kubectl explain` keeps apart.
fn prose(text: &str) -> String {
    let mut prose = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() {
            if !prose.is_empty() && !prose.ends_with("\n\n") {
                prose.push_str("\n\n");
            }
            continue;
        }
        if line.starts_with("- ") && !prose.is_empty() && !prose.ends_with('\n') {
            prose.push('\n');
        } else if !prose.is_empty() && !prose.ends_with('\n') {
            prose.push(' ');
        }
        prose.push_str(line);
    }
    prose.truncate(prose.trim_end().len());
    prose
}

#[cfg(test)]
mod tests {
    use super::prose;

    #[test]
    fn a_description_keeps_its_paragraphs_and_lists() {
        for (comment, description) in [
            ("", ""),
            (" One line.\n", "One line."),
            (" Two\n lines.\n", "Two lines."),
            (" One.\n\n\n Two.", "One.\n\nTwo."),
            (
                " One of:\n\n - `A`: first,\n   and long.\n - `B`: second.\n\n End.\n",
                "One of:\n\n- `A`: first, and long.\n- `B`: second.\n\nEnd.",
            ),
            (" At once:\n - `A`", "At once:\n- `A`"),
        ] {
            assert_eq!(prose(comment), description, "{comment:?}");
        }
    }
}
