//! Errors while the binding of a template is reconciled.

use super::build;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;

/// Errors while the binding of a template is reconciled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("build the binding: {0}")]
    Build(#[from] build::Error),
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The policy names what is not there.
    #[error("{0}")]
    Awaited(String),
    #[error("{failed} templates failed; the first: {first}")]
    Some { failed: usize, first: Box<Self> },
    #[error("{binding} is there and cannot be read: repair or delete it")]
    Unreadable { binding: BindingKey },
}
