//! Directives of strategic merge patches that no conversation with the real server holds.

use serde_json::json;

use super::strategic;
use crate::catalog;
use crate::schema::Schema;

fn pod() -> Schema {
    Schema::builtin(catalog::of_object("v1", "Pod").expect("pods"))
}

#[test]
fn directives_delete_replace_and_retain() {
    let live = json!({"containers": [{"name": "a", "image": "1", "command": ["x"]}, {"name": "b", "image": "2"}],
        "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"k": "v", "l": "w"}});
    let schema = pod();
    for (patch, path, expected) in [
        (
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            "/containers",
            json!([{"name": "b", "image": "2"}]),
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "replace", "image": "3"}]}),
            "/containers",
            json!([{"name": "a", "image": "3"}, {"name": "b", "image": "2"}]),
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "c", "image": "9"}]}),
            "/containers",
            json!([{"name": "c", "image": "9"}]),
        ),
        (
            json!({"nodeSelector": {"$patch": "replace", "m": "x"}}),
            "/nodeSelector",
            json!({"m": "x"}),
        ),
        (
            json!({"nodeSelector": {"k": null}}),
            "/nodeSelector",
            json!({"l": "w"}),
        ),
        (
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
            "/volumes",
            json!([{"name": "v", "hostPath": {"path": "/x"}}]),
        ),
    ] {
        let patched =
            strategic(&json!({"spec": live}), &json!({"spec": patch}), &schema).expect("fits");
        assert_eq!(patched["spec"].pointer(path), Some(&expected), "{patch}");
    }
}

#[test]
fn element_order_is_kept_as_asked() {
    let live = json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]});
    let patch = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "1"}]});
    let patched = strategic(&json!({"spec": live}), &json!({"spec": patch}), &pod()).expect("fits");
    assert_eq!(
        patched["spec"]["containers"],
        json!([{"name": "x"}, {"name": "b"}, {"name": "c", "image": "1"}, {"name": "a"}])
    );
}
