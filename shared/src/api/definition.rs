//! From a Rust type to the definition that an API server accepts.
//!
//! schemars describes JSON as a validator sees it; an API server demands *structural* schemas: one type a node,
//! no references, no `null` alternatives, only known formats. [`schema_of`] bridges the two.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a quantity may look like (the expression that Kubernetes generates for its own).
pub(super) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer` or `date`.
    pub kind: &'static str,
    /// Where the value stands in the object (JSONPath).
    pub path: &'static str,
    /// Shown only by `-o wide`.
    pub wide: bool,
}

impl Column {
    /// A text column.
    pub const fn text(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            kind: "string",
            path,
            wide: false,
        }
    }

    /// The age of the object.
    pub const fn age(name: &'static str) -> Self {
        Self {
            name,
            kind: "date",
            path: ".metadata.creationTimestamp",
            wide: false,
        }
    }

    /// A point in time, shown as how long ago it was.
    pub const fn date(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            kind: "date",
            path,
            wide: false,
        }
    }

    /// The same column, shown only by `-o wide`.
    #[must_use]
    pub const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// A CEL rule on the whole object.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The expression that must hold.
    pub rule: &'static str,
    /// What the user is told when it does not.
    pub message: &'static str,
}

/// Where the fields of a kind stand in its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// In `spec`.
    Spec,
    /// Beside `metadata`.
    Fields,
}

/// Everything that makes a kind of ours, schema included.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// API group.
    pub group: &'static str,
    /// The one version that is served and stored.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural, lower case.
    pub plural: &'static str,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// What the kind is for.
    pub description: &'static str,
    /// Where the fields of the kind stand.
    pub body: Body,
    /// Schema of those fields.
    pub spec: fn() -> Value,
    /// Schema of `status`; its presence enables the status subresource.
    pub status: Option<fn() -> Value>,
    /// Abbreviations for the command line.
    pub short_names: &'static [&'static str],
    /// Groups of kinds for the command line.
    pub categories: &'static [&'static str],
    /// Columns of `kubectl get`.
    pub columns: &'static [Column],
    /// Rules across the whole object.
    pub rules: &'static [Rule],
}

/// A kind that carries its own definition.
pub trait Defined {
    /// The definition.
    const DEFINITION: Definition;

    /// The definition as an object of the API.
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

/// Puts the fields of `spec` beside `metadata`.
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

/// The structural schema of a type.
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

/// Rewrites a schema of schemars into a structural one.
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

/// An optional value is absent, never `null`: the API server would store it and the next reader would stumble.
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

/// The types give every field a zero value to decode from. For a required field that is no API default.
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

/// Joins the lines of a doc comment; paragraphs stay apart.
fn prose(text: &str) -> String {
    let line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(line).collect::<Vec<_>>().join("\n")
}
