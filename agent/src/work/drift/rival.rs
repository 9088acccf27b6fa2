//! The other field manager that changed an object. Pure.

use serde_json::Value;

use super::settled::touches;
use crate::work::managed_fields::{entries, is_applied, is_of_subresource};

/// Returns the field manager that wrote last among those who own a field that is desired.
pub fn rival<'a>(desired: &Value, observed: &'a Value) -> Option<&'a str> {
    let others = entries(observed).iter().filter(|entry| {
        let owns = entry["fieldsV1"].as_object();
        !is_applied(entry)
            && !is_of_subresource(entry)
            && owns.is_some_and(|fields| touches(desired, fields))
    });
    let last = others.max_by_key(|entry| entry["time"].as_str().unwrap_or_default())?;
    last["manager"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::work::member::FIELD_MANAGER;

    #[test]
    fn the_rival_is_the_last_who_wrote_a_field_of_ours() {
        let desired = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 2,
            "containers": [{"name": "web", "image": "nginx"}]}});
        let entry = |manager: &str, second: u32, fields: Value| json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:0{second}Z"), "fieldsV1": fields});
        let ours = json!({"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:09Z",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let mut status = entry("kubelet", 8, replicas());
        status["subresource"] = json!("status");
        let image =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}});
        let own = json!({"f:metadata": {"f:annotations": {"f:x": {}}}});
        let own = entry("kubectl", 7, own);
        let scaled = entry("hpa", 3, replicas());
        let (early, late) = (entry("early", 1, replicas()), entry("late", 2, image));
        for (what, entries, expected) in [
            ("nobody", vec![ours.clone(), status.clone()], None),
            ("somebody with fields of their own", vec![own], None),
            ("an autoscaler", vec![ours, status, scaled], Some("hpa")),
            ("the later of two", vec![early, late], Some("late")),
        ] {
            let observed = json!({"metadata": {"managedFields": entries}});
            assert_eq!(rival(&desired, &observed), expected, "{what}");
        }
    }
}
