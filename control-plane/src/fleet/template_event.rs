//! State of templates and kinds, and their changes.

use std::sync::Arc;

use muster_shared::watch::Change;

use super::template::{Template, TemplateKey};

/// What happened to a template.
#[derive(Debug)]
pub struct News {
    /// The template.
    pub key: TemplateKey,
    /// What happened.
    pub event: TemplateEvent,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateEvent {
    /// It is new to us.
    Appeared,
    /// Somebody changed more than the status and the claim of a policy.
    Changed,
    /// Only the claim of a policy changed.
    Marked,
    /// It is gone.
    Gone,
}

/// What is known about one template.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// It exists.
    Found(Arc<Template>),
    /// It does not exist: its kind has been listed, or is one whose objects are never templates.
    Absent,
    /// Nothing is known: the kind has not been listed. [`Parked`](super::parked::Parked) keys are worked on
    /// when it is.
    Unknown,
}

/// What is known about a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its objects are about the fleet itself, and never templates.
    Reserved,
    /// It is to be found out whether the API server has it.
    Sought,
    /// The API server does not have it.
    Missing,
    /// It exists and cannot be listed, watched and deleted, which templates must be.
    Unfit,
    /// It exists, and no list of it has arrived.
    Unlisted,
    /// Its objects are known.
    Listed,
}

/// What a change of the cache means; `None` for one that nobody needs to hear of, such as that of a
/// status.
pub(super) fn event(change: &Change<Template>) -> Option<TemplateEvent> {
    match change {
        Change::Applied { old: None, .. } => Some(TemplateEvent::Appeared),
        Change::Applied {
            old: Some(old),
            new,
        } if old.fingerprint() != new.fingerprint() => Some(TemplateEvent::Changed),
        Change::Applied {
            old: Some(old),
            new,
        } if old.content() != new.content() => Some(TemplateEvent::Marked),
        Change::Applied { .. } => None,
        Change::Deleted { .. } => Some(TemplateEvent::Gone),
    }
}
