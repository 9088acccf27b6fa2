//! Values on their way into a script and out of it.

use std::time::Duration;

use crate::typed::Typed;
use muster_interpreter::Operation;
use muster_interpreter::lua::{Engine, Limits};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{refused, reported, reported_with, rules, value, widget};

#[test]
fn numbers_keep_their_kind() {
    let status = json!({
        "whole": 3, "half": 2.5, "negative": -7, "large": 9_007_199_254_740_991_i64, "zero": 0,
    });
    assert_eq!(reported("return object.status", &status), Ok(status));
    assert_eq!(value("6 / 2"), json!(3));
    assert_eq!(value("7 / 2"), json!(3.5));
    assert_eq!(value("2 ^ 53"), json!(9_007_199_254_740_992_i64));
    assert_eq!(value("2 ^ 63"), json!(9.223_372_036_854_776e18));
    assert_eq!(value("1e300"), json!(1e300));
    assert_eq!(value("-0"), json!(0));
}

#[test]
fn integers_keep_the_digits_for_which_a_double_has_no_room() {
    let large = json!({
        "first": 9_007_199_254_740_993_i64,
        "unlimited": [1, i64::MAX, i64::MIN, u64::MAX],
    });
    assert_eq!(reported("return object.status", &large), Ok(large.clone()));
    let other = "object.status.first = object.status.first + 10 return object.status";
    let found = reported(other, &large).unwrap();
    assert_eq!(
        found["first"],
        json!(9_007_199_254_741_002_i64),
        "another number"
    );

    let retain = "function Retain(d, o) d.spec.kept = o.spec.kept return d end";
    let rules = rules(&[(Operation::Retain, retain)]);
    let (mut object, mut observed) = (widget(&json!({})), widget(&json!({})));
    object["spec"]["wanted"] = large.clone();
    observed["spec"]["kept"] = large.clone();
    let found = Engine::default().retain(&rules, &object, &observed);
    object["spec"]["kept"] = large;
    assert_eq!(found, Ok(Some(object)));
}

#[test]
fn null_is_nil_and_nil_is_absent() {
    let status = json!({ "gone": null, "list": [1, null, 2], "kept": true });
    let expected = json!({ "list": [1, 2], "kept": true });
    assert_eq!(reported("return object.status", &status), Ok(expected));
    let found = reported("return { is_nil = object.status.gone == nil }", &status);
    assert_eq!(found, Ok(json!({ "is_nil": true })));
}

#[test]
fn empty_lists_and_objects_that_came_in_stay_what_they_were() {
    let status = json!({ "list": [], "object": {}, "deep": [{ "list": [], "object": {} }] });
    assert_eq!(
        reported("return object.status", &status),
        Ok(status.clone())
    );
    // Also at another place.
    let moved = "return { a = object.status.list, b = object.status.object }";
    assert_eq!(reported(moved, &status), Ok(json!({ "a": [], "b": {} })));
}

#[test]
fn an_empty_table_of_the_script_is_what_stands_at_its_place() {
    let status = json!({ "list": [1], "object": { "key": 1 }, "entries": [{ "names": ["a"] }] });
    let body = "return { list = {}, object = {}, unknown = {}, entries = { { names = {} } } }";
    let expected = json!({ "list": [], "object": {}, "entries": [{ "names": [] }] });
    assert_eq!(reported(body, &status), Ok(expected));
    assert_eq!(reported("return {}", &json!({})), Ok(json!({})));
}

#[test]
fn empty_values_of_an_object_survive_every_operation_that_returns_one() {
    let engine = Engine::default();
    let revise = "function ReviseReplica(o, n) o.spec.replicas = n return o end";
    let retain = "function Retain(d, o) d.spec.kept = o.spec.kept return d end";
    let aggregate = "function AggregateStatus(o, items) o.status = items[1].status return o end";
    let rules = rules(&[
        (Operation::ReviseReplica, revise),
        (Operation::Retain, retain),
        (Operation::AggregateStatus, aggregate),
    ]);
    let mut object = widget(&json!({}));
    object["spec"] = json!({ "volumes": [], "selector": {}, "replicas": 1 });
    let mut expected = object.clone();
    expected["spec"]["replicas"] = json!(5);
    let found = engine.revise_replica(&rules, &object, 5);
    assert_eq!(found, Ok(Some(expected)));

    let mut observed = object.clone();
    observed["spec"]["kept"] = json!({ "empty": {}, "none": [] });
    let mut expected = object.clone();
    expected["spec"]["kept"] = observed["spec"]["kept"].clone();
    let found = engine.retain(&rules, &object, &observed);
    assert_eq!(found, Ok(Some(expected)));

    let items = [json!({ "clusterName": "m", "status": { "empty": {}, "none": [] } })];
    let mut expected = object.clone();
    expected["status"] = items[0]["status"].clone();
    let found = engine.aggregate_status(&rules, &object, &items);
    assert_eq!(found, Ok(Some(expected)));
}

