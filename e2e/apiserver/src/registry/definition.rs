//! Custom resources: from a CustomResourceDefinition to a served resource, and the conditions that
//! say of it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::kind_facts::KindFacts;
use crate::registry::{Custom, Resource, Subresource, Version, collection_name};
use crate::schema::Schema;
use crate::store::Store;
use crate::table::Columns;
use crate::wire::conditions::set;
use crate::wire::field_error::FieldError;
use crate::wire::metadata;

/// Verbs of custom resources, in the order of a real server's discovery.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const READ_WRITE: [&str; 3] = ["get", "patch", "update"];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// Returns the names that a CRD asks for, with those left out filled in.
pub fn names(crd: &Value) -> Value {
    let mut names = crd["spec"]["names"].clone();
    let kind = text(&names["kind"]);
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = format!("{kind}List").into();
    }
    names
}

/// Returns the resource that a CRD defines.
pub fn resource(store: &Store, crd: &Value) -> Result<Resource, FieldError> {
    let names = names(crd);
    let group = text(&crd["spec"]["group"]);
    let plural = text(&names["plural"]);
    Ok(Resource {
        version: version(crd, &group, &names)?,
        collection: store.collection(&collection_name(&group, &plural)),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: crd["spec"]["scope"] == "Namespaced",
        facts: KindFacts::CUSTOM,
        custom: Some(Custom {
            crd: metadata::text(crd, "name").to_owned(),
        }),
        group,
        plural,
    })
}

/// Returns the version of a CRD, which has one.
fn version(crd: &Value, group: &str, names: &Value) -> Result<Version, FieldError> {
    let version = &crd["spec"]["versions"][0];
    let name = text(&version["name"]);
    let strings = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource {
            name: "status".to_owned(),
            speaks: (group.to_owned(), name.clone(), text(&names["kind"])),
            verbs: strings(&READ_WRITE),
        });
    }
    Ok(Version {
        schema: Schema::of_crd(crd, &name)?,
        columns: Columns::of_crd(crd, &name),
        verbs: strings(&VERBS),
        subresources,
        name,
    })
}

/// Returns the status that a CRD should have; its names are accepted whoever else has them.
pub fn status(now: Timestamp, crd: &Value) -> Value {
    let now = metadata::time(now);
    let mut status = crd["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status["acceptedNames"] = names(crd);
    let accepted = ("True", "NoConflicts", "no conflicts found");
    set(&mut status, "NamesAccepted", accepted, &now);
    let initial = (
        "True",
        "InitialNamesAccepted",
        "the initial names have been accepted",
    );
    set(&mut status, "Established", initial, &now);
    let mut stored = texts(&status["storedVersions"]);
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let name = text(&version["name"]);
        if version["storage"] == true && !stored.contains(&name) {
            stored.push(name);
        }
    }
    status["storedVersions"] = json!(stored);
    status
}
