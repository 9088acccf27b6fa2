//! Fields of a bare Pod that can be applied.
//!
//! Almost no field of an existing Pod can be changed, and nothing that admission added can be
//! removed. Some of that is in fields that are set as a whole, so that an apply of the manifest
//! alone would remove it and be rejected each time.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Returns the desired pod with the tolerations and node labels that were added in the member,
/// because those cannot be removed. Objects of other kinds stay as they are.
pub fn with_admitted<'a>(desired: &'a Value, observed: &Value) -> Cow<'a, Value> {
    let spec = |object: &Value, key: &str| object.pointer(&format!("/spec/{key}")).cloned();
    if desired["apiVersion"] != "v1" || desired["kind"] != "Pod" || !desired["spec"].is_object() {
        return Cow::Borrowed(desired);
    }
    let mut pod = Cow::Borrowed(desired);
    let (ours, theirs) = (spec(desired, "tolerations"), spec(observed, "tolerations"));
    if let (Some(Value::Array(ours)), Some(Value::Array(mut all))) = (&ours, theirs) {
        // New tolerations can be added.
        let added: Vec<Value> = ours
            .iter()
            .filter(|it| !all.contains(it))
            .cloned()
            .collect();
        all.extend(added);
        if ours != &all {
            pod.to_mut()["spec"]["tolerations"] = Value::Array(all);
        }
    }
    let (ours, theirs) = (
        spec(desired, "nodeSelector"),
        spec(observed, "nodeSelector"),
    );
    if let (Some(Value::Object(ours)), Some(Value::Object(mut all))) = (ours, theirs) {
        let wanted: Map<String, Value> = ours.clone();
        all.extend(wanted);
        if ours != all {
            pod.to_mut()["spec"]["nodeSelector"] = Value::Object(all);
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_admission_added_is_kept_and_what_is_wanted_comes_along() {
        let pod = |spec: &Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
        let tolerates = |keys: &str| {
            let all: Vec<_> = keys.chars().map(|key| json!({"key": key})).collect();
            json!({"tolerations": all})
        };
        let (a, ab, ac) = (tolerates("a"), tolerates("ab"), tolerates("ac"));
        let (abc, b, none) = (tolerates("abc"), tolerates("b"), json!({}));
        let zone = json!({"nodeSelector": {"zone": "a"}});
        let other = json!({"nodeSelector": {"zone": "b", "pool": "x"}});
        let both = json!({"nodeSelector": {"zone": "a", "pool": "x"}});
        for (what, desired, observed, expected) in [
            ("tolerations were added", &a, &ab, &ab),
            ("one more is wanted", &ac, &ab, &abc),
            ("none is wanted", &none, &b, &none),
            ("a label was added, one is wanted", &zone, &other, &both),
        ] {
            let desired = pod(desired);
            let got = with_admitted(&desired, &pod(observed));
            assert_eq!(*got, pod(expected), "{what}");
        }
    }
}
