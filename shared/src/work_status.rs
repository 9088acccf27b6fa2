//! How much of an object's status travels from a member to the control plane.
//!
//! A status is copied into the Work, from there into the binding, once for each cluster, and each
//! of these is one object that the API server takes up to a size and reads back up to a depth. A
//! custom resource may have any status at all, written by anybody in the member; what does not fit
//! is left out, and health is reported without it.

use std::io;

use serde_json::Value;

/// Bytes of JSON of the longest status that is carried. Statuses of workloads take hundreds; etcd
/// takes 1.5 MB for everything.
pub const LONGEST_STATUS: usize = 64 * 1024;
/// Levels of the deepest status that is carried. Readers end at 128, and a Work or binding adds
/// some of its own.
pub const DEEPEST_STATUS: usize = 64;

/// Why a status is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// It is too long.
    #[error(
        "the status takes {bytes} bytes, more than the {LONGEST_STATUS} that are carried: only the health is reported"
    )]
    Length {
        /// Bytes of its JSON.
        bytes: usize,
    },
    /// It is too deep.
    #[error(
        "the status is {levels} levels deep, more than the {DEEPEST_STATUS} that are carried: only the health is reported"
    )]
    Depth {
        /// Levels of objects and lists in one another.
        levels: usize,
    },
}

/// Whether a status may be carried.
///
/// # Errors
/// When it is too long or too deep.
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

/// Bytes of a value's JSON.
pub fn length(value: &Value) -> usize {
    let mut counter = Counter(0);
    // A counter takes everything.
    _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Levels of objects and lists in one another; a text or a number has none.
pub fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, above)) = open.pop() {
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
    deepest
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
