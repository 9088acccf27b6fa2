//! Values of JSON.

use serde_json::Value;

/// Returns the texts of a list; what is no text, or no list, is left out.
pub fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
