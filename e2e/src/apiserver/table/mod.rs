//! Table output: the columns and cells that `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;

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
pub struct Columns {}

impl Columns {
    /// The columns of a built-in kind.
    pub fn builtin(_kind: &'static Kind) -> Self {
        Self {}
    }

    /// The columns of one version of a CRD (the whole `CustomResourceDefinition` object).
    pub fn of_crd(_crd: &Value, _version: &str) -> Self {
        Self {}
    }
}

/// A `meta.k8s.io/v1` Table of `items`. The caller adds `metadata` (resourceVersion, continue, remainingItemCount).
pub fn table(
    _columns: &Columns,
    items: &[&Value],
    _include: IncludeObject,
    _now: Timestamp,
) -> Value {
    let rows: Vec<Value> = items
        .iter()
        .map(|item| json!({"cells": [item["metadata"]["name"]]}))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
        "rows": rows,
    })
}
