//! Table output: the columns and cells that `kubectl get` prints. Kinds that no scenario, sandbox
//! or documented command prints have the columns of kinds without any: name and creation.

mod age;
mod cluster;
mod custom;
mod path;
mod pods;
mod services;
mod workloads;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::catalog::Kind;
use custom::CustomColumn;

/// What goes into `object` of every row (`includeObject` in the query).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`; the default.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// The columns of one kind.
#[derive(Debug, Clone)]
pub struct Columns(Source);

#[derive(Debug, Clone)]
enum Source {
    Builtin(&'static Printer),
    Custom(Vec<CustomColumn>),
}

/// How a built-in kind is printed.
#[derive(Debug)]
struct Printer {
    columns: &'static [Column],
    cells: fn(&Row<'_>) -> Vec<Value>,
}

/// One column of a built-in kind.
#[derive(Debug)]
struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    priority: 0,
};
const AGE: Column = text("Age");
const CREATED_AT: Column = Column {
    name: "Created At",
    kind: "date",
    format: "",
    priority: 0,
};
const CONTAINERS: Column = wide("Containers");
const IMAGES: Column = wide("Images");
const SELECTOR: Column = wide("Selector");

const fn text(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        priority: 0,
    }
}

const fn number(name: &'static str) -> Column {
    Column {
        name,
        kind: "integer",
        format: "",
        priority: 0,
    }
}

const fn boolean(name: &'static str) -> Column {
    Column {
        name,
        kind: "boolean",
        format: "",
        priority: 0,
    }
}

const fn wide(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        priority: 1,
    }
}

/// The object of a row, and the time at which it is printed.
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl<'a> Row<'a> {
    fn name(&self) -> Value {
        let name = &self.object["metadata"]["name"];
        name.as_str().unwrap_or_default().into()
    }

    fn age(&self) -> Value {
        age::since(&self.object["metadata"]["creationTimestamp"], self.now).into()
    }

    /// Returns the text at `pointer`, empty where there is none.
    fn text(&self, pointer: &str) -> &'a str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns the text at `pointer`, `fallback` where there is none.
    fn text_or(&self, pointer: &str, fallback: &'a str) -> &'a str {
        match self.text(pointer) {
            "" => fallback,
            text => text,
        }
    }

    /// Returns the whole number at `pointer`, 0 where there is none.
    fn number(&self, pointer: &str) -> i64 {
        self.object
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    /// Returns the list at `pointer`, empty where there is none.
    fn list(&self, pointer: &str) -> &'a [Value] {
        self.object
            .pointer(pointer)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns how many fields the object at `pointer` has.
    fn count(&self, pointer: &str) -> usize {
        self.object
            .pointer(pointer)
            .and_then(Value::as_object)
            .map_or(0, Map::len)
    }
}

impl Columns {
    /// Returns the columns of a built-in kind.
    pub fn builtin(kind: &'static Kind) -> Self {
        let printer = workloads::printer(kind)
            .or_else(|| cluster::printer(kind))
            .unwrap_or(&CREATED);
        Self(Source::Builtin(printer))
    }

    /// Returns the columns of one version of a CRD (the whole `CustomResourceDefinition` object).
    pub fn of_crd(crd: &Value, version: &str) -> Self {
        Self(Source::Custom(custom::columns(crd, version)))
    }

    fn definitions(&self) -> Vec<Value> {
        match &self.0 {
            Source::Builtin(printer) => printer
                .columns
                .iter()
                .map(|c| definition(c.name, c.kind, c.format, "", c.priority.into()))
                .collect(),
            Source::Custom(columns) => {
                let name = definition("Name", "string", "name", "", 0);
                std::iter::once(name)
                    .chain(columns.iter().map(CustomColumn::definition))
                    .collect()
            }
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        match &self.0 {
            Source::Builtin(printer) => (printer.cells)(row),
            Source::Custom(columns) => {
                let cells = columns
                    .iter()
                    .map(|column| column.cell(row.object, row.now));
                std::iter::once(row.name()).chain(cells).collect()
            }
        }
    }
}

/// What kinds without columns of their own show.
static CREATED: Printer = Printer {
    columns: &[NAME, CREATED_AT],
    cells: |row| {
        vec![
            row.name(),
            row.object["metadata"]["creationTimestamp"].clone(),
        ]
    },
};

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

/// Returns a `meta.k8s.io/v1` Table of `items`. The caller adds `metadata` (resourceVersion,
/// continue, remainingItemCount).
pub fn table(columns: &Columns, items: &[&Value], include: IncludeObject, now: Timestamp) -> Value {
    let rows: Vec<Value> = items
        .iter()
        .map(|object| {
            let mut row = json!({"cells": columns.cells(&Row { object, now })});
            match include {
                IncludeObject::None => row["object"] = Value::Null,
                IncludeObject::Metadata => {
                    row["object"] = json!({
                        "kind": "PartialObjectMetadata",
                        "apiVersion": "meta.k8s.io/v1",
                        "metadata": object["metadata"],
                    });
                }
                IncludeObject::Object => row["object"] = (*object).clone(),
            }
            if object["kind"] == "Pod"
                && let Some(condition) = pods::completion(object)
            {
                row["conditions"] = json!([condition]);
            }
            row
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns.definitions(),
        "rows": rows,
    })
}

/// Returns a label map as it is printed: `a=1,b=2`.
fn labels(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    }
}

/// Returns a label selector as it is printed: `a=1,b in (x,y),!c`.
fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = joined(expression["values"].as_array().into_iter().flatten());
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort();
    if parts.is_empty() {
        "<none>".to_owned()
    } else {
        parts.join(",")
    }
}

fn joined<'a>(texts: impl Iterator<Item = &'a Value>) -> String {
    texts
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests;
