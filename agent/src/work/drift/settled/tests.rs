use std::collections::BTreeSet;

use muster_shared::quantity::Quantity;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::work::member::FIELD_MANAGER;

fn observed(fields: &Value, object: &Value) -> Value {
    let mut observed = object.clone();
    observed["metadata"]["name"] = json!("web");
    observed["metadata"]["managedFields"] = json!([
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
        {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields},
    ]);
    observed
}

fn deployment() -> (Value, Value) {
    let desired = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
             "resources": {"requests": {"cpu": "1000m"}}}]}}},
    });
    let fields = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                "f:resources": {"f:requests": {"f:cpu": {}}}}}}}},
    });
    let object = json!({
        "metadata": {"labels": {"app": "web", "theirs": "x"}, "uid": "1"},
        "spec": {"replicas": 2, "revisionHistoryLimit": 10, "template": {"spec": {"containers": [
            {"name": "sidecar", "image": "proxy"},
            {"name": "web", "image": "nginx", "imagePullPolicy": "Always",
             "ports": [{"containerPort": 80, "protocol": "TCP"}],
             "resources": {"requests": {"cpu": "1"}}}]}}},
        "status": {"replicas": 2},
    });
    (desired, observed(&fields, &object))
}

#[test]
fn defaults_injected_parts_and_other_spellings_of_a_quantity_are_no_difference() {
    let (desired, observed) = deployment();
    assert!(settled(&desired, &observed));
}

