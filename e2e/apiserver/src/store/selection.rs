//! Which objects a list or a watch is about.

use super::object::{Head, Object};
use crate::wire::selectors::{FieldRequirement, Requirement};

/// What an object must be to be listed or watched.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Requirements on labels, all of which must hold.
    pub labels: Vec<Requirement>,
    /// Requirements on fields, all of which must hold.
    pub fields: Vec<FieldRequirement>,
}

impl Selection {
    /// Returns whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether the object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.matches_head(&object.head)
    }

    /// Returns whether an object with this head is selected.
    pub fn matches_head(&self, head: &Head) -> bool {
        let label = |r: &Requirement| r.holds_for(head.label(&r.key));
        let field = |r: &FieldRequirement| r.holds_for(head.field(&r.field));
        self.labels.iter().all(label) && self.fields.iter().all(field)
    }
}
