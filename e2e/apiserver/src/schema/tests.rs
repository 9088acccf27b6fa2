//! Decoding, pruning and defaulting of whole objects.

use serde_json::{Value, json};

use super::Schema;
use crate::catalog;

fn schema(api_version: &str, kind: &str) -> Schema {
    Schema::builtin(catalog::of_object(api_version, kind).expect("a built-in kind"))
}

fn admitted(mut object: Value) -> Value {
    let schema = schema(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    schema.decode(&mut object).expect("decodes");
    assert_eq!(schema.prune(&mut object), Vec::<String>::new());
    schema.default(&mut object);
    object
}

#[test]
fn what_go_would_not_keep_disappears_and_what_it_always_prints_appears() {
    let pod = admitted(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {}, "annotations": null},
        "spec": {"hostNetwork": false, "nodeSelector": {}, "terminationGracePeriodSeconds": 0,
            "containers": [{"image": "a:1", "env": [{"name": "A", "value": ""}], "command": []}]}}));
    assert_eq!(pod["metadata"], json!({"name": "p"}));
    assert!(pod["spec"].get("hostNetwork").is_none() && pod["spec"].get("nodeSelector").is_none());
    assert_eq!(
        pod["spec"]["terminationGracePeriodSeconds"], 0,
        "a pointer keeps its zero"
    );
    assert_eq!(pod["spec"]["containers"][0]["env"], json!([{"name": "A"}]));
    assert_eq!(
        pod["spec"]["containers"][0]["name"], "",
        "printed though empty; validation will object"
    );
    assert!(pod["spec"]["containers"][0].get("command").is_none());
}

#[test]
fn defaulting_twice_changes_nothing() {
    for kind in catalog::all().iter().filter(|kind| kind.stored()) {
        let schema = Schema::builtin(kind);
        let mut once =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "n"}});
        schema.decode(&mut once).expect("decodes");
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.decode(&mut twice).expect("decodes again");
        schema.default(&mut twice);
        assert_eq!(once, twice, "{}", kind.kind);
    }
}
