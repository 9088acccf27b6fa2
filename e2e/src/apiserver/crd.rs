//! Custom resources: from a CustomResourceDefinition to a served resource, and the conditions that tell of it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::discovery::priority;
use super::metadata;
use super::registry::{Custom, Resource, Scale, Subresource, Version, collection_name};
use super::schema::{FieldError, Schema};
use super::server::Server;
use super::table::Columns;
use super::traits::Traits;

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

/// The names that a CRD asks for, with those left out filled in.
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

/// The resource that a CRD defines.
pub fn resource(server: &Server, crd: &Value) -> Result<Resource, FieldError> {
    let names = names(crd);
    let group = text(&crd["spec"]["group"]);
    let plural = text(&names["plural"]);
    let mut versions = Vec::new();
    let mut selectable = HashMap::new();
    let mut storage = String::new();
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let name = text(&version["name"]);
        if version["storage"] == true {
            storage.clone_from(&name);
        }
        if version["served"] != true {
            continue;
        }
        let paths = version["selectableFields"].as_array().into_iter().flatten();
        selectable.insert(name.clone(), paths.map(|f| text(&f["jsonPath"])).collect());
        versions.push(self::version(crd, version, &group, &names, name)?);
    }
    versions.sort_by_key(|v| std::cmp::Reverse(priority(&v.name)));
    Ok(Resource {
        collection: server.store.collection(&collection_name(&group, &plural)),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: crd["spec"]["scope"] == "Namespaced",
        versions,
        storage,
        traits: Traits::CUSTOM,
        custom: Some(Custom {
            crd: metadata::text(crd, "name").to_owned(),
            definition: Arc::new(crd.clone()),
            selectable,
        }),
        group,
        plural,
    })
}

fn version(
    crd: &Value,
    version: &Value,
    group: &str,
    names: &Value,
    name: String,
) -> Result<Version, FieldError> {
    let strings = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource {
            name: "status".to_owned(),
            speaks: (group.to_owned(), name.clone(), text(&names["kind"])),
            verbs: strings(&READ_WRITE),
        });
    }
    let scale = &version["subresources"]["scale"];
    let scale = scale.is_object().then(|| Scale {
        spec: text(&scale["specReplicasPath"]),
        status: text(&scale["statusReplicasPath"]),
        selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
    });
    if scale.is_some() {
        subresources.push(Subresource {
            name: "scale".to_owned(),
            speaks: (
                "autoscaling".to_owned(),
                "v1".to_owned(),
                "Scale".to_owned(),
            ),
            verbs: strings(&READ_WRITE),
        });
    }
    let deprecation = (version["deprecated"] == true).then(|| {
        version["deprecationWarning"].as_str().map_or_else(
            || {
                let kind = text(&names["kind"]);
                let better = successor(crd, &name)
                    .map_or_else(String::new, |v| format!("; use {group}/{v} {kind}"));
                format!("{group}/{name} {kind} is deprecated{better}")
            },
            str::to_owned,
        )
    });
    Ok(Version {
        schema: Schema::of_crd(crd, &name)?,
        columns: Columns::of_crd(crd, &name),
        verbs: strings(&VERBS),
        subresources,
        deprecation,
        scale,
        name,
    })
}

/// The best served version that isn't deprecated, if it is better than this one.
fn successor(crd: &Value, name: &str) -> Option<String> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let fresh = versions.filter(|v| v["served"] == true && v["deprecated"] != true);
    let best = fresh
        .map(|v| text(&v["name"]))
        .max_by_key(|v| priority(v))?;
    (priority(&best) > priority(name)).then_some(best)
}

/// Why the names of a CRD can't be accepted: reason and message, if another resource of the group has one of them.
fn conflict(server: &Server, crd: &Value) -> Option<(&'static str, String)> {
    let names = names(crd);
    let (group, own) = (text(&crd["spec"]["group"]), metadata::text(crd, "name"));
    let all = server.registry.all();
    let others: Vec<_> = all
        .iter()
        .filter(|r| r.group == group && r.custom.as_ref().is_none_or(|c| c.crd != own))
        .collect();
    let taken = |name: &str| {
        others.iter().any(|r| {
            r.plural == name || r.singular == name || r.short_names.iter().any(|s| s == name)
        })
    };
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
    ] {
        let name = text(&names[field]);
        if taken(&name) {
            return Some((reason, format!("{name:?} is already in use")));
        }
    }
    if let Some(name) = texts(&names["shortNames"]).into_iter().find(|n| taken(n)) {
        return Some(("ShortNamesConflict", format!("{name:?} is already in use")));
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = text(&names[field]);
        if others.iter().any(|r| r.kind == name || r.list_kind == name) {
            return Some((reason, format!("{name:?} is already in use")));
        }
    }
    None
}

/// The status that a CRD should have.
pub fn status(server: &Server, crd: &Value) -> Value {
    let now = metadata::time(server.clock.now());
    let mut status = crd["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let established = condition_is(&status, "Established", "True");
    match conflict(server, crd) {
        None => {
            status["acceptedNames"] = names(crd);
            set(
                &mut status,
                "NamesAccepted",
                ("True", "NoConflicts", "no conflicts found"),
                &now,
            );
            let message = "the initial names have been accepted";
            set(
                &mut status,
                "Established",
                ("True", "InitialNamesAccepted", message),
                &now,
            );
        }
        Some((reason, message)) => {
            if !status["acceptedNames"].is_object() {
                status["acceptedNames"] = json!({ "plural": "", "kind": "" });
            }
            set(
                &mut status,
                "NamesAccepted",
                ("False", reason, &message),
                &now,
            );
            if !established {
                let message = "not all names are accepted";
                set(
                    &mut status,
                    "Established",
                    ("False", "NotAccepted", message),
                    &now,
                );
            }
        }
    }
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

/// Whether a status has a condition with this value.
pub fn condition_is(status: &Value, kind: &str, value: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == kind && c["status"] == value)
}

/// Sets a condition (status, reason, message); its time moves only with its status.
pub fn set(
    status: &mut Value,
    kind: &str,
    (value, reason, message): (&str, &str, &str),
    now: &str,
) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    let mut made = json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => {
            if old["status"] == value {
                made["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = made;
        }
        None => conditions.push(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_left_out_follow_from_the_kind() {
        let crd = json!({ "spec": { "names": { "kind": "Widget", "plural": "widgets" } } });
        assert_eq!(
            names(&crd),
            json!({ "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" })
        );
    }

    #[test]
    fn the_time_of_a_condition_moves_only_with_its_status() {
        let mut status = json!({});
        set(&mut status, "A", ("True", "R", "m"), "1");
        set(&mut status, "A", ("True", "R", "n"), "2");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "1");
        set(&mut status, "A", ("False", "R", "n"), "3");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "3");
        assert!(condition_is(&status, "A", "False"));
    }
}
