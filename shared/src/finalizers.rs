//! Finalizers of objects: a list in which each writer owns one entry, and which a merge patch
//! replaces as a whole.

use serde_json::{Value, json};

use crate::k8s::ObjectMeta;

/// Returns whether an object has a finalizer.
pub fn has(object: &ObjectMeta, finalizer: &str) -> bool {
    object.finalizers.iter().flatten().any(|it| it == finalizer)
}

/// Returns the finalizers of an object with one more, `None` if it has that already.
pub fn with<'a>(object: &'a ObjectMeta, finalizer: &'a str) -> Option<Vec<&'a str>> {
    let all = object.finalizers.iter().flatten().map(String::as_str);
    (!has(object, finalizer)).then(|| all.chain([finalizer]).collect())
}

/// Returns the merge patch that takes a finalizer off an object as it was read, and leaves those of
/// others.
pub fn release(object: &ObjectMeta, finalizer: &str) -> Value {
    let all = object.finalizers.iter().flatten();
    let others: Vec<&String> = all.filter(|it| *it != finalizer).collect();
    json!({"metadata": {"resourceVersion": object.resource_version, "finalizers": others}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_taken_off_beside_those_of_others() {
        for (finalizers, kept, held) in [
            (json!(["ours"]), json!([]), true),
            (json!(["other", "ours"]), json!(["other"]), true),
            (json!(["other"]), json!(["other"]), false),
            (json!(null), json!([]), false),
        ] {
            let object = json!({"resourceVersion": "7", "finalizers": finalizers});
            let object: ObjectMeta = serde_json::from_value(object).unwrap();
            assert_eq!(has(&object, "ours"), held, "{finalizers}");
            let expected = json!({"metadata": {"resourceVersion": "7", "finalizers": kept}});
            assert_eq!(release(&object, "ours"), expected);
        }
    }
}
