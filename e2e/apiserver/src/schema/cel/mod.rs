//! CEL, as far as validation rules of CRDs and match conditions of webhooks use it: parsed once,
//! evaluated over JSON.
//!
//! Left out are estimated costs, type checking before evaluation, and the libraries for quantities,
//! addresses and formats. A rule of a definition that uses what is left out is taken to hold; an
//! admission policy that does is refused.

mod compile;
mod eval;
mod functions;
mod parse;

use serde_json::Value;

pub use compile::Names;
pub use parse::Expr;

/// Why a rule has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The rule went wrong, as it would in the real server: `no such key: x`.
    Wrong(String),
    /// The rule uses something that is not implemented here.
    Unsupported,
}

/// Reads a rule; the error says where it stops making sense.
pub fn parse(source: &str) -> Result<Expr, String> {
    parse::parse(source)
}

/// What the rule says of `this`, and of what it was before.
pub fn evaluate(rule: &Expr, this: &Value, old: Option<&Value>) -> Result<Value, Failure> {
    let mut scope = vec![("self".to_owned(), this.clone())];
    scope.extend(old.map(|old| ("oldSelf".to_owned(), old.clone())));
    eval::eval(rule, &mut scope)
}

/// What the expression says with these variables.
pub fn evaluate_with(expression: &Expr, variables: &[(&str, Value)]) -> Result<Value, Failure> {
    let mut scope = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    eval::eval(expression, &mut scope)
}

/// Whether the rule compares with what was before; such rules are silent on creation.
pub fn is_transition(rule: &Expr) -> bool {
    rule.mentions("oldSelf")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Failure, evaluate, is_transition, parse};

    fn value(rule: &str, this: &Value) -> Result<Value, Failure> {
        evaluate(&parse(rule).expect(rule), this, None)
    }

    #[test]
    fn expressions_have_the_values_of_the_language() {
        let this = json!({"a": "text", "n": 3, "f": 1.5, "list": [1, 2, 3], "map": {"k": "v"},
            "items": [{"name": "x", "on": true}, {"name": "y"}], "none": null});
        for (rule, expected) in [
            ("1 + 2 * 3 == 7", json!(true)),
            ("(1 + 2) * 3", json!(9)),
            ("7 / 2", json!(3)),
            ("-7 % 3", json!(-1)),
            ("self.f < 2.0 && self.n >= 3", json!(true)),
            ("!(self.n > 3) || self.a == 'x'", json!(true)),
            ("self.n > 2 ? 'big' : 'small'", json!("big")),
            ("has(self.a) && !has(self.b)", json!(true)),
            ("has(self.b) && self.b == 'x'", json!(false)),
            ("self.a.size() == 4 && size(self.list) == 3", json!(true)),
            (
                "self.a.startsWith('te') && self.a.endsWith(\"xt\") && self.a.contains('ex')",
                json!(true),
            ),
            ("self.a.matches('^[a-z]+$')", json!(true)),
            (
                "self.list.all(x, x > 0) && self.list.exists(x, x == 3)",
                json!(true),
            ),
            ("self.list.exists_one(x, x > 2)", json!(true)),
            ("self.list.filter(x, x > 1).map(x, x * 2)", json!([4, 6])),
            ("2 in self.list && !(5 in self.list)", json!(true)),
            ("'k' in self.map && self.map['k'] == 'v'", json!(true)),
            ("self.map.all(k, self.map[k] != '')", json!(true)),
            ("self.items.all(i, !has(i.on) || i.on)", json!(true)),
            ("self.items.map(i, i.name).join(',')", json!("x,y")),
            ("[1, 2] + [3] == self.list", json!(true)),
            ("{'a': 1}.a", json!(1)),
            ("'a b'.split(' ').size()", json!(2)),
            ("string(self.n) + 'x'", json!("3x")),
            ("int('4') + 1", json!(5)),
            ("self.none == null", json!(true)),
            (
                "isURL('https://a.b:6443/x') && url('https://a.b:6443/x').getHost() == 'a.b:6443'",
                json!(true),
            ),
            ("isURL('nothing')", json!(false)),
            ("r'\\d' == '\\\\d'", json!(true)),
        ] {
            assert_eq!(value(rule, &this), Ok(expected), "{rule}");
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_unless_the_other_side_decides() {
        let this = json!({"a": 1});
        assert_eq!(
            value("self.b == 1", &this),
            Err(Failure::Wrong("no such key: b".to_owned()))
        );
        assert_eq!(value("self.b == 1 || self.a == 1", &this), Ok(json!(true)));
        assert_eq!(value("self.b == 1 && self.a == 2", &this), Ok(json!(false)));
        assert_eq!(
            value("self.a < 'x'", &this),
            Err(Failure::Wrong("no such overload".to_owned()))
        );
        assert_eq!(value("quantity('1')", &this), Err(Failure::Unsupported));
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
        ] {
            assert!(parse(rule).is_err(), "{rule}");
        }
    }

    #[test]
    fn rules_about_changes_are_told_apart() {
        let rule = parse("self.n >= oldSelf.n").expect("a rule");
        assert!(is_transition(&rule) && !is_transition(&parse("self.n > 1").expect("a rule")));
        let old = json!({"n": 3});
        assert_eq!(
            evaluate(&rule, &json!({"n": 2}), Some(&old)),
            Ok(json!(false))
        );
    }

    #[test]
    fn the_rules_of_our_own_kinds_are_all_understood() {
        fn rules(schema: &Value, found: &mut Vec<String>) {
            match schema {
                Value::Object(fields) => {
                    for (name, value) in fields {
                        if name == "x-kubernetes-validations" {
                            let list = value.as_array().into_iter().flatten();
                            found
                                .extend(list.filter_map(|v| v["rule"].as_str().map(str::to_owned)));
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
        for rule in found {
            let parsed = parse(&rule).expect(&rule);
            assert_ne!(
                evaluate(&parsed, &json!({}), None),
                Err(Failure::Unsupported),
                "{rule}"
            );
        }
    }
}
