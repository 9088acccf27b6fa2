//! Patches of manifests, of their labels and annotations, and of documents inside them.

use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use muster_shared::api::override_policy::{
    FieldOperation, FieldOverrider, LabelAnnotationOverrider, OverriderOperator, PlaintextOverrider,
};
use muster_shared::work_status::length;
use serde_json::{Map, Value, json};

use super::limits::{Bounded, DOCUMENT, Room};
use super::{pointer, yaml};

/// Path, operator and value of one change.
type Step<'a> = (&'a str, &'a OverriderOperator, Option<&'a Value>);

/// Makes one operation of a JSON patch of a document.
fn operation(
    document: &Value,
    (path, operator, value): Step<'_>,
) -> Result<PatchOperation, String> {
    let path = pointer::parse(path)?;
    let path = pointer::resolve(&path, document, *operator == OverriderOperator::Add);
    let value = value.cloned().unwrap_or(Value::Null);
    match operator {
        OverriderOperator::Add => Ok(PatchOperation::Add(AddOperation { path, value })),
        OverriderOperator::Replace => Ok(PatchOperation::Replace(ReplaceOperation { path, value })),
        OverriderOperator::Remove => Ok(PatchOperation::Remove(RemoveOperation { path })),
        OverriderOperator::Other(other) => Err(format!(
            "operator {other:?} is not known: use add, remove or replace"
        )),
    }
}

/// Makes changes of a document of so many bytes one after the other, up to the first that fails.
/// The path of each is resolved against what those before it leave.
fn apply<'a>(
    document: &mut Value,
    mut size: usize,
    steps: impl Iterator<Item = Step<'a>>,
    room: &mut Room,
) -> Result<(), String> {
    for (at, step) in steps.enumerate() {
        size += step.2.map_or(0, length);
        room.read(size)?;
        let operation = operation(document, step)?;
        json_patch::patch(document, &[operation]).map_err(|mut error| {
            error.operation = at;
            error.to_string()
        })?;
    }
    Ok(())
}

/// Applies all operations as one patch of the manifest: all of them or none.
///
/// # Errors
/// A text that names the operation that fails.
pub(super) fn plaintext(
    manifest: &mut Value,
    list: &[PlaintextOverrider],
    room: &mut Room,
) -> Result<(), String> {
    let mut changed = manifest.clone();
    let steps = list.iter();
    apply(
        &mut changed,
        room.held(),
        steps.map(|it| (&*it.path, &it.operator, it.value.as_ref())),
        room,
    )?;
    *manifest = changed;
    Ok(())
}

/// Changes labels or annotations (`field` of the metadata).
///
/// # Errors
/// A text that names an operator that is not known.
pub(super) fn pairs(
    manifest: &mut Value,
    field: &str,
    overrider: &LabelAnnotationOverrider,
) -> Result<(), String> {
    let held = &mut manifest["metadata"][field];
    if !held.is_object() {
        if overrider.operator != OverriderOperator::Add {
            return Ok(());
        }
        *held = Value::Object(Map::new());
    }
    let Some(held) = held.as_object_mut() else {
        return Ok(());
    };
    for (key, value) in &overrider.value {
        match &overrider.operator {
            OverriderOperator::Add => _ = held.insert(key.clone(), json!(value)),
            OverriderOperator::Replace => {
                if let Some(known) = held.get_mut(key) {
                    *known = json!(value);
                }
            }
            OverriderOperator::Remove => _ = held.remove(key),
            OverriderOperator::Other(other) => {
                return Err(format!(
                    "operator {other:?} is not known: use add, remove or replace"
                ));
            }
        }
    }
    Ok(())
}

/// Changes a document that the manifest holds as a text.
///
/// # Errors
/// A text that says which field holds no document, or which operation fails. It quotes nothing of
/// the document, which may be from a Secret.
pub(super) fn document(
    manifest: &mut Value,
    overrider: &FieldOverrider,
    room: &mut Room,
) -> Result<(), String> {
    let path = &overrider.field_path;
    let text = pointer::text(manifest, path)?;
    let in_place = |reason: String| format!("the field {path}: {reason}");
    let limit = room.bytes() + text.len();
    room.read(DOCUMENT * text.len()).map_err(in_place)?;
    let changed = match (&*overrider.json, &*overrider.yaml) {
        (operations, []) => read_json(text)
            .and_then(|document| edit(document, text.len(), operations, room))
            .and_then(|document| write_json(&document, limit)),
        ([], operations) => yaml::read(text)
            .and_then(|document| edit(document, text.len(), operations, room))
            .and_then(|document| yaml::write(&document, limit)),
        _ => Err("json and yaml exclude each other".to_owned()),
    };
    let changed = changed.map_err(in_place)?;
    room.take(changed.len().saturating_sub(text.len()))?;
    *text = changed;
    Ok(())
}

