//! What a pod needs: the objects that it refers to, and what it asks of a node. One rule for
//! scripts, which reach it as `require("kube")`, and for the kinds of Kubernetes.

mod read;
mod references;
mod requirements;

use serde_json::Value;

pub(crate) use self::references::dependencies;
pub use self::references::{References, references};
pub use self::requirements::requirements;
pub use crate::pod::read::Unread;
use crate::pod::read::field;
use muster_shared::api::binding::ReplicaRequirements;

/// ReplicaRequirements of a pod of a template; `None` if it has none.
pub(crate) fn of_template(template: &Value) -> Result<Option<ReplicaRequirements>, Unread> {
    requirements(field(template, &["spec"]).unwrap_or(&Value::Null))
}
