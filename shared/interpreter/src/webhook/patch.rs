//! Applies the JSON patch of a webhook to the object that it was asked about. Pure.
//!
//! A patch that is short as text may make an object that is not: `copy` doubles. The growth is
//! limited while the patch is applied, by the limits of an API server and of a Work. So is the
//! work: each of many operations may shift a long list, or move a large part of the object.

use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchOperation};
use muster_shared::work_status::{extent, length};
use serde_json::Value;

/// Most operations of a patch (the API server's limit).
const MOST_OPERATIONS: usize = 10_000;
/// Most bytes that `copy` may add (the API server's limit).
const MOST_COPIED: usize = 3 << 20;
/// Elements that all operations together may move or read: some tens of milliseconds.
const MOST_WORK: usize = 4_000_000;
/// Bytes of the largest object: etcd's default limit for a request.
const LARGEST_OBJECT: usize = 1536 * 1024;
/// Levels of the deepest object. A Work adds some of its own, and readers of JSON end at 128.
const DEEPEST_OBJECT: usize = 100;
/// Fields that say which object it is.
const IDENTITY: [&str; 5] = [
    "/apiVersion",
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/uid",
];

/// Reads a patch.
pub(super) fn read(text: &[u8]) -> Result<Patch, String> {
    let patch: Patch =
        serde_json::from_slice(text).map_err(|error| format!("response.patch: {error}"))?;
    match patch.0.len() {
        0..=MOST_OPERATIONS => Ok(patch),
        more => Err(format!(
            "response.patch has {more} operations, more than {MOST_OPERATIONS}"
        )),
    }
}

/// Returns the object with the patch applied.
pub(super) fn apply(object: &Value, operations: &Patch) -> Result<Value, String> {
    let mut patched = object.clone();
    let (mut copied, mut work) = (0, Work(MOST_WORK));
    for operation in &operations.0 {
        let (path, placed) = match operation {
            PatchOperation::Add(it) => (&it.path, Some(&it.value)),
            PatchOperation::Replace(it) => (&it.path, Some(&it.value)),
            PatchOperation::Move(it) => {
                work.shift(&patched, &it.from)?;
                (&it.path, it.from.resolve(&patched).ok())
            }
            PatchOperation::Copy(it) => {
                let placed = it.from.resolve(&patched).ok();
                copied += placed.map_or(0, length);
                (&it.path, placed)
            }
            PatchOperation::Remove(it) => {
                work.shift(&patched, &it.path)?;
                step(&mut patched, operation)?;
                continue;
            }
            PatchOperation::Test(_) => {
                step(&mut patched, operation)?;
                continue;
            }
        };
        if copied > MOST_COPIED {
            return Err(format!(
                "response.patch copies more than {MOST_COPIED} bytes"
            ));
        }
        work.shift(&patched, path)?;
        let below = match placed {
            Some(placed) => work.levels(placed)?,
            None => 0,
        };
        if path.tokens().count() + below > DEEPEST_OBJECT {
            return Err(format!(
                "response.patch makes the object more than {DEEPEST_OBJECT} levels deep"
            ));
        }
        step(&mut patched, operation)?;
    }
    if length(&patched) > LARGEST_OBJECT {
        return Err(format!(
            "response.patch makes the object larger than {LARGEST_OBJECT} bytes"
        ));
    }
    let other = IDENTITY
        .iter()
        .find(|path| object.pointer(path) != patched.pointer(path));
    match other {
        Some(path) => Err(format!("response.patch changes {path}, which it must not")),
        None if !patched.is_object() => Err("response.patch leaves no object".to_owned()),
        None => Ok(patched),
    }
}

/// Elements that the operations of a patch may still move or read, beside those that they write.
struct Work(usize);

impl Work {
    fn spend(&mut self, elements: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(elements).ok_or_else(|| {
            format!("response.patch moves more than {MOST_WORK} elements of lists and objects")
        })?;
        Ok(())
    }

    /// Counts the elements of a list that make room, or close up, where an operation changes it.
    fn shift(&mut self, object: &Value, path: &Pointer) -> Result<(), String> {
        self.spend(1)?;
        if path.as_str().ends_with("/-") {
            return Ok(());
        }
        let parent = path.parent().and_then(|path| path.resolve(object).ok());
        let list = parent.and_then(Value::as_array);
        self.spend(list.map_or(0, Vec::len))
    }

