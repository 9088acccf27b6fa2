//! The record of owners: its times, subresources, limits, and clients that drop it.

use serde_json::{Value, json};

use super::{config_map, config_maps, deployments, nginx};
use crate::apply::keep_times;

#[test]
fn an_object_from_before_belongs_to_before_first_apply() {
    let mut story = config_maps();
    story.update("kubectl-create", "", |object| {
        *object = config_map(&json!({"a": "1"}));
    });
    story.object.as_mut().unwrap()["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    story.apply("me", &config_map(&json!({"b": "2"})));
    assert_eq!(
        story.fields("before-first-apply", "Update"),
        json!({"f:data": {".": {}, "f:a": {}}})
    );
    let message = story.conflicts("me", &config_map(&json!({"a": "9"})));
    assert!(
        message.contains("conflict with \"before-first-apply\" using v1: .data.a"),
        "{message}"
    );
}

#[test]
fn time_moves_only_when_the_object_changes() {
    let mut story = config_maps();
    story.apply("me", &config_map(&json!({"a": "1"})));
    let before = story.object().clone();
    story.apply("me", &config_map(&json!({"a": "1"})));
    assert_eq!(
        story.object(),
        &before,
        "applying the same changes nothing, not even the time"
    );
    story.update("other", "", |object| {
        object["metadata"]["resourceVersion"] = json!("7");
    });
    assert_eq!(story.fields("other", "Update"), Value::Null);
}

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

#[test]
fn status_is_owned_through_its_subresource_alone() {
    let mut story = deployments();
    story.apply("me", &nginx(Some(1)));
    story.update("controller", "status", |object| {
        object["status"]["replicas"] = json!(1);
        object["spec"]["replicas"] = json!(1);
    });
    assert_eq!(
        story.fields("controller", "Update"),
        json!({"f:status": {"f:replicas": {}}})
    );
    let mut sneaky = nginx(Some(1));
    sneaky["status"] = json!({"replicas": 1});
    story.apply("me", &sneaky);
    assert!(story.fields("me", "Apply").get("f:status").is_none());
}

#[test]
fn finalizers_are_a_set_and_selectors_are_one_value() {
    let mut story = deployments();
    let mut config = nginx(None);
    config["metadata"]["finalizers"] = json!(["a.b/c"]);
    story.apply("one", &config);
    config["metadata"]["finalizers"] = json!(["d.e/f"]);
    story.apply("two", &config);
    assert_eq!(
        story.object()["metadata"]["finalizers"],
        json!(["a.b/c", "d.e/f"])
    );
    assert_eq!(
        story.fields("two", "Apply")["f:metadata"]["f:finalizers"],
        json!({"v:\"d.e/f\"": {}})
    );
    config["spec"]["selector"]["matchLabels"] = json!({"other": "x"});
    let message = story.conflicts("three", &config);
    assert!(message.contains(".spec.selector"), "{message}");
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_the_words_of_the_server() {
    let mut story = deployments();
    let mut case = |change: &dyn Fn(&mut Value), message: &str| {
        let mut config = nginx(Some(1));
        change(&mut config);
        assert_eq!(story.conflicts("me", &config), message);
    };
    let prefix = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): ";
    case(
        &|c| c["spec"]["foo"] = json!(1),
        &format!("{prefix}.spec.foo: field not declared in schema"),
    );
    case(
        &|c| c["spec"]["replicas"] = json!("x"),
        &format!("{prefix}.spec.replicas: expected number, got \"x\""),
    );
    case(
        &|c| {
            let containers = c["spec"]["template"]["spec"]["containers"]
                .as_array_mut()
                .unwrap();
            containers.push(json!({"name": "nginx"}));
        },
        &format!(
            "{prefix}.spec.template.spec.containers: duplicate entries for key [name=\"nginx\"]"
        ),
    );
    case(
        &|c| c["metadata"]["managedFields"] = json!([]),
        "metadata.managedFields must be nil",
    );
    case(
        &|c| c["apiVersion"] = json!("apps/v1beta1"),
        "Incorrect version specified in apply patch. Specified patch version: apps/v1beta1, expected: apps/v1",
    );
}

#[test]
fn owners_can_be_forgotten_and_are_not_lost_by_clients_that_drop_them() {
    let mut story = config_maps();
    story.apply("me", &config_map(&json!({"a": "1"})));
    story.update("other", "", |object| {
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        object["data"]["b"] = json!("2");
    });
    assert_eq!(story.fields("me", "Apply"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(
        story.fields("other", "Update"),
        json!({"f:data": {"f:b": {}}})
    );
    story.update("other", "", |object| {
        object["metadata"]["managedFields"] = json!([{}]);
    });
    assert!(story.object()["metadata"].get("managedFields").is_none());
}
