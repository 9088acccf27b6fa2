//! Finalizers of objects: a list in which each writer owns one entry, and which a merge patch
//! replaces as a whole.

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

/// Returns the finalizers of an object without one.
pub fn without<'a>(object: &'a ObjectMeta, finalizer: &str) -> Vec<&'a str> {
    let all = object.finalizers.iter().flatten().map(String::as_str);
    all.filter(|it| *it != finalizer).collect()
}
