//! JSON patch, RFC 6902, with the limits and messages of a Kubernetes API server.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// More operations than this are refused, as by a real API server.
const MAX_OPERATIONS: usize = 10_000;

/// `live` after the operations of `patch`, or why one of them does not fit.
pub fn json(live: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = patch.as_array().map_or(0, Vec::len);
    if operations > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {operations}"
        )));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    let mut patched = live.clone();
    for operation in patch.0 {
        let operation = lenient(operation, &patched);
        json_patch::patch(&mut patched, std::slice::from_ref(&operation))
            .map_err(|_| PatchError::Unprocessable(in_go(&operation, &patched)))?;
    }
    Ok(patched)
}

/// The real server lets `replace` set a member that isn't there yet, as long as there is an object
/// to have it.
fn lenient(operation: PatchOperation, live: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if replace.path.resolve(live).is_err() => {
            PatchOperation::Add(AddOperation {
                path: replace.path,
                value: replace.value,
            })
        }
        other => other,
    }
}

/// What Go's library says of an operation that could not be carried out.
fn in_go(operation: &PatchOperation, live: &Value) -> String {
    let path = operation.path();
    let key = path
        .last()
        .map_or_else(String::new, |t| t.decoded().into_owned());
    let homeless = path.parent().is_none_or(|p| p.resolve(live).is_err());
    match operation {
        PatchOperation::Remove(_) if homeless => format!(
            "remove operation does not apply: doc is missing path: \"{path}\": missing value"
        ),
        PatchOperation::Remove(_) => format!(
            "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
        ),
        PatchOperation::Test(_) => format!("testing value {path} failed: test failed"),
        PatchOperation::Add(_) => {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        PatchOperation::Replace(_) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        PatchOperation::Move(_) | PatchOperation::Copy(_) => {
            format!("error in copy for path: '{path}': missing value")
        }
    }
}
