//! Labels and annotations, read alike in whatever has them.

use kube::core::ObjectMeta;

/// Object or metadata with labels and annotations.
pub trait Labelled {
    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str>;

    /// Returns the value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
}

impl Labelled for ObjectMeta {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
