//! Errors while the binding of a template is reconciled.

use super::build;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::policy::PolicyKey;

/// Errors while the binding of a template is reconciled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("build the binding: {0}")]
    Build(#[from] build::Error),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{0}")]
    Overrides(String),
    #[error(
        "{policy} takes its schedule priority from {class:?}, which is no PriorityClass: make it, or name another"
    )]
    PriorityClass { policy: PolicyKey, class: String },
    #[error("{failed} templates failed; the first: {first}")]
    Some { failed: usize, first: Box<Self> },
    #[error("{binding} is there and cannot be read: repair or delete it")]
    Unreadable { binding: BindingKey },
}
