//! The three patch forms that change a document without a field manager: JSON, merge and strategic
//! merge.

mod json;
mod strategic;

pub use json::json;
pub use strategic::strategic;

use serde_json::Value;

/// Why a patch could not be applied; the server answers with the status code beside each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch document itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well formed but does not fit the object (a `test` that fails, a missing
    /// path): 422.
    #[error("{0}")]
    Unprocessable(String),
}

/// Returns `live` with a JSON merge patch (RFC 7386) laid over it.
pub fn merge(live: &Value, patch: &Value) -> Value {
    let mut merged = live.clone();
    json_patch::merge(&mut merged, patch);
    merged
}

#[cfg(test)]
mod tests;
