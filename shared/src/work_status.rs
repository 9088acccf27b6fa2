//! Limits on the status that is copied from a member to the fleet.
//!
//! A status is copied into the Work and then into the binding, once per cluster. Each of these is
//! one object, which the API server limits in size and nesting. A custom resource may have any
//! status; a status over the limits is left out, and only the health is reported.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::annotation;

/// Maximum size of a status in bytes of JSON. Statuses of workloads have some hundred bytes; etcd
/// stores at most 1.5 MB per object.
pub const LONGEST_STATUS: usize = 64 * 1024;
/// Maximum nesting of a status. Parsers stop at 128 levels, of which the Work and the binding take
/// some.
pub const DEEPEST_STATUS: usize = 64;

/// Field that the agent adds to the status of an object whose number of replicas it leaves to an
/// autoscaler of the member: the name of the field manager that set the number.
pub const REPLICAS_LEFT: &str = "replicasLeftToAutoscaler";

/// Field that the agent adds to the status of a task that has run to its end, such as a Job: the
/// name of the manifest that it was made from.
pub const COMPLETED_MANIFEST: &str = "completedManifest";

/// Field that the agent adds to the status of an object that has the annotation
/// [`DATA_ROLE`](crate::names::annotation::DATA_ROLE).
pub const DATA_ROLE: &str = "dataRole";

/// What the agent adds to such a status: the state of the object that the status belongs to. A
/// status without it may be older than the role that the object was given last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeenRole {
    /// Number of the step in which the object was given its role.
    pub step: u32,
    /// Generation of the object.
    pub generation: i64,
}

impl SeenRole {
    /// Reads an object in a member; `None` if it has no role.
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let step = metadata["annotations"][annotation::DATA_ROLE].as_str()?;
        Some(Self {
            step: step.parse().ok()?,
            generation: metadata["generation"].as_i64().unwrap_or_default(),
        })
    }
}

/// Reason why a status is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Excess {
    /// The status is too large.
    #[error(
        "the status takes {bytes} bytes, more than the {LONGEST_STATUS} that are carried: only the health is reported"
    )]
    Length {
        /// Size of its JSON.
        bytes: usize,
    },
    /// The status is nested too deeply.
    #[error(
        "the status is {levels} levels deep, more than the {DEEPEST_STATUS} that are carried: only the health is reported"
    )]
    Depth {
        /// Levels of nested objects and lists.
        levels: usize,
    },
}

/// Checks whether a status is within the limits.
///
/// # Errors
/// The status is too large or nested too deeply.
pub fn check(status: &Value) -> Result<(), Excess> {
    let levels = depth(status);
    if levels > DEEPEST_STATUS {
        return Err(Excess::Depth { levels });
    }
    let bytes = length(status);
    if bytes > LONGEST_STATUS {
        return Err(Excess::Length { bytes });
    }
    Ok(())
}

/// Returns the size of a value's JSON in bytes.
pub fn length(value: &Value) -> usize {
    let mut counter = Counter(0);
    // A counter takes everything.
    _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Returns the levels of nested objects and lists; 0 for a string or a number.
pub fn depth(value: &Value) -> usize {
    extent(value).0
}

/// Returns the levels of nested objects and lists, and how many values there are in all, the
/// outermost included.
pub fn extent(value: &Value) -> (usize, usize) {
    let (mut deepest, mut count) = (0, 0);
    let mut open = vec![(value, 0)];
    while let Some((value, above)) = open.pop() {
        count += 1;
        deepest = deepest.max(above);
        match value {
            Value::Object(map) => {
                deepest = deepest.max(above + 1);
                open.extend(map.values().map(|value| (value, above + 1)));
            }
            Value::Array(list) => {
                deepest = deepest.max(above + 1);
                open.extend(list.iter().map(|value| (value, above + 1)));
            }
            _ => {}
        }
    }
    (deepest, count)
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("x"), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn a_status_is_carried_up_to_a_length_and_a_depth() {
        // A text has two quotation marks around it.
        let text = |bytes: usize| json!("x".repeat(bytes - 2));
        for (what, status, expected) in [
            (
                "of a workload",
                json!({"replicas": 1, "conditions": [{"type": "A"}]}),
                Ok(()),
            ),
            ("as long as may be", text(LONGEST_STATUS), Ok(())),
            (
                "longer",
                text(LONGEST_STATUS + 1),
                Err(Excess::Length {
                    bytes: LONGEST_STATUS + 1,
                }),
            ),
            ("as deep as may be", nested(DEEPEST_STATUS), Ok(())),
            (
                "deeper",
                nested(DEEPEST_STATUS + 1),
                Err(Excess::Depth {
                    levels: DEEPEST_STATUS + 1,
                }),
            ),
        ] {
            assert_eq!(check(&status), expected, "{what}");
        }
    }

    #[test]
    fn depth_is_that_of_the_deepest_branch() {
        for (value, levels) in [
            (json!("x"), 0),
            (json!([]), 1),
            (json!([1, {"a": [2]}, 3]), 3),
        ] {
            assert_eq!(depth(&value), levels, "{value}");
        }
    }
}
