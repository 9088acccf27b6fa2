//! State of templates and kinds, and their changes.

use std::sync::Arc;

use muster_shared::watch::Change;

use super::template::{Template, TemplateKey};

/// Event of a template.
#[derive(Debug)]
pub struct TemplateChange {
    /// The template.
    pub key: TemplateKey,
    /// The event.
    pub event: TemplateEvent,
}

/// Change of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateEvent {
    /// The template is new in the cache.
    Appeared,
    /// More than the status and the claim of a policy has changed.
    Changed,
    /// Only the claim of a policy has changed.
    Marked,
    /// The template was removed.
    Gone,
}

/// Result of looking a template up.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The template exists.
    Found(Arc<Template>),
    /// The template does not exist: its kind has been listed, or its objects are never templates.
    Absent,
    /// The kind has not been listed. [`Parked`](super::parked::Parked) keys are reconciled when it
    /// is.
    Unknown,
}

/// State of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindState {
    /// Objects of the kind belong to the fleet itself and are never templates.
    Reserved,
    /// Discovery of the kind has not finished.
    Sought,
    /// The API server does not serve the kind.
    Missing,
    /// The kind cannot be listed, watched and deleted, as templates must be.
    Unfit,
    /// The kind exists and has not been listed yet.
    Unlisted,
    /// The kind has been listed.
    Listed,
}

/// Returns what a change of the cache means; `None` for one that concerns nobody, such as
/// that of a status.
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
