//! Table output: the columns and cells that `kubectl get` prints.

mod age;
mod column;
mod path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::Kind;
use column::Column;

/// The columns of one kind behind its name.
#[derive(Debug, Clone)]
pub struct Columns(Vec<Column>);

/// Columns of built-in kinds before their age: kind, name, type and path. Kinds that are not listed
/// show name and age.
#[rustfmt::skip]
const BUILTIN: &[(&str, &str, &str, &str)] = &[
    ("Pod", "Status", "string", ".status.phase"),
    ("Pod", "Node", "string", ".spec.nodeName"),
    ("Deployment", "Replicas", "integer", ".spec.replicas"),
    ("Deployment", "Ready", "integer", ".status.readyReplicas"),
    ("Deployment", "Available", "integer", ".status.availableReplicas"),
    ("StatefulSet", "Replicas", "integer", ".spec.replicas"),
    ("StatefulSet", "Ready", "integer", ".status.readyReplicas"),
    ("Node", "Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
    ("Node", "Unschedulable", "boolean", ".spec.unschedulable"),
    ("Namespace", "Status", "string", ".status.phase"),
    ("Lease", "Holder", "string", ".spec.holderIdentity"),
    ("Event", "Type", "string", ".type"),
    ("Event", "Reason", "string", ".reason"),
    ("Event", "Object", "string", ".involvedObject.name"),
    ("Event", "Message", "string", ".message"),
    ("CertificateSigningRequest", "SignerName", "string", ".spec.signerName"),
    ("CertificateSigningRequest", "Requestor", "string", ".spec.username"),
    ("CertificateSigningRequest", "Condition", "string", ".status.conditions[0].type"),
];

impl Columns {
    /// Returns the columns of a built-in kind.
    pub fn builtin(kind: &Kind) -> Self {
        let own = BUILTIN.iter().filter(|(of, ..)| *of == kind.kind);
        let own = own.map(|(_, name, kind, path)| {
            Column::read(&json!({ "name": name, "type": kind, "jsonPath": path }))
        });
        Self(own.chain([Column::age()]).collect())
    }

    /// Returns the columns of one version of a CRD (the whole `CustomResourceDefinition` object):
    /// its `additionalPrinterColumns`, or the age where there are none.
    pub fn of_crd(crd: &Value, version: &str) -> Self {
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        let declared = versions
            .filter(|v| v["name"] == version)
            .filter_map(|v| v["additionalPrinterColumns"].as_array());
        let declared: Vec<Column> = declared.flatten().map(Column::read).collect();
        Self(if declared.is_empty() {
            vec![Column::age()]
        } else {
            declared
        })
    }

    fn definitions(&self) -> Vec<Value> {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0,
        });
        let columns = self.0.iter().map(Column::definition);
        std::iter::once(name).chain(columns).collect()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let cells = self.0.iter().map(|column| column.cell(object, now));
        std::iter::once(name.into()).chain(cells).collect()
    }
}

/// Returns a `meta.k8s.io/v1` Table of `items`, each row with the metadata of its object. The
/// caller adds `metadata` (resourceVersion, continue, remainingItemCount).
pub fn table(columns: &Columns, items: &[&Value], now: Timestamp) -> Value {
    let row = |object: &&Value| {
        let shown = json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        });
        json!({ "cells": columns.cells(object, now), "object": shown })
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns.definitions(),
        "rows": items.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
