//! The rules for `metadata` that hold for every kind: what the server fills in, keeps, and refuses.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::wire::field_error::FieldError;
use crate::wire::names::{self, NameRule};
use crate::wire::status_error::StatusError;

/// Bytes of all annotations of an object together, keys included.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Returns a point in time as `metadata` writes it: whole seconds, UTC.
pub fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the metadata map of an object; an object without one gets an empty one.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        _ => unreachable!("the metadata has just been made a map"),
    }
}

/// Returns a string in the metadata, empty if it isn't there.
pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// Returns the finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Removes what only the server may set on something new.
pub fn wipe_system_fields(object: &mut Value) {
    let metadata = of(object);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(key);
    }
}

/// Makes the object's namespace that of the request.
pub fn settle_namespace(object: &mut Value, namespace: &str) -> Result<(), StatusError> {
    let metadata = of(object);
    match metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        found if found == namespace => {}
        "" => {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        // Without a namespace in the request, the one in the object is dropped.
        _ if namespace.is_empty() => {}
        _ => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(StatusError::bad_request(message));
        }
    }
    if namespace.is_empty() {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Carries over what an update may not change silently, before the rest is compared.
pub fn carry_over(old: &Value, new: &mut Value) {
    let old = &old["metadata"];
    let metadata = of(new);
    for key in ["creationTimestamp", "deletionTimestamp", "generation"] {
        match old.get(key) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None if key == "generation" => metadata.remove(key),
            None => None,
        };
    }
    for key in ["uid", "deletionGracePeriodSeconds", "selfLink"] {
        if let Some(value) = old.get(key) {
            let entry = metadata.entry(key).or_insert(Value::Null);
            if entry.is_null() || entry == "" {
                *entry = value.clone();
            }
        }
    }
}

/// Returns what is wrong with the metadata of an object by itself; `core` says that it is of a
/// built-in kind.
pub fn validate(object: &Value, rule: NameRule, namespaced: bool, core: bool) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    let prefix = text(object, "generateName");
    if !prefix.is_empty() {
        for wrong in rule.check(prefix, true) {
            errors.push(FieldError::invalid(
                "metadata.generateName",
                &prefix.into(),
                wrong,
            ));
        }
    }
    let name = text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for wrong in rule.check(name, false) {
            errors.push(FieldError::invalid("metadata.name", &name.into(), wrong));
        }
    }
    let namespace = text(object, "namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            for wrong in NameRule::Label.check(namespace, false) {
                errors.push(FieldError::invalid(
                    "metadata.namespace",
                    &namespace.into(),
                    wrong,
                ));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(
            "metadata.namespace",
            "not allowed on this type",
        ));
    }
    if let Some(labels) = metadata["labels"].as_object() {
        for (key, value) in labels {
            if let Err(wrong) = names::label_key(key) {
                errors.push(FieldError::invalid(
                    "metadata.labels",
                    &key.as_str().into(),
                    wrong,
                ));
            }
            if let Err(wrong) = names::label_value(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid("metadata.labels", value, wrong));
            }
        }
    }
    annotations(metadata, &mut errors);
    owners(metadata, &mut errors);
    for finalizer in finalizers(object) {
        if let Err(wrong) = names::label_key(finalizer) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                &finalizer.into(),
                wrong,
            ));
        }
    }
    if core {
        own_finalizers(object, &mut errors);
    }
    let both = ["orphan", "foregroundDeletion"];
    if both.iter().all(|f| finalizers(object).contains(f)) {
        let message = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            &metadata["finalizers"],
            message,
        ));
    }
    errors
}

/// Checks the finalizers of built-in kinds, which accept plain words only if Kubernetes itself uses
/// them.
fn own_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    for (i, finalizer) in finalizers(object).into_iter().enumerate() {
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer);
        if !finalizer.contains('/') && !standard {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{i}]"),
                &finalizer.into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn annotations(metadata: &Value, errors: &mut Vec<FieldError>) {
    let Some(annotations) = metadata["annotations"].as_object() else {
        return;
    };
    let mut size = 0;
    for (key, value) in annotations {
        // Annotation keys may have capitals.
        if let Err(wrong) = names::label_key(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                wrong,
            ));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            ANNOTATIONS_LIMIT,
        ));
    }
}

fn owners(metadata: &Value, errors: &mut Vec<FieldError>) {
    let Some(owners) = metadata["ownerReferences"].as_array() else {
        return;
    };
    let mut controller: Option<&Value> = None;
    for owner in owners {
        // The real server gives all owner references the path of the list.
        let field = "metadata.ownerReferences";
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        // What is no group and version counts as none.
        let malformed = text("apiVersion").matches('/').count() > 1;
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(key).is_empty() || key == "apiVersion" && malformed {
                let which = if key == "apiVersion" { "version " } else { "" };
                let detail = format!("{which}must not be empty");
                errors.push(FieldError::invalid(
                    format!("{field}.{key}"),
                    &owner[key].as_str().unwrap_or_default().into(),
                    detail,
                ));
            }
        }
        if owner["controller"] == true {
            if controller.is_some() {
                let detail = "Only one reference can have Controller set to true";
                errors.push(FieldError::invalid(
                    field,
                    &metadata["ownerReferences"],
                    detail,
                ));
            }
            controller = Some(owner);
        }
    }
}

/// Returns what is wrong with a change of the metadata.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    const IMMUTABLE: [&str; 6] = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    let mut errors = Vec::new();
    for key in IMMUTABLE {
        let (was, is) = (&old["metadata"][key], &new["metadata"][key]);
        if was != is {
            errors.push(FieldError::invalid(
                format!("metadata.{key}"),
                is,
                "field is immutable",
            ));
        }
    }
    if old["metadata"]["deletionTimestamp"].is_string() {
        let before = finalizers(old);
        let mut added: Vec<&str> = finalizers(new);
        added.retain(|f| !before.contains(f));
        added.sort_unstable();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    // The real server checks twice, in general and for the kind, and reports what it finds both
    // times.
    let again = errors.clone();
    errors.extend(again);
    errors
}
