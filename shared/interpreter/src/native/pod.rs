//! Pod templates of workloads.

use serde_json::Value;

use super::kind::Kind;
use crate::read::field;

/// Returns the pod spec of a workload, of a Pod itself, or `None` for kinds without one. A workload
/// without a template has an empty pod.
pub(super) fn spec(object: &Value) -> Option<&Value> {
    let path: &[&str] = match Kind::of(object)? {
        Kind::Pod => &["spec"],
        Kind::CronJob => &["spec", "jobTemplate", "spec", "template", "spec"],
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::DaemonSet | Kind::Job => {
            &["spec", "template", "spec"]
        }
        _ => return None,
    };
    Some(field(object, path).unwrap_or(&Value::Null))
}
