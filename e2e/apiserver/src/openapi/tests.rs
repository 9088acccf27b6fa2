//! References within the documents.

use serde_json::{Value, json};

use super::v3_group;

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
