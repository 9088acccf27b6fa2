//! Server-side apply and field management: who owns which field of an object.

use jiff::Timestamp;
use serde_json::Value;

use super::schema::Schema;

/// One field that another manager holds with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "kubectl-client-side-apply" using apps/v1`: the `message` of the cause.
    pub message: String,
    /// `.spec.replicas`: the `field` of the cause.
    pub field: String,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 `Conflict`; each cause has reason `FieldManagerConflict`.
    #[error("{message}")]
    Conflicts {
        /// `Apply failed with 1 conflict: conflict with "x": .spec.replicas`
        message: String,
        /// The causes, in the order of the message.
        conflicts: Vec<Conflict>,
    },
    /// 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// 500 with the message of the real server: the configuration does not fit the schema.
    #[error("{0}")]
    Typed(String),
}

/// `live` after manager `manager` applied `config`, its managed fields brought up to date. `live` is `None` when the
/// object does not exist yet. `subresource` is empty for the object itself. Defaults are not filled in.
#[allow(clippy::too_many_arguments)]
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    _manager: &str,
    _api_version: &str,
    _subresource: &str,
    _force: bool,
    _schema: &Schema,
    _now: Timestamp,
) -> Result<Value, ApplyError> {
    Ok(match live {
        Some(live) => super::patch::merge(live, config),
        None => config.clone(),
    })
}

/// Brings `new.metadata.managedFields` up to date after a write that was not an apply (`old` is `None` on create).
/// `new` is complete: defaulted, with whatever the request said in `managedFields`.
pub fn track_update(
    _old: Option<&Value>,
    _new: &mut Value,
    _manager: &str,
    _api_version: &str,
    _subresource: &str,
    _schema: &Schema,
    _now: Timestamp,
) {
}
