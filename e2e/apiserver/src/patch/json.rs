//! JSON patch, RFC 6902.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// Returns `live` after the operations of `patch`, or why one of them does not fit.
pub fn json(live: &Value, patch: &Value) -> Result<Value, PatchError> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    let mut patched = live.clone();
    for operation in patch.0 {
        let operation = lenient(operation, &patched);
        json_patch::patch(&mut patched, std::slice::from_ref(&operation))
            .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    }
    Ok(patched)
}

/// Replaces a `replace` of a member that isn't there yet by an `add`: the real server lets
/// `replace` set such a member, as long as there is an object to have it.
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