#[test]
fn every_real_difference_is_noticed() {
    type Edit = fn(&mut Value, &mut Value);
    let edits: [(&str, Edit); 9] = [
        ("we want another value", |desired, _| {
            desired["spec"]["replicas"] = json!(3);
        }),
        ("somebody changed our value", |_, observed| {
            observed["spec"]["replicas"] = json!(1);
        }),
        ("we want one field more", |desired, _| {
            desired["spec"]["paused"] = json!(true);
        }),
        ("we no longer want a field", |desired, _| {
            desired["spec"].as_object_mut().unwrap().remove("replicas");
        }),
        ("we no longer want any label", |desired, _| {
            desired["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("labels");
        }),
        ("somebody removed our label", |_, observed| {
            observed["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove("app");
        }),
        ("somebody changed our container", |_, observed| {
            observed["spec"]["template"]["spec"]["containers"][1]["image"] = json!("apache");
        }),
        ("somebody removed our container", |_, observed| {
            observed["spec"]["template"]["spec"]["containers"]
                .as_array_mut()
                .unwrap()
                .pop();
        }),
        ("we never applied it", |_, observed| {
            observed["metadata"]["managedFields"][1]["operation"] = json!("Update");
        }),
    ];
    for (what, edit) in edits {
        let (mut desired, mut observed) = deployment();
        edit(&mut desired, &mut observed);
        assert!(!settled(&desired, &observed), "{what}");
    }
}

#[test]
fn an_atomic_list_must_be_equal_as_a_whole() {
    let fields = json!({"f:spec": {"f:args": {}}});
    let desired = json!({"spec": {"args": ["a"]}});
    for (found, expected) in [(json!(["a"]), true), (json!(["a", "b"]), false)] {
        let observed = observed(&fields, &json!({"metadata": {}, "spec": {"args": found}}));
        assert_eq!(settled(&desired, &observed), expected);
    }
}

#[test]
fn elements_that_others_add_to_a_set_are_theirs() {
    let fields = json!({"f:spec": {"f:hosts": {"v:\"a\"": {}}}});
    let desired = json!({"spec": {"hosts": ["a"]}});
    for (found, expected) in [(json!(["b", "a"]), true), (json!(["b"]), false)] {
        let observed = observed(&fields, &json!({"metadata": {}, "spec": {"hosts": found}}));
        assert_eq!(settled(&desired, &observed), expected);
    }
}

#[test]
fn a_null_is_a_field_that_is_not_set() {
    let fields = json!({"f:spec": {"f:created": {}, "f:volumes": {}, "f:replicas": {}}});
    let desired = json!({"spec": {"created": null, "volumes": [], "replicas": 1}});
    let observed = observed(&fields, &json!({"metadata": {}, "spec": {"replicas": 1}}));
    assert!(settled(&desired, &observed));
}

#[test]
fn an_empty_object_that_we_set_is_a_value() {
    let fields = json!({"f:spec": {"f:emptyDir": {}}});
    let desired = json!({"spec": {"emptyDir": {}}});
    let observed = observed(&fields, &json!({"metadata": {}, "spec": {"emptyDir": {}}}));
    assert!(settled(&desired, &observed));
}

/// Returns what the server records as the fields of a manager that applies this value: lists of
/// objects with a `name` are associative, other lists are atomic.
fn record(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (format!("f:{key}"), record(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) if list.iter().all(|element| element.get("name").is_some()) => list
            .iter()
            .map(|element| {
                let mut below = record(element);
                below["."] = json!({});
                (format!("k:{}", json!({"name": element["name"]})), below)
            })
            .collect::<Map<_, _>>()
            .into(),
        _ => json!({}),
    }
}

fn wanted(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = rest.clone();
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object
}

#[test]
fn texts_that_would_be_equal_as_quantities_are_different_texts() {
    for (one, other) in [
        ("1.1", "1.10"),
        ("1.0", "1"),
        ("0644", "644"),
        ("1e3", "1000"),
        ("M", "G"),
        ("1000m", "1"),
        (
            "99999999999999999999999999999999",
            "99999999999999999999999999999998",
        ),
    ] {
        let rest = |value: &str| json!({"data": {"v": value}});
        let found = observed(&record(&rest(one)), &{
            let mut object = rest(other);
            object["metadata"] = json!({});
            object
        });
        let wanted = wanted("v1", "ConfigMap", &rest(one));
        assert!(!settled(&wanted, &found), "{one} is not {other}");
    }
}

#[test]
fn elements_of_a_list_must_stand_in_our_order_whatever_is_between_them() {
    let list =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    let steps =
        |names: &[&str]| json!({"spec": {"template": {"spec": {"initContainers": list(names)}}}});
    for (found, expected) in [
        (&["a", "b"][..], true),
        (&["x", "a", "y", "b", "z"], true),
        (&["b", "a"], false),
        (&["b", "x", "a"], false),
    ] {
        let mut object = steps(found);
        object["metadata"] = json!({});
        let observed = observed(&record(&steps(&["a", "b"])), &object);
        let wanted = wanted("apps/v1", "Deployment", &steps(&["a", "b"]));
        assert_eq!(settled(&wanted, &observed), expected, "{found:?}");
    }
    let fields = json!({"f:spec": {"f:hosts": {"v:\"a\"": {}, "v:\"b\"": {}}}});
    for (found, expected) in [(json!(["a", "x", "b"]), true), (json!(["b", "a"]), false)] {
        let observed = observed(&fields, &json!({"metadata": {}, "spec": {"hosts": found}}));
        let wanted = json!({"spec": {"hosts": ["a", "b"]}});
        assert_eq!(settled(&wanted, &observed), expected, "{found}");
    }
}

#[test]
fn an_element_that_names_all_its_keys_is_not_taken_for_one_that_leaves_some_to_the_server() {
    let fields = json!({"f:spec": {"f:ports": {
        "k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
        "k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}},
    }}});
    let desired = json!({"spec": {"ports": [
        {"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}]}});
    let found = json!({"metadata": {}, "spec": {"ports": [
        {"port": 53, "protocol": "TCP", "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}]}});
    assert!(settled(&desired, &observed(&fields, &found)));
}

#[test]
fn the_cost_of_a_long_list_grows_with_its_length() {
    let visited = |n: usize| {
        let entries: Value = (0..n)
            .map(|n| json!({"name": format!("V{n}"), "value": "x"}))
            .collect();
        let rest = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "env": entries}]}}}});
        let mut object = rest.clone();
        object["metadata"] = json!({});
        let found = observed(&record(&rest), &object);
        let wanted = wanted("apps/v1", "Deployment", &rest);
        let mut comparison = Comparison::of(&wanted);
        assert!(comparison.settled(&wanted, &found));
        comparison.visited
    };
    let (small, large) = (visited(10_000), visited(20_000));
    assert!(
        large < 3 * small,
        "{small} elements looked at, then {large}"
    );
    assert!(large < 5 * 20_000, "{large} elements looked at");
}

/// Texts of which many are equal as quantities.
const TEXTS: &[&str] = &[
    "1", "1.0", "01", "1000m", "1e0", "M", "G", "0.5", "500m", "",
];

fn text() -> impl Strategy<Value = Value> {
    prop::sample::select(TEXTS).prop_map(Value::from)
}

/// Returns a strategy that makes two versions of a workload, with a list of up to four elements
/// each, and what is desired of them.
fn containers() -> impl Strategy<Value = Value> {
    let container = (
        prop::sample::select(&["a", "b", "c"][..]),
        text(),
        text(),
        text(),
    );
    prop::collection::vec(container, 0..4).prop_map(|containers| {
        let mut names = BTreeSet::new();
        containers
            .into_iter()
            .filter(|(name, ..)| names.insert(*name))
            .map(|(name, image, value, cpu)| {
                json!({"name": name, "image": image, "args": [value], "resources": {"requests": {"cpu": cpu}}})
            })
            .collect()
    })
}

/// Returns the object with every quantity in one spelling.
fn canonical(list: &Value) -> Vec<Value> {
    let mut list = list.as_array().cloned().unwrap_or_default();
    for container in &mut list {
        let cpu = &mut container["resources"]["requests"]["cpu"];
        let amount: Option<Quantity> = cpu.as_str().and_then(|text| text.parse().ok());
        if let Some(amount) = amount {
            *cpu = json!(amount.nano().to_string());
        }
    }
    list
}

proptest! {
    #[test]
    fn what_is_settled_is_equal_but_for_the_spelling_of_quantities(ours in containers(), theirs in containers()) {
        let rest = |list: &Value| json!({"spec": {"template": {"spec": {"containers": list}}}});
        let mut object = rest(&theirs);
        object["metadata"] = json!({});
        let found = observed(&record(&rest(&ours)), &object);
        let wanted = wanted("apps/v1", "Deployment", &rest(&ours));
        let (ours, theirs) = (canonical(&ours), canonical(&theirs));
        let named: Vec<Value> = theirs
            .into_iter()
            .filter(|element| ours.iter().any(|ours| ours["name"] == element["name"]))
            .collect();
        // An empty list is owned as a whole.
        let equal = if ours.is_empty() { object["spec"]["template"]["spec"]["containers"] == json!([]) } else { ours == named };
        prop_assert_eq!(settled(&wanted, &found), equal);
    }
}
