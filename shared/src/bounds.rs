//! Sizes of foreign values, and how large they may be.
//!
//! An API server stores objects of about 1.5 MB, and JSON readers give up at some depth (this workspace's at 128).
//! What is copied from one object into another, deeper or beside others, has to stay well below both, or the copy is
//! refused, or cannot be read back, for ever.

use std::io;

use serde_json::Value;

/// Largest status of one object that is reported from a member, in bytes of JSON. Of a larger one only the health is
/// reported.
pub const STATUS_BYTES: usize = 64 << 10;

/// Largest sum of the statuses that one object holds for all members, in bytes of JSON.
pub const STATUSES_BYTES: usize = 768 << 10;

/// Deepest nesting of a value that is put into another object. A Work adds five levels to a manifest, and readers stop
/// at 128.
pub const DEPTH: usize = 100;

/// Length of a value as compact JSON, in bytes.
pub fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither writing here nor encoding a `Value` fails.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Number of lists and objects around the innermost value; 0 for a text or a number.
pub fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, around)) = open.pop() {
        deepest = deepest.max(around);
        match value {
            Value::Array(list) => open.extend(list.iter().map(|item| (item, around + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, around + 1))),
            _ => {}
        }
    }
    deepest
}

/// Reason not to report a status, in words that say what to do; `None` for one that may be reported.
pub fn status_fault(status: &Value) -> Option<String> {
    let (depth, size) = (depth(status), size(status));
    if depth > DEPTH {
        return Some(format!(
            "its status is nested {depth} deep, more than {DEPTH}: only its health is reported"
        ));
    }
    (size > STATUS_BYTES).then(|| {
        format!(
            "its status has {size} bytes, more than {STATUS_BYTES}: only its health is reported"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!([inner]))
    }

    #[test]
    fn size_and_depth_are_those_of_the_text() {
        for value in [
            json!(null),
            json!({}),
            json!({ "a": [1, "ü\n"], "b": { "c": [[]] } }),
        ] {
            assert_eq!(size(&value), value.to_string().len(), "{value}");
        }
        for (value, levels) in [
            (json!("x"), 0),
            (json!([]), 0),
            (json!([1]), 1),
            (nested(300), 300),
        ] {
            assert_eq!(depth(&value), levels);
        }
    }

    #[test]
    fn a_status_is_reported_up_to_the_limits() {
        let text = |bytes: usize| json!("x".repeat(bytes - 2));
        assert_eq!(status_fault(&text(STATUS_BYTES)), None);
        assert!(
            status_fault(&text(STATUS_BYTES + 1))
                .unwrap()
                .contains("65537 bytes")
        );
        assert_eq!(status_fault(&nested(DEPTH)), None);
        assert!(
            status_fault(&nested(DEPTH + 1))
                .unwrap()
                .contains("101 deep")
        );
    }
}