/// Reads a document.
///
/// # Errors
/// A text that says where it is no JSON, or that it has an integer which would lose digits when the
/// document is written anew as a whole; never a value.
fn read_json(text: &str) -> Result<Value, String> {
    let document = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the text is no JSON document at line {line}, column {column}")
    })?;
    if numbers(text).any(is_cut) {
        return Err(
            "the document has an integer of more than 64 bits: write it in quotation marks"
                .to_owned(),
        );
    }
    Ok(document)
}

/// Returns what of a JSON document may be a number.
fn numbers(document: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    document.split(move |character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' if !was_escaped => is_escaped = true,
            _ => {}
        }
        is_quoted || !(character.is_ascii_digit() || "+-.eE".contains(character))
    })
}

/// Returns whether a text is an integer that has more than 64 bits.
fn is_cut(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<i64>().is_err()
        && text.parse::<u64>().is_err()
}

fn write_json(document: &Value, limit: usize) -> Result<String, String> {
    Bounded::text(limit, |text| serde_json::to_writer(text, document))
}

/// Changes a document that was a text of so many bytes.
fn edit(
    mut document: Value,
    size: usize,
    operations: &[FieldOperation],
    room: &mut Room,
) -> Result<Value, String> {
    let steps = operations.iter();
    apply(
        &mut document,
        size,
        steps.map(|it| (&*it.sub_path, &it.operator, it.value.as_ref())),
        room,
    )?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::super::limits::MOST_READ;
    use super::*;

    fn room() -> Room {
        Room::beside(&json!({})).unwrap()
    }

    fn plain(value: Value, operations: Value) -> Result<Value, String> {
        let list: Vec<PlaintextOverrider> = serde_json::from_value(operations).unwrap();
        let mut manifest = value;
        plaintext(&mut manifest, &list, &mut room()).map(|()| manifest)
    }

    #[test]
    fn a_patch_is_applied_as_a_whole_or_not_at_all() {
        let spec = json!({ "spec": { "replicas": 1, "list": [1, 2] } });
        let patched = plain(
            spec.clone(),
            json!([
                { "path": "/spec/replicas", "operator": "replace", "value": 5 },
                { "path": "/spec/list/0", "operator": "remove" },
                { "path": "/spec/list/-", "operator": "add", "value": { "a": null } },
                { "path": "/spec/empty", "operator": "add", "value": null },
            ]),
        );
        let expected =
            json!({ "spec": { "replicas": 5, "list": [2, { "a": null }], "empty": null } });
        assert_eq!(patched, Ok(expected));
        let from_end = plain(
            json!({ "list": [1, 2, 3] }),
            json!([
                { "path": "/list/-1", "operator": "remove" },
                { "path": "/list/-1", "operator": "replace", "value": 5 },
                { "path": "/list/-1", "operator": "add", "value": 6 },
                { "path": "/list/-2", "operator": "add", "value": 7 },
            ]),
        );
        assert_eq!(from_end, Ok(json!({ "list": [1, 5, 7, 6] })));
        for (path, operator, has_value, reason) in [
            ("/spec/x", "remove", false, "/spec/x"),
            ("/a/b", "add", true, "/a/b"),
            ("/spec/x", "replace", true, "/spec/x"),
            ("spec", "replace", true, "no JSON pointer"),
            ("/spec", "copy", false, "add, remove or replace"),
        ] {
            let mut operation = json!({ "path": path, "operator": operator });
            if has_value {
                operation["value"] = json!(1);
            }
            let error = plain(spec.clone(), json!([operation])).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        let mut kept = spec.clone();
        let half = serde_json::from_value::<Vec<_>>(json!([
            { "path": "/spec/replicas", "operator": "replace", "value": 5 },
            { "path": "/spec/x", "operator": "remove" },
        ]));
        assert!(plaintext(&mut kept, &half.unwrap(), &mut room()).is_err());
        assert_eq!(kept, spec);
    }

    #[test]
    fn keys_of_labels_are_set_replaced_and_removed() {
        for (held, operator, value, expected) in [
            (
                json!({}),
                "add",
                json!({ "a/b": "1" }),
                json!({ "labels": { "a/b": "1" } }),
            ),
            (
                json!({ "labels": { "a": "0" } }),
                "add",
                json!({ "a": "1", "b": "2" }),
                json!({ "labels": { "a": "1", "b": "2" } }),
            ),
            (
                json!({ "labels": { "a": "0" } }),
                "replace",
                json!({ "a": "1", "b": "2" }),
                json!({ "labels": { "a": "1" } }),
            ),
            (
                json!({ "labels": { "a": "0", "c": "3" } }),
                "remove",
                json!({ "a": "other", "b": "" }),
                json!({ "labels": { "c": "3" } }),
            ),
        ] {
            let overrider: LabelAnnotationOverrider =
                serde_json::from_value(json!({ "operator": operator, "value": value })).unwrap();
            let mut manifest = json!({ "metadata": held });
            pairs(&mut manifest, "labels", &overrider).unwrap();
            assert_eq!(manifest["metadata"], expected, "{overrider:?}");
        }
        let overrider: LabelAnnotationOverrider =
            serde_json::from_value(json!({ "operator": "remove", "value": { "a": "" } })).unwrap();
        let mut manifest = json!({ "metadata": { "name": "web" } });
        pairs(&mut manifest, "labels", &overrider).unwrap();
        assert_eq!(manifest["metadata"]["labels"], Value::Null);
    }

    fn in_document(text: &str, kind: &str, operations: &Value) -> Result<String, String> {
        let overrider: FieldOverrider =
            serde_json::from_value(json!({ "fieldPath": "/data/config", kind: operations }))
                .unwrap();
        let mut manifest = json!({ "data": { "config": text, "number": 1 } });
        document(&mut manifest, &overrider, &mut room())
            .map(|()| manifest["data"]["config"].as_str().unwrap().to_owned())
    }

    #[test]
    fn documents_inside_a_field_are_changed() {
        let operations = json!([
            { "subPath": "/db/host", "operator": "replace", "value": "eu" },
            { "subPath": "/db/ports/0", "operator": "remove" },
        ]);
        let json = in_document(
            r#"{"db": {"host": "us", "ports": [1, 2]}}"#,
            "json",
            &operations,
        );
        assert_eq!(json.as_deref(), Ok(r#"{"db":{"host":"eu","ports":[2]}}"#));
        let yaml = in_document(
            "db:\n  host: us # here\n  ports: [1, 2]\n",
            "yaml",
            &operations,
        )
        .unwrap();
        let read: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read, json!({ "db": { "host": "eu", "ports": [2] } }));
    }

    #[test]
    fn a_json_document_with_an_integer_that_would_lose_digits_is_refused() {
        let operations = json!([{ "subPath": "/a", "operator": "add", "value": 1 }]);
        let change = |text: &str| in_document(text, "json", &operations);
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
        ] {
            for text in [
                format!("{{\"SECRET\": {number}}}"),
                format!("{{\"SECRET\\\"\":[\"\\\\\",{number}]}}"),
            ] {
                let error = change(&text).unwrap_err();
                assert!(error.contains("more than 64 bits"), "{text}: {error}");
                assert!(!error.contains("SECRET"), "{error}");
            }
            let quoted = format!("{{\"a\":1,\"b\":\"\\\"{number}\"}}");
            assert_eq!(change(&quoted), Ok(quoted));
        }
        for number in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e300",
            "0.5",
            "true",
        ] {
            let text = format!("{{\"a\":1,\"b\":{number}}}");
            assert!(change(&text).is_ok(), "{number}");
        }
    }

    #[test]
    fn a_document_is_not_read_and_changed_without_end() {
        let text = json!({ "a": 0 }).to_string();
        for kind in ["json", "yaml"] {
            let operations = json!([{ "subPath": "/a", "operator": "replace", "value": 7 }]);
            let overrider: FieldOverrider =
                serde_json::from_value(json!({ "fieldPath": "/data/a", kind: operations }))
                    .unwrap();
            let mut manifest = json!({ "data": { "a": text } });
            let mut room = room();
            let once = DOCUMENT * text.len() + text.len() + "7".len();
            room.read(MOST_READ - once).unwrap();
            document(&mut manifest, &overrider, &mut room).unwrap();
            let error = document(&mut manifest, &overrider, &mut room).unwrap_err();
            assert!(error.contains("too often"), "{kind}: {error}");
        }
    }

    #[test]
    fn a_field_that_holds_no_document_is_named() {
        for (path, kind, reason) in [
            ("/data/missing", "json", "has no field /data/missing"),
            ("/data/number", "json", "/data/number is no text"),
            ("/data/config", "json", "the field /data/config: "),
            ("/data/config", "yaml", "the field /data/config: "),
            ("data", "yaml", "no JSON pointer"),
        ] {
            let overrider: FieldOverrider = serde_json::from_value(json!({
                "fieldPath": path, kind: [{ "subPath": "/a", "operator": "remove" }],
            }))
            .unwrap();
            let mut manifest = json!({ "data": { "config": "{SECRET", "number": 1 } });
            let error = document(&mut manifest, &overrider, &mut room()).unwrap_err();
            assert!(error.contains(reason), "{path}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
}