    /// Returns the levels of a value that is placed.
    fn levels(&mut self, placed: &Value) -> Result<usize, String> {
        let (levels, elements) = extent(placed);
        self.spend(elements)?;
        Ok(levels)
    }
}

fn step(object: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    json_patch::patch(object, std::slice::from_ref(operation))
        .map_err(|error| format!("response.patch: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(operations: &Value) -> Result<Value, String> {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": { "name": "w", "namespace": "a", "uid": "u" }, "spec": { "size": 1 },
        });
        read(operations.to_string().as_bytes()).and_then(|patch| apply(&object, &patch))
    }

    #[test]
    fn a_patch_changes_the_object_and_never_which_object_it_is() {
        let size = json!([{ "op": "replace", "path": "/spec/size", "value": 3 }]);
        assert_eq!(patched(&size).unwrap()["spec"]["size"], 3);
        let replace =
            |path: &str, value: Value| json!([{ "op": "replace", "path": path, "value": value }]);
        let remove = |path: &str| json!([{ "op": "remove", "path": path }]);
        let renamed = replace("/metadata/name", json!("x"));
        let moved = json!([{ "op": "move", "from": "/metadata", "path": "/spec/m" }]);
        let tested = json!([{ "op": "test", "path": "/spec/size", "value": 2 }]);
        for (operations, reported) in [
            (renamed, "changes /metadata/name"),
            (remove("/metadata/uid"), "changes /metadata/uid"),
            (replace("/kind", json!("Secret")), "changes /kind"),
            (replace("", json!({})), "changes /apiVersion"),
            (moved, "changes /metadata/namespace"),
            (remove("/spec/absent"), "response.patch: "),
            (tested, "response.patch: "),
            (json!({ "op": "add" }), "response.patch: "),
        ] {
            let error = patched(&operations).unwrap_err();
            assert!(error.contains(reported), "{operations}: {error}");
        }
    }

    #[test]
    fn a_patch_whose_operations_take_too_much_work_is_refused() {
        let list = json!({ "op": "add", "path": "/spec/l", "value": vec![0; 200_000] });
        let front = json!({ "op": "add", "path": "/spec/l/0", "value": 1 });
        let end = json!({ "op": "move", "from": "/spec/l/0", "path": "/spec/l/-" });
        let there = json!({ "op": "move", "from": "/spec/l", "path": "/spec/m" });
        let back = json!({ "op": "move", "from": "/spec/m", "path": "/spec/l" });
        let first = json!({ "op": "remove", "path": "/spec/l/0" });
        for (what, repeated) in [
            ("inserted", vec![front]),
            ("turned", vec![end]),
            ("moved as a whole", vec![there, back]),
            ("removed", vec![first]),
        ] {
            let mut operations = vec![list.clone()];
            operations.extend(repeated.iter().cycle().take(9_000).cloned());
            let error = patched(&json!(operations)).unwrap_err();
            assert!(error.contains("moves more than"), "{what}: {error}");
        }
        // As many operations that each do a little are carried out.
        let mut operations = vec![json!({ "op": "add", "path": "/spec/l", "value": vec![0; 100] })];
        let turn = json!({ "op": "move", "from": "/spec/l/0", "path": "/spec/l/-" });
        operations.extend(vec![turn; 9_000]);
        assert!(patched(&json!(operations)).is_ok());
    }

    #[test]
    fn a_patch_that_grows_beyond_all_measure_is_refused_while_it_is_applied() {
        let copy = |to: &str| json!({ "op": "copy", "from": "/spec", "path": to });
        let wide: Vec<Value> = (0..60).map(|at| copy(&format!("/spec/{at}"))).collect();
        let deep: Vec<Value> = (0..120).map(|_| copy("/spec/a")).collect();
        let long: Vec<Value> = vec![json!({ "op": "test", "path": "", "value": 1 }); 10_001];
        let large = "x".repeat(LARGEST_OBJECT);
        let added = json!([{ "op": "add", "path": "/spec/a", "value": large }]);
        for (operations, reported) in [
            (json!(wide), "copies more than"),
            (json!(deep), "levels deep"),
            (json!(long), "10001 operations"),
            (added, "larger than"),
        ] {
            let error = patched(&operations).unwrap_err();
            assert!(error.contains(reported), "{error}");
        }
    }
}
