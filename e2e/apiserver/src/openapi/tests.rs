//! What kubectl looks for in the documents.

use serde_json::{Value, json};

use super::{v3_group, v3_root};

fn crd() -> Value {
    json!({"spec": {"group": "cluster.karmada.io", "scope": "Cluster", "names": {"kind": "Cluster", "plural": "clusters"},
        "versions": [{"name": "v1alpha1", "served": true, "schema": {"openAPIV3Schema": {"type": "object",
            "description": "A member.",
            "properties": {"spec": {"type": "object", "description": "What is wanted.", "properties": {
                "manifests": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true}}}}}}}}]}})
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields {
                if let ("$ref", Some(target)) = (name.as_str(), child.as_str()) {
                    found.push(target.to_owned());
                }
                references(child, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|child| references(child, found)),
        _ => {}
    }
}

#[test]
fn every_reference_of_a_document_resolves_within_it() {
    for (document, place) in [
        (v3_group("", "v1", &[]), "/components/schemas"),
        (v3_group("apps", "v1", &[]), "/components/schemas"),
        (
            v3_group("cluster.karmada.io", "v1alpha1", &[&crd()]),
            "/components/schemas",
        ),
    ] {
        let mut found = Vec::new();
        references(&document["paths"], &mut found);
        references(document.pointer(place).expect("schemas"), &mut found);
        assert!(!found.is_empty());
        for target in found {
            let name = target.strip_prefix(&format!("#{place}/")).expect(&target);
            assert!(
                document.pointer(place).unwrap().get(name).is_some(),
                "{name}"
            );
        }
    }
}

#[test]
fn patches_say_that_they_validate_fields() {
    let custom = v3_group("cluster.karmada.io", "v1alpha1", &[&crd()]);
    for (document, path) in [
        (
            v3_group("", "v1", &[]),
            "/api/v1/namespaces/{namespace}/configmaps/{name}",
        ),
        (custom, "/apis/cluster.karmada.io/v1alpha1/clusters/{name}"),
    ] {
        let parameters = document["paths"][path]["patch"]["parameters"].as_array();
        let parameters = parameters.expect("parameters");
        for name in ["fieldValidation", "dryRun"] {
            let is = |it: &Value| it["name"] == name && it["in"] == "query";
            assert!(parameters.iter().any(is), "{path}: {name}");
        }
    }
}

#[test]
fn custom_kinds_keep_their_descriptions_and_gain_metadata() {
    let document = v3_group("cluster.karmada.io", "v1alpha1", &[&crd()]);
    let schema = &document["components"]["schemas"]["io.karmada.cluster.v1alpha1.Cluster"];
    assert_eq!(
        schema["properties"]["spec"]["description"],
        "What is wanted."
    );
    assert!(schema["properties"]["metadata"]["allOf"][0]["$ref"].is_string());
    let manifest = &schema["properties"]["spec"]["properties"]["manifests"]["items"];
    assert!(manifest["properties"]["apiVersion"].is_object());
}

#[test]
fn the_index_points_at_documents_by_their_hash() {
    let root = v3_root([("apis/apps/v1", "1A".to_owned())]);
    let url = &root["paths"]["apis/apps/v1"]["serverRelativeURL"];
    assert_eq!(url, "/openapi/v3/apis/apps/v1?hash=1A");
}
