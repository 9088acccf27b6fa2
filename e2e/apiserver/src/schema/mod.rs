//! What an object of some kind may look like: field types, list types, defaults and rules, for
//! built-in kinds and for CRDs alike.

mod build;
pub mod builtin;
pub mod cel;
mod check;
mod conditional;
mod crd;
mod decode;
mod defaults;
mod expressions;
mod facts;
mod format;
mod known;
pub mod node;
mod quantity;
mod rules;
mod structural;
mod validate;
mod walk;

use std::sync::Arc;

use node::{At, Id, Node};
use serde_json::{Value, json};

use crate::catalog::Kind;
use crate::wire::field_error::FieldError;

/// The shape of one kind. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {
    arena: Arc<[Node]>,
    root: Id,
    origin: Origin,
}

/// Whose schema it is: rules beyond the structure hang on it.
#[derive(Debug, Clone)]
enum Origin {
    Builtin(&'static Kind),
    /// Whether there is a status subresource.
    Custom {
        status: bool,
    },
}

impl Schema {
    /// Returns the schema of a built-in kind.
    pub fn builtin(kind: &'static Kind) -> Self {
        let root = builtin::ARENA
            .root(&builtin::definition_name(kind))
            .unwrap_or_default();
        Self {
            arena: builtin::ARENA.nodes.clone(),
            root,
            origin: Origin::Builtin(kind),
        }
    }

    /// Returns the schema of one version of a CRD (the whole `CustomResourceDefinition` object).
    /// The CRD must have passed the check of its kind.
    pub fn of_crd(crd: &Value, version: &str) -> Result<Self, FieldError> {
        let versions = crd["spec"]["versions"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let Some(version) = versions.iter().find(|v| v["name"] == version) else {
            return Err(FieldError::not_found(
                "spec.versions",
                &Value::from(version),
            ));
        };
        let mut builder = build::Builder::new(&builtin::DEFINITIONS);
        let root = builder.custom_root(&version["schema"]["openAPIV3Schema"]);
        let status = version["subresources"]["status"].is_object();
        Ok(Self {
            arena: builder.finish().0,
            root,
            origin: Origin::Custom { status },
        })
    }

    /// Returns the position at which walks along an object start.
    pub fn root(&self) -> At<'_> {
        At::new(&self.arena, self.root)
    }

    /// Returns an object of the kind in which nothing is set: a creation is compared with it.
    /// Built-in kinds print empty structs even then.
    pub fn empty(&self, api_version: &str, kind: &str) -> Value {
        let mut empty = json!({"apiVersion": api_version, "kind": kind});
        // Nothing in it can be of a wrong type.
        let _ = self.decode(&mut empty);
        empty
    }

    /// Fields that a write to the object (`""`) or a subresource cannot change, as paths of names.
    pub fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match (&self.origin, subresource) {
            (Origin::Builtin(kind), "") if kind.has("status") => &[&["status"]],
            (Origin::Custom { status: true }, "") => &[&["status"]],
            (Origin::Custom { .. }, "status") => &[&["metadata"], &["spec"]],
            (Origin::Builtin(kind), "status") => match (kind.group, kind.kind) {
                ("apps" | "batch", _) => &[&["spec"], &["metadata", "labels"]],
                ("", "Pod") => &[
                    &["spec"],
                    &["metadata", "deletionTimestamp"],
                    &["metadata", "ownerReferences"],
                ],
                ("apiextensions.k8s.io", _) => &[&["metadata"], &["spec"]],
                _ => &[&["spec"]],
            },
            _ => &[],
        }
    }

    /// Reads a request body as the real server's decoder would: a wrong type is refused (400, the
    /// message is returned), spellings are made canonical (quantities, times), and for built-in
    /// kinds what Go would not have kept (`null`, empty optional fields) disappears. RequestContext
    /// first, before [`Schema::prune`].
    ///
    /// The message is what follows `Deployment in version "v1" cannot be handled as a Deployment:
    /// `.
    pub fn decode(&self, object: &mut Value) -> Result<(), String> {
        match self.origin {
            Origin::Builtin(_) => decode::decode(self.root(), object),
            // Of a custom object the server decodes metadata alone; types are a matter of
            // validation.
            Origin::Custom { .. } => {
                if let (Some(at), Some(metadata)) =
                    (self.root().field("metadata"), object.get_mut("metadata"))
                {
                    decode::metadata(at, metadata)?;
                }
                Ok(())
            }
        }
    }

    /// Removes fields that the schema does not know; their paths are returned (`spec.foo`,
    /// `spec.a[0].b`), which is what `fieldValidation` reports as `unknown field "spec.foo"`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        walk::prune(self.root(), object, "", &mut unknown);
        if matches!(self.origin, Origin::Custom { .. }) {
            unknown.sort();
        }
        unknown
    }

    /// Fills in what the real server would. The object has been decoded, which prints its empty
    /// structs.
    pub fn default(&self, object: &mut Value) {
        walk::default(self.root(), object);
        match self.origin {
            Origin::Builtin(kind) => conditional::conditional(kind, object),
            Origin::Custom { .. } => walk::drop_nulls(self.root(), object),
        }
    }

    /// Returns what is wrong with `new`, as create (`old` is `None`) or as update of `old`.
    ///
    /// Names, labels and the rest of `metadata` are not checked: they have rules of their own.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match self.origin {
            Origin::Builtin(kind) => check::builtin(kind, new, old),
            Origin::Custom { .. } => validate::validate(self.root(), new, old),
        }
    }
}

#[cfg(test)]
mod tests;
