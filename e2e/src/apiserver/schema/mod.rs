//! What an object of some kind may look like: field types, list types, defaults and rules, for built-in kinds and
//! for CRDs alike.

mod error;

pub use error::{FieldError, Reason, aggregate};

use serde_json::Value;

use super::kinds::Kind;

/// The shape of one kind. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {}

impl Schema {
    /// The schema of a built-in kind.
    pub fn builtin(_kind: &'static Kind) -> Self {
        Self {}
    }

    /// The schema of one version of a CRD (the whole `CustomResourceDefinition` object).
    /// The CRD must have passed [`check_crd`].
    pub fn of_crd(_crd: &Value, _version: &str) -> Result<Self, FieldError> {
        Ok(Self {})
    }

    /// Reads a request body as the real server's decoder would: a wrong type is refused (400, the message is
    /// returned), spellings are made canonical (quantities, times), and for built-in kinds what Go would not
    /// have kept (`null`, empty optional fields) disappears. Call first, before [`Schema::prune`].
    pub fn decode(&self, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// Removes fields that the schema does not know; their paths are returned (`spec.foo`, `spec.a[0].b`), which is
    /// what `fieldValidation` reports as `unknown field "spec.foo"`.
    pub fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    /// Fills in what the real server would.
    pub fn default(&self, _object: &mut Value) {}

    /// What is wrong with `new`, as create (`old` is `None`) or as update of `old`.
    pub fn validate(&self, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }
}

/// What is wrong with a `CustomResourceDefinition`: names, versions, and whether its schemas are structural.
pub fn check_crd(_crd: &Value) -> Vec<FieldError> {
    Vec::new()
}