#[test]
fn values_without_a_form_in_json_are_refused_with_their_place() {
    let mixed = "other keys, or both";
    let (boolean, gap) = ("a boolean as a key", "a gap before the entry 3");
    let itself = "a table inside itself";
    for (body, path, found) in [
        ("return { a = { b = print } }", "result.a.b", "a function"),
        ("return { a = { 1, 0 / 0 } }", "result.a[2]", "NaN"),
        ("return { a = 1 / 0 }", "result.a", "inf"),
        ("return { a = -1 / 0 }", "result.a", "-inf"),
        ("return { [1] = 'x', y = 2 }", "result", mixed),
        ("return { a = { [1.5] = 1 } }", "result.a", mixed),
        ("return { a = { [0] = 1 } }", "result.a", mixed),
        ("return { a = { [true] = 1 } }", "result.a", boolean),
        ("return { a = { [1] = 1, [3] = 3 } }", "result.a", gap),
        ("local t = {} t.t = { t } return t", "result.t[1]", itself),
        ("return 'x'", "result", "a text"),
        ("return", "result", "nil"),
        ("return { 1, 2 }", "result", "[1,2]"),
    ] {
        assert_eq!(refused(body), (path.to_owned(), found.to_owned()), "{body}");
    }
}

#[test]
fn a_list_may_be_filled_in_any_order_and_a_table_used_twice() {
    let body = "local t = {} for i = 5, 1, -1 do t[i] = i end return { a = t, b = t }";
    let expected = json!({ "a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5] });
    assert_eq!(reported(body, &json!({})), Ok(expected));
}

#[test]
fn a_result_that_grows_by_reuse_or_depth_is_refused() {
    let doubled = "local t = { 1 } for i = 1, 60 do t = { t, t } end return { t = t }";
    assert_eq!(refused(doubled).1, "more");
    let deep = "local t = { x = 1 } for i = 1, 150 do t = { t = t } end return t";
    assert_eq!(refused(deep).1, "a deeper one");
}

#[test]
fn text_that_is_not_utf_8_is_replaced() {
    let expected = json!("a\u{fffd}b");
    assert_eq!(value("'a\\255b'"), expected);
    let body = "return { ['k\\200'] = 'x' }";
    assert_eq!(reported(body, &json!({})), Ok(json!({ "k\u{fffd}": "x" })));
}

#[test]
fn a_list_of_a_hundred_thousand_entries_goes_in_and_out() {
    let list: Vec<Value> = (0..100_000)
        .map(|at| json!({ "name": format!("e{at}") }))
        .collect();
    let status = json!({ "list": list });
    let body = "local names = {}
        for _, one in ipairs(object.status.list) do table.insert(names, one.name) end
        return { names = names, list = object.status.list }";
    let engine = Engine::new(Limits {
        time: Duration::from_secs(100),
        ..Limits::default()
    });
    let found = reported_with(&engine, body, &status).unwrap();
    assert_eq!(found["list"], status["list"]);
    assert_eq!(found["names"][99_999], json!("e99999"));
}

/// Values as an object of the API may have them.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-(1_i64 << 53)..1 << 53).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[\\PC\\x00]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-zé0-9/.]{0,3}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns the value without what is null, and with numbers that have no fraction as integers.
/// These have all their digits where the value `is_in_place`, which the entries of a list behind
/// one that is null are not.
fn through_lua(value: &Value, is_in_place: bool) -> Value {
    match value {
        Value::Array(list) => {
            let in_place = list.iter().take_while(|one| !one.is_null()).count();
            let kept = list.iter().enumerate().filter(|(_, one)| !one.is_null());
            kept.map(|(at, one)| through_lua(one, is_in_place && at < in_place))
                .collect()
        }
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, one)| !one.is_null());
            let kept = kept.map(|(key, one)| (key.clone(), through_lua(one, is_in_place)));
            Value::Object(kept.collect())
        }
        Value::Number(number) if is_in_place && !number.is_f64() => value.clone(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            if number.fract() == 0.0 && (-(2_f64.powi(63))..2_f64.powi(63)).contains(&number) {
                #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
                return json!(number as i64);
            }
            json!(number)
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(value in values()) {
        let value = json!({ "value": value });
        let found = reported("return object.status", &value);
        prop_assert_eq!(found, Ok(through_lua(&value, true)));
    }
}
