//! What somebody wants to do, as roles and reviews say it.

/// What somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, ...
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Namespace, empty for all of them or for cluster-scoped resources.
    pub namespace: String,
    /// Name, empty for collections.
    pub name: String,
    /// A path that is no resource; the fields about resources are empty then.
    pub path: Option<String>,
}
