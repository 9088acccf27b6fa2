//! Times of managed fields, which the comparison with a real server leaves out.

use serde_json::json;

use super::keep_times;

#[test]
fn times_alone_are_no_difference() {
    let object = |time: &str, value: &str| json!({"metadata": {"managedFields": [{"manager": "m", "time": time}]}, "data": {"a": value}});
    let old = object("1", "x");
    for (new, kept) in [(object("2", "x"), true), (object("2", "y"), false)] {
        let mut settled = new.clone();
        keep_times(&old, &mut settled);
        assert_eq!(settled == old, kept, "{new}");
        assert_eq!(settled == new, !kept, "{new}");
    }
}
