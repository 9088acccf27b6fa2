use serde_json::{Value, json};

use super::{Failure, Names, Scope, is_transition, parse};

fn holds(rule: &str, this: &Value) -> Result<bool, Failure> {
    Scope::new([("self", this)]).holds(&parse(rule).expect(rule))
}

#[test]
fn expressions_have_the_values_of_the_language() {
    let this = json!({"a": "text", "n": 3, "f": 1.5, "list": [1, 2, 3], "map": {"k": "v"},
        "items": [{"name": "x", "on": true}, {"name": "y"}], "none": null});
    for rule in [
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 / 2 == 3",
        "-7 % 3 == -1",
        "self.f < 2.0 && self.n >= 3",
        "self.f < 2 && self.n > 2.5 && self.n == 3.0",
        "!(self.n > 3) || self.a == 'x'",
        "(self.n > 2 ? 'big' : 'small') == 'big'",
        "has(self.a) && !has(self.b)",
        "(has(self.b) && self.b == 'x') == false",
        "self.a.size() == 4 && size(self.list) == 3",
        "self.a.startsWith('te') && self.a.endsWith(\"xt\") && self.a.contains('ex')",
        "self.a.matches('^t.*t$') && self.a.replace('t', 'T') == 'TexT'",
        "self.list.all(x, x > 0) && self.list.exists(x, x == 2)",
        "self.list.exists_one(x, x > 2)",
        "self.list.filter(x, x > 1).map(x, x * 2) == [4, 6]",
        "2 in self.list && !(5 in self.list)",
        "'k' in self.map && self.map['k'] == 'v'",
        "self.map.all(k, self.map[k] != '')",
        "self.items.all(i, !has(i.on) || i.on)",
        "self.items.map(i, i.name).join(',') == 'x,y'",
        "[1, 2] + [3] == self.list",
        "{'a': 1}.a == 1",
        "'a b'.split(' ').size() == 2",
        "string(self.n) + 'x' == '3x'",
        "int('4') + 1 == 5",
        "self.none == null",
        "r'\\d' == '\\\\d'",
    ] {
        assert_eq!(holds(rule, &this), Ok(true), "{rule}");
    }
}

#[test]
fn urls_are_read_as_go_reads_them() {
    for (rule, expected) in [
        (
            "url('https://u@a.b:6443/x%20y?q#f').getHost() == 'a.b:6443'",
            true,
        ),
        ("url('https://a.b:6443/x').getHostname() == 'a.b'", true),
        ("url('https://[::1]:6443').getHostname() == '::1'", true),
        ("url('https://[::1]').getPort() == ''", true),
        ("url('https://a.b:6443').getPort() == '6443'", true),
        (
            "url('https://a.b/x%20y?q').getEscapedPath() == '/x%20y'",
            true,
        ),
        ("url('/a/b?q').getEscapedPath() == '/a/b'", true),
        ("url('/a/b').getHost() == ''", true),
        ("url('mailto:a@b').getScheme() == 'mailto'", true),
        ("url('https://a') == url('https://a')", true),
        ("isURL('https://a.b') && isURL('/a')", true),
        ("isURL('nothing') || isURL('')", false),
        ("isURL('https://a b')", false),
        ("isURL('https://a:port')", false),
        ("isURL('https://a|b')", false),
    ] {
        assert_eq!(holds(rule, &json!({})), Ok(expected), "{rule}");
    }
    assert!(matches!(
        holds("url('nothing').getHost() == ''", &json!({})),
        Err(Failure::Wrong(_))
    ));
}

#[test]
fn what_is_not_there_is_an_error_unless_the_other_side_decides() {
    let this = json!({"a": 1, "n": null});
    assert_eq!(
        holds("self.b == 1", &this),
        Err(Failure::Wrong("no such key: b".to_owned()))
    );
    assert_eq!(holds("self.b == 1 || self.a == 1", &this), Ok(true));
    assert_eq!(holds("self.b == 1 && self.a == 2", &this), Ok(false));
    for rule in [
        "self.a < 'x'",
        "self.a.b == 1",
        "has(self.a.b)",
        "!has(self.n.b)",
        "self.n.b == 1",
        "'a' in self.n",
        "self.a",
    ] {
        assert!(
            matches!(holds(rule, &this), Err(Failure::Wrong(_))),
            "{rule}"
        );
    }
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
    assert!(matches!(
        holds("other == 1", &json!({})),
        Err(Failure::Wrong(_))
    ));
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    for rule in [
        "",
        "self.",
        "self.a <",
        "(1",
        "'open",
        "self.a ==== 1",
        "1 2",
        "has(self)",
        "self.list.exists(1, true)",
    ] {
        assert!(parse(rule).is_err(), "{rule}");
    }
}

#[test]
fn rules_about_changes_are_told_apart() {
    let rule = parse("self.n >= oldSelf.n").expect("a rule");
    assert!(is_transition(&rule) && !is_transition(&parse("self.n > 1").expect("a rule")));
    let (new, old) = (json!({"n": 2}), json!({"n": 3}));
    let scope = Scope::new([("self", &new), ("oldSelf", &old)]);
    assert_eq!(scope.holds(&rule), Ok(false));
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
    let message = names().compile("'of ' + variables.name").expect("a text");
    assert_eq!(scope.text(&message).as_deref(), Some("of m1"));
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
