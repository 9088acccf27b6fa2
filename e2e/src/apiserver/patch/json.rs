//! JSON patch, RFC 6902, with the limits and messages of a Kubernetes API server.

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
    json_patch::patch(&mut patched, &patch)
        .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    Ok(patched)
}
