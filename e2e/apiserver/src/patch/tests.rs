//! Tables of cases for the patch forms, the worked examples of their specifications among them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{merge, strategic};
use crate::kinds::catalog;
use crate::schema::Schema;

fn deployment() -> Schema {
    Schema::builtin(catalog::of_object("apps/v1", "Deployment").expect("deployments"))
}

fn pod() -> Schema {
    Schema::builtin(catalog::of_object("v1", "Pod").expect("pods"))
}

#[test]
fn the_examples_of_rfc_7386_hold() {
    for (live, patch, expected) in [
        (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
        (json!({"a":"b"}), json!({"a":null}), json!({})),
        (
            json!({"a":"b","b":"c"}),
            json!({"a":null}),
            json!({"b":"c"}),
        ),
        (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
        (
            json!({"a":{"b":"c"}}),
            json!({"a":{"b":"d","c":null}}),
            json!({"a":{"b":"d"}}),
        ),
        (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a":"b"}), json!(["c"]), json!(["c"])),
        (json!({"a":"foo"}), json!(null), json!(null)),
        (json!({"a":"foo"}), json!("bar"), json!("bar")),
        (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
        (
            json!({}),
            json!({"a":{"bb":{"ccc":null}}}),
            json!({"a":{"bb":{}}}),
        ),
    ] {
        assert_eq!(merge(&live, &patch), expected, "{live} + {patch}");
    }
}

/// Checks what must come of a patch of what is at `/spec`.
fn strategic_case(schema: &Schema, live: &Value, patch: &Value, expected: &Value) {
    let (live, patch) = (json!({"spec": live}), json!({"spec": patch}));
    assert_eq!(
        strategic(&live, &patch, schema),
        Ok(json!({"spec": expected})),
        "{live} + {patch}"
    );
}

#[test]
fn containers_merge_by_name_and_tolerations_are_replaced() {
    // The worked example of Kubernetes' task page on patching in place; what is new comes first, as
    // a real server has it.
    let live = json!({"template": {"spec": {"containers": [{"name": "nginx", "image": "nginx"}],
        "tolerations": [{"effect": "NoSchedule", "key": "dedicated", "value": "test-team"}]}}});
    let added =
        json!({"template": {"spec": {"containers": [{"name": "redis", "image": "redis"}]}}});
    strategic_case(
        &deployment(),
        &live,
        &added,
        &json!({"template": {"spec": {
        "containers": [{"name": "redis", "image": "redis"}, {"name": "nginx", "image": "nginx"}],
        "tolerations": [{"effect": "NoSchedule", "key": "dedicated", "value": "test-team"}]}}}),
    );
    let replaced = json!({"template": {"spec": {"tolerations": [{"effect": "NoSchedule", "key": "disktype"}]}}});
    strategic_case(
        &deployment(),
        &live,
        &replaced,
        &json!({"template": {"spec": {
        "containers": [{"name": "nginx", "image": "nginx"}],
        "tolerations": [{"effect": "NoSchedule", "key": "disktype"}]}}}),
    );
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
    strategic_case(
        &pod(),
        &live,
        &patch,
        &json!({"containers": [{"name": "x"}, {"name": "b"}, {"name": "c", "image": "1"}, {"name": "a"}]}),
    );
}

#[test]
fn malformed_directives_are_refused() {
    let live = json!({"spec": {"containers": [{"name": "a"}]}});
    for (patch, part) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "explode"}]}}),
            "Unknown patch type",
        ),
        (json!({"spec": {"containers": ["a"]}}), "keyed by"),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
            "must be a list",
        ),
        (json!([]), "anything but an object"),
    ] {
        let error = strategic(&live, &patch, &pod()).expect_err("malformed");
        assert!(error.to_string().contains(part), "{patch}: {error}");
    }
}

/// Documents of objects, lists and scalars, a few levels deep, with names that collide often.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_twice_is_merging_once(live in document(), patch in document()) {
        let once = merge(&live, &patch);
        prop_assert_eq!(merge(&once, &patch), once);
    }

    #[test]
    fn what_a_merge_yields_from_nothing_has_no_nulls_in_objects(patch in document()) {
        fn clean(value: &Value) -> bool {
            value.as_object().is_none_or(|o| o.values().all(|v| !v.is_null() && clean(v)))
        }
        let merged = merge(&json!({}), &patch);
        prop_assert!(clean(&merged), "{}", merged);
    }

    #[test]
    fn strategic_patches_of_unkeyed_fields_are_merge_patches(live in document(), patch in document()) {
        // Below `data` of a kind without it, nothing is keyed: both forms must agree where objects
        // meet.
        let (live, patch) = (json!({"x": live}), json!({"x": patch}));
        if let Ok(patched) = strategic(&live, &patch, &pod()) {
            prop_assert_eq!(patched, merge(&live, &patch));
        }
    }
}
