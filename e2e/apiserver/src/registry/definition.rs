//! Custom resources: from a CustomResourceDefinition to a served resource, and the conditions that
//! tell of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::kind_facts::KindFacts;
use crate::registry::{Custom, Resource, Scale, Subresource, Version, collection_name};
use crate::schema::Schema;
use crate::store::{Scan, Store};
use crate::table::Columns;
use crate::wire::conditions::{condition_is, set};
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::versions::priority;

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
        collection: store.collection(&collection_name(&group, &plural)),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: crd["spec"]["scope"] == "Namespaced",
        versions,
        storage,
        facts: KindFacts::CUSTOM,
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

/// Returns the best served version that isn't deprecated, if it is better than this one.
fn successor(crd: &Value, name: &str) -> Option<String> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let fresh = versions.filter(|v| v["served"] == true && v["deprecated"] != true);
    let best = fresh
        .map(|v| text(&v["name"]))
        .max_by_key(|v| priority(v))?;
    (priority(&best) > priority(name)).then_some(best)
}

/// Names that the other CRDs of a group have been given: those of resources, and those of kinds.
#[derive(Default)]
struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl Taken {
    fn by_others(store: &Store, crd: &Value) -> Self {
        let mut taken = Self::default();
        let crds = store.collection("apiextensions.k8s.io/customresourcedefinitions");
        let Ok(page) = crds.scan(Scan::default(), |_| true) else {
            return taken;
        };
        for other in page.objects.iter().map(|object| object.value()) {
            let same = metadata::text(&other, "name") == metadata::text(crd, "name");
            if same || other["spec"]["group"] != crd["spec"]["group"] {
                continue;
            }
            let names = &other["status"]["acceptedNames"];
            taken
                .resources
                .extend([text(&names["plural"]), text(&names["singular"])]);
            taken.resources.extend(texts(&names["shortNames"]));
            taken
                .kinds
                .extend([text(&names["kind"]), text(&names["listKind"])]);
        }
        taken
    }
}

/// Returns the names that a CRD may have of those it asks for, beside those it has, and the reason
/// and message if it may not have all. Of several conflicts the last is told.
fn accepted(
    wanted: &Value,
    given: &Value,
    taken: &Taken,
) -> (Value, Option<(&'static str, String)>) {
    let mut names = given.clone();
    let mut conflict = None;
    let mut in_use = |reason, name: &str| {
        conflict = Some((reason, format!("{name:?} is already in use")));
    };
    for (field, reason, others) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let asked = match &wanted[field] {
            Value::Array(list) => list.iter().map(text).collect(),
            one => vec![text(one)],
        };
        let other = asked
            .iter()
            .find(|name| wanted[field] != given[field] && others.contains(*name));
        match other {
            Some(name) => in_use(reason, name),
            None if wanted[field].is_null() => {}
            None => names[field] = wanted[field].clone(),
        }
    }
    if !wanted["categories"].is_null() {
        names["categories"] = wanted["categories"].clone();
    }
    (names, conflict)
}

/// Returns the status that a CRD should have.
pub fn status(store: &Store, now: Timestamp, crd: &Value) -> Value {
    let now = metadata::time(now);
    let mut status = crd["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    if !status["acceptedNames"].is_object() {
        status["acceptedNames"] = json!({ "plural": "", "kind": "" });
    }
    let established = condition_is(&status, "Established", "True");
    let taken = Taken::by_others(store, crd);
    let (names, conflict) = accepted(&names(crd), &status["acceptedNames"], &taken);
    status["acceptedNames"] = names;
    let (accepted, initial) = match &conflict {
        None => (
            ("True", "NoConflicts", "no conflicts found"),
            Some((
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            )),
        ),
        Some((reason, message)) => (
            ("False", *reason, message.as_str()),
            (!established).then_some(("False", "NotAccepted", "not all names are accepted")),
        ),
    };
    set(&mut status, "NamesAccepted", accepted, &now);
    if let Some(initial) = initial {
        set(&mut status, "Established", initial, &now);
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
    fn each_name_is_accepted_alone_and_the_last_conflict_is_told() {
        let taken = Taken {
            resources: ["first".to_owned(), "fi".to_owned()].into(),
            kinds: ["First".to_owned()].into(),
        };
        let wanted = json!({ "plural": "seconds", "singular": "first", "shortNames": ["se", "fi"], "kind": "First", "listKind": "SecondList" });
        let (names, conflict) = accepted(&wanted, &json!({ "plural": "", "kind": "" }), &taken);
        assert_eq!(
            names,
            json!({ "plural": "seconds", "kind": "", "listKind": "SecondList" })
        );
        assert_eq!(
            conflict,
            Some(("KindConflict", "\"First\" is already in use".to_owned()))
        );
        // What a CRD has it keeps, whoever else has it.
        let (_, conflict) = accepted(&wanted, &wanted, &taken);
        assert_eq!(conflict, None);
    }
}
