//! The record of owners: its times, subresources, limits, and clients that drop it.

use serde_json::{Value, json};

use super::{deployments, nginx};
use crate::apply::keep_times;

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
