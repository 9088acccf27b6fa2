//! The definitions that the chart installs are those of the types, and an API server would accept
//! them.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{env, fs, path::PathBuf};

use muster_shared::{
    api::{
        self, binding, cluster, definition::Defined as _, failover_record, interpreter,
        interpreter_webhook, override_policy, policy, rebalancer, taint_policy, work,
    },
    k8s::{CustomResourceDefinition, ResourceExt},
};
use serde_json::{Map, Value, json};

/// Returns the path at which the control-plane chart keeps the definition.
fn golden(crd: &CustomResourceDefinition) -> PathBuf {
    let charts = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../charts/control-plane/definitions"
    );
    PathBuf::from(charts).join(format!("{}.yaml", crd.name_any()))
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap()
}

#[test]
fn the_chart_carries_the_definitions_of_the_types() {
    let rewrite = env::var_os("UPDATE_GOLDEN").is_some();
    for crd in api::crds() {
        let path = golden(&crd);
        let yaml = serde_saphyr::to_string(&crd).unwrap();
        if rewrite {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &yaml).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == yaml,
            "{} is not what the types say: run this test with UPDATE_GOLDEN=1",
            path.display()
        );
    }
}

/// Checks that what the informers of Karmada's own programs list before they do anything is served.
/// It was read from their sources (August 2026: `cmd/agent`, with the resource interpreter that it
/// starts, and `pkg/scheduler`). A program whose list is answered 404 waits for ever.
#[test]
fn what_karmadas_agent_and_scheduler_wait_for_is_served() {
    const BUILT_IN: [&str; 2] = ["", "scheduling.k8s.io"];
    const AGENT: [(&str, &str); 5] = [
        ("cluster.karmada.io", "clusters"),
        ("work.karmada.io", "works"),
        ("config.karmada.io", "resourceinterpretercustomizations"),
        (
            "config.karmada.io",
            "resourceinterpreterwebhookconfigurations",
        ),
        ("", "services"),
    ];
    const SCHEDULER: [(&str, &str); 4] = [
        ("cluster.karmada.io", "clusters"),
        ("work.karmada.io", "resourcebindings"),
        ("work.karmada.io", "clusterresourcebindings"),
        ("scheduling.k8s.io", "priorityclasses"),
    ];
    let ours: Vec<String> = api::crds().iter().map(ResourceExt::name_any).collect();
    for (group, plural) in AGENT.into_iter().chain(SCHEDULER) {
        let served = BUILT_IN.contains(&group) || ours.contains(&format!("{plural}.{group}"));
        assert!(served, "{plural}.{group}");
    }
}

#[test]
fn fields_of_a_kind_without_a_spec_stand_beside_its_metadata() {
    let crd = interpreter_webhook::ResourceInterpreterWebhookConfiguration::crd();
    let schema = schema(&crd);
    assert_eq!(schema["required"], json!(["webhooks"]));
    assert_eq!(schema["properties"]["spec"], Value::Null);
    assert_eq!(schema["properties"]["webhooks"]["type"], "array");
    let text = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": { "name": "a" },
        "webhooks": [{
            "name": "workloads.example.com",
            "clientConfig": { "url": "https://a/b", "caBundle": "QQ==" },
            "rules": [{ "operations": ["*"], "apiGroups": ["a"], "apiVersions": ["v1"], "kinds": ["B"] }],
            "interpreterContextVersions": ["v1alpha1"],
        }],
    });
    let read: interpreter_webhook::ResourceInterpreterWebhookConfiguration =
        serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), text);
}

