use serde_json::{Value, json};

use super::{Failure, Names, Scope, parse};

fn holds(rule: &str, this: &Value) -> Result<bool, Failure> {
    Scope::new([("self", this)]).holds(&parse(rule).expect(rule))
}

#[test]
fn functions_that_are_not_there_are_told_from_errors() {
    for rule in [
        "quantity('1').isGreaterThan(quantity('2'))",
        "self.list.sum() == 1",
    ] {
        let this = json!({"list": [1]});
        assert_eq!(holds(rule, &this), Err(Failure::Unsupported), "{rule}");
    }
    for (rule, words) in [
        ("other == 1", "Undeclared"),
        ("self.b == 1", "no such key: b"),
        ("'a'", "must evaluate to a bool"),
    ] {
        let Err(Failure::Wrong(error)) = holds(rule, &json!({})) else {
            panic!("{rule} is no error");
        };
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_rules_of_our_own_kinds_are_all_understood() {
    fn rules(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if name == "x-kubernetes-validations" {
                        let list = value.as_array().into_iter().flatten();
                        found.extend(list.filter_map(|v| v["rule"].as_str().map(str::to_owned)));
                    }
                    rules(value, found);
                }
            }
            Value::Array(list) => list.iter().for_each(|value| rules(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for crd in muster_shared::api::crds() {
        rules(&serde_json::to_value(crd).expect("serializes"), &mut found);
    }
    assert!(!found.is_empty());
    let names = Names {
        roots: &["self", "oldSelf"],
        ..Names::default()
    };
    for rule in found {
        names.compile(&rule).expect(&rule);
        let this = json!("https://a");
        let scope = Scope::new([("self", &this), ("oldSelf", &this)]);
        let answer = scope.holds(&parse(&rule).expect(&rule));
        assert_ne!(answer, Err(Failure::Unsupported), "{rule}");
    }
}

fn names() -> Names {
    let mut names = Names {
        roots: &["object", "oldObject"],
        ..Names::default()
    };
    for (name, source) in [
        ("name", "object.metadata.name"),
        ("before", "oldObject.metadata.name"),
        ("own", "'agent-' + variables.name"),
    ] {
        let expression = names.compile(source).expect(source);
        names.variables.push((name.to_owned(), expression));
    }
    names
}

#[test]
fn variables_are_evaluated_where_they_are_needed_only() {
    let (object, old) = (json!({"metadata": {"name": "m1"}}), json!(null));
    let scope = Scope::new([("object", &object), ("oldObject", &old)]);
    for (source, expected) in [
        ("variables.own == 'agent-m1'", Some(true)),
        ("oldObject == null || variables.before == 'x'", Some(true)),
        ("['m1'].exists(it, it == variables.name)", Some(true)),
        ("has(variables.name.x)", None),
        ("variables.before == 'x'", None),
    ] {
        let expression = names().compile(source).expect(source);
        let answer = scope.holds(&expression);
        assert_eq!(answer.as_ref().ok().copied(), expected, "{source}");
        assert_ne!(answer, Err(Failure::Unsupported), "{source}");
    }
}

#[test]
fn what_is_not_known_is_refused_before_it_is_needed() {
    for (source, words) in [
        ("authorizer.group('').check('get')", "'check'"),
        ("authorizer == null", "'authorizer'"),
        ("true || params.x == 1", "'params'"),
        ("true || variables.other", "undefined field 'other'"),
        ("has(variables.name)", "'variables'"),
        (
            "quantity('1').isGreaterThan(quantity('2'))",
            "'isGreaterThan'",
        ),
        ("object.a.find('x') == ''", "'find'"),
        ("_f(1)", "'_f'"),
        ("object.list.exists(x, y == x)", "'y'"),
        ("object.list.all(x, true) && x == 1", "'x'"),
        ("object.list.all(x)", "'all'"),
        ("has(object)", "has()"),
        ("object.?a.orValue('') == ''", "unsupported syntax"),
        ("size(object.a, object.b)", "'size'"),
        ("object.a.trim('x') == ''", "'trim'"),
        ("object.a == int", "'int'"),
        ("x.Y{a: 1} == null", "'x.Y'"),
    ] {
        let error = names().compile(source).expect_err(source);
        assert!(error.contains(words), "{source}: {error}");
    }
}
