//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Strategy;

pub(super) struct Secrets;

impl Strategy for Secrets {
    fn prepare_for_create(&self, object: &mut Value) {
        fold_strings(object);
    }

    fn prepare_for_update(&self, _: &Value, new: &mut Value) {
        fold_strings(new);
    }
}

/// Moves `stringData`, which is for writing only, into `data`.
fn fold_strings(object: &mut Value) {
    let Some(Value::Object(strings)) = object.as_object_mut().and_then(|o| o.remove("stringData"))
    else {
        return;
    };
    for (key, value) in strings {
        object["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}