#[test]
fn no_schema_has_a_keyword_that_an_api_server_refuses() {
    let mut faults = Vec::new();
    for crd in api::crds() {
        check(&schema(&crd), &crd.name_any(), &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_checker_sees_every_fault() {
    let table = [
        (json!({ "type": "string", "nullable": true }), "nullable"),
        (json!({ "$ref": "#/x", "type": "string" }), "$ref"),
        (json!({ "type": "string", "anyOf": [] }), "anyOf"),
        (json!({ "type": "integer", "format": "uint32" }), "uint32"),
        (json!({ "type": "object", "required": ["a"] }), "required"),
    ];
    for (schema, expected) in table {
        let mut faults = Vec::new();
        check(&schema, "it", &mut faults);
        assert!(
            faults.iter().any(|fault| fault.contains(expected)),
            "{schema} should be refused for {expected}, not for {faults:?}"
        );
    }
}

/// Checks that a schema has no keyword or format that the conversion left over. That it is
/// structural and admits its defaults is for the embedded API of e2e to say, which takes the
/// definitions of all kinds.
fn check(node: &Value, at: &str, faults: &mut Vec<String>) {
    const FORBIDDEN: &[&str] = &[
        "$ref",
        "$schema",
        "$defs",
        "definitions",
        "title",
        "nullable",
        "oneOf",
        "allOf",
        "not",
        "const",
        "uniqueItems",
        "patternProperties",
        "dependencies",
        "deprecated",
        "readOnly",
        "writeOnly",
        "id",
    ];
    const FORMATS: &[&str] = &["int32", "int64", "date-time", "byte", "float", "double"];
    let Some(node) = node.as_object() else {
        return faults.push(format!("{at}: is no schema"));
    };
    let mut fault = |text: &str| faults.push(format!("{at}: {text}"));

    for keyword in FORBIDDEN
        .iter()
        .filter(|keyword| node.contains_key(**keyword))
    {
        fault(keyword);
    }
    if node.contains_key("anyOf") && !node.contains_key("x-kubernetes-int-or-string") {
        fault("anyOf");
    }
    if let Some(format) = node.get("format").and_then(Value::as_str)
        && !FORMATS.contains(&format)
    {
        fault(&format!("format {format}"));
    }
    let empty = Map::new();
    let properties = node
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    for field in node
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        match properties.get(field.as_str().unwrap_or_default()) {
            None => fault(&format!("required {field} is no property")),
            Some(property) if property.get("default").is_some() => {
                fault(&format!("required {field} has a default"));
            }
            Some(_) => {}
        }
    }
    for (name, property) in properties {
        check(property, &format!("{at}.{name}"), faults);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(child) = node.get(keyword) {
            check(child, &format!("{at}[{keyword}]"), faults);
        }
    }
}

#[test]
fn every_purge_mode_is_admitted_in_both_spellings_wherever_a_policy_names_one() {
    let modes = json!([
        "Directly",
        "Gracefully",
        "Never",
        "Immediately",
        "Graciously"
    ]);
    let crds = api::crds();
    for (kind, fields) in [
        ("PropagationPolicy", "/properties/spec/properties"),
        ("ClusterPropagationPolicy", "/properties/spec/properties"),
        ("ResourceBinding", "/properties/spec/properties"),
        ("ClusterResourceBinding", "/properties/spec/properties"),
    ] {
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = schema(crd);
        for failover in ["application", "cluster"] {
            let path = format!("{fields}/failover/properties/{failover}/properties/purgeMode/enum");
            assert_eq!(schema.pointer(&path), Some(&modes), "{kind} {failover}");
        }
    }
}

#[test]
fn every_field_of_a_definition_survives_decoding() {
    for crd in api::crds() {
        let kind = crd.spec.names.kind.as_str();
        let mut object = example(&schema(&crd));
        object["apiVersion"] = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name).into();
        object["kind"] = kind.into();
        object["metadata"] = json!({ "name": "it" });
        assert_eq!(round_trip(kind, &object), Ok(object.clone()));
    }
}

#[test]
fn what_is_absent_is_not_written() {
    for crd in api::crds() {
        let kind = crd.spec.names.kind.as_str();
        let written =
            round_trip(kind, &json!({ "metadata": { "name": "it" }, "spec": {} })).unwrap();
        let schema = schema(&crd);
        // A kind whose fields are beside its metadata has no `spec`.
        let (owner, written) = match schema["properties"].get("spec") {
            Some(spec) => (spec, &written["spec"]),
            None => (&schema, &written),
        };
        let always = ["apiVersion", "kind", "metadata"].map(Value::from);
        let mut required = owner["required"].as_array().cloned().unwrap_or_default();
        required.extend(always);
        for (field, value) in written.as_object().unwrap() {
            assert!(
                required.contains(&json!(field)),
                "{kind}: {field}: {value} was written"
            );
        }
    }
}

#[test]
fn odd_values_do_not_hide_an_object() {
    for (kind, spec, expected) in [
        (
            "Cluster",
            json!({ "syncMode": "Sideways", "unheardOf": 1, "taints": [{ "key": "k", "effect": "Odd" }] }),
            json!({ "syncMode": "Sideways", "taints": [{ "key": "k", "effect": "Odd" }] }),
        ),
        (
            "Cluster",
            json!({ "syncMode": "Pull", "resourceModels": [{ "grade": 0, "ranges": null }] }),
            json!({ "syncMode": "Pull", "resourceModels": [{ "grade": 0, "ranges": [] }] }),
        ),
        (
            "Cluster",
            json!({ "syncMode": "Pull", "resourceModels": [
                { "grade": 0, "ranges": [{ "name": "cpu", "min": 0, "max": 1.5 }] },
            ] }),
            json!({ "syncMode": "Pull", "resourceModels": [
                { "grade": 0, "ranges": [{ "name": "cpu", "min": "0", "max": "1.5" }] },
            ] }),
        ),
        (
            "PropagationPolicy",
            json!({ "resourceSelectors": [], "failover": { "cluster": { "purgeMode": "Immediately" } } }),
            json!({
                "resourceSelectors": [],
                "placement": {},
                "failover": { "cluster": { "purgeMode": "Immediately" } },
            }),
        ),
    ] {
        let written = round_trip(kind, &json!({ "metadata": {}, "spec": spec })).unwrap();
        assert_eq!(written["spec"], without_empty(expected), "{kind}");
    }
}

/// Returns a spec without its empty objects: an empty object is what its absence means.
fn without_empty(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| *value != json!({}));
    }
    spec
}

