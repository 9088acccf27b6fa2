//! The three patch forms that change a document without a field manager: JSON, merge and strategic
//! merge.

mod json;
mod merge;
mod strategic;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

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

#[cfg(test)]
mod tests;

/// A value as Go's `%+v` prints what was decoded from JSON: some messages quote patches so.
pub fn in_go(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(in_go).collect::<Vec<_>>().join(" ")
            )
        }
        Value::Object(members) => {
            let members = members.iter().map(|(k, v)| format!("{k}:{}", in_go(v)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}