/// Decodes an object into its type and encodes it again.
fn round_trip(kind: &str, object: &Value) -> Result<Value, String> {
    fn through<K: api::Object>(object: &Value) -> serde_json::Result<Value> {
        serde_json::from_value::<K>(object.clone()).and_then(serde_json::to_value)
    }
    let result = match kind {
        "Cluster" => through::<cluster::Cluster>(object),
        "ResourceInterpreterCustomization" => {
            through::<interpreter::ResourceInterpreterCustomization>(object)
        }
        "ClusterOverridePolicy" => through::<override_policy::ClusterOverridePolicy>(object),
        "OverridePolicy" => through::<override_policy::OverridePolicy>(object),
        "ClusterPropagationPolicy" => through::<policy::ClusterPropagationPolicy>(object),
        "ClusterTaintPolicy" => through::<taint_policy::ClusterTaintPolicy>(object),
        "PropagationPolicy" => through::<policy::PropagationPolicy>(object),
        "ClusterResourceBinding" => through::<binding::ClusterResourceBinding>(object),
        "ResourceBinding" => through::<binding::ResourceBinding>(object),
        "Work" => through::<work::Work>(object),
        "Failover" => through::<failover_record::Failover>(object),
        "WorkloadRebalancer" => through::<rebalancer::WorkloadRebalancer>(object),
        "ResourceInterpreterWebhookConfiguration" => {
            through::<interpreter_webhook::ResourceInterpreterWebhookConfiguration>(object)
        }
        other => panic!("no type for {other}"),
    };
    result.map_err(|error| format!("{kind}: {error}"))
}

/// Returns an object with every field that a schema knows.
fn example(schema: &Value) -> Value {
    let text = |keyword: &str| schema[keyword].as_str().unwrap_or_default();
    if let Some(known) = schema["enum"].as_array() {
        return known.last().unwrap().clone();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return json!("1500m");
    }
    match text("type") {
        "" if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) => json!([1, null]),
        "string" if text("format") == "date-time" => json!("2026-01-02T03:04:05Z"),
        "string" => json!("text"),
        "integer" => json!(7),
        "boolean" => json!(true),
        "array" => json!([example(&schema["items"])]),
        "object" if schema["additionalProperties"].is_object() => {
            json!({ "name": example(&schema["additionalProperties"]) })
        }
        "object" if schema["properties"].is_object() => {
            let properties = schema["properties"].as_object().unwrap();
            properties
                .iter()
                .map(|(name, property)| (name.clone(), example(property)))
                .collect()
        }
        "object" => json!({ "any": "thing" }),
        other => panic!("no example of {other:?}"),
    }
}
