//! Expressions of admission policies: compiled before they are kept, so that a policy never passes
//! for one that it is not. What is not implemented here is refused, where the real server would
//! take it.

use serde_json::Value;

use super::parse::{self, Expr};

/// Functions that take one argument and no target.
const GLOBAL: &[&str] = &["size", "string", "int", "double", "isURL", "url", "dyn"];
/// Functions of a target: texts, lists and URLs.
const METHODS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "split",
    "replace",
    "indexOf",
    "lowerAscii",
    "upperAscii",
    "trim",
    "substring",
    "join",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
];
/// Macros over a list or a map, whose first argument is a variable.
const MACROS: &[&str] = &["all", "exists", "exists_one", "filter", "map"];

/// What expressions of policies may refer to, `variables` besides.
const ROOTS: &[&str] = &["object", "oldObject", "request"];

/// What expressions may refer to.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Variables of the request: `object`, `request`.
    pub roots: &'static [&'static str],
    /// Fields of `variables`, each with its expression, which is put in its place: so it is
    /// evaluated where it is needed only.
    pub variables: Vec<(String, Expr)>,
}

impl Names {
    /// What the expressions of an admission policy may refer to; the error is about the variable at
    /// this index.
    pub fn of_policy(spec: &Value) -> Result<Self, (usize, String)> {
        let mut names = Self {
            roots: ROOTS,
            variables: Vec::new(),
        };
        let variables = spec["variables"].as_array().into_iter().flatten();
        for (index, variable) in variables.enumerate() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            let expression = names.compile(text("expression"));
            let expression = expression.map_err(|why| (index, why))?;
            names.variables.push((text("name").to_owned(), expression));
        }
        Ok(names)
    }

    /// Reads an expression; the error says what is not known.
    pub fn compile(&self, source: &str) -> Result<Expr, String> {
        let mut expression = parse::parse(source)?;
        self.settle(&mut expression, &mut Vec::new())?;
        Ok(expression)
    }

    /// Puts variables in and refuses what is not known; `bound` are the variables of macros around.
    fn settle(&self, expression: &mut Expr, bound: &mut Vec<String>) -> Result<(), String> {
        match expression {
            Expr::Literal(_) => Ok(()),
            Expr::Name(name) if bound.contains(name) || self.roots.contains(&&**name) => Ok(()),
            Expr::Name(name) => Err(format!("undeclared reference to '{name}'")),
            Expr::Member(inner, name) if matches!(&**inner, Expr::Name(it) if it == "variables") => {
                let found = self.variables.iter().find(|(own, _)| own == name);
                let found = found.ok_or_else(|| format!("undefined field '{name}'"))?;
                *expression = found.1.clone();
                Ok(())
            }
            Expr::Member(inner, _) | Expr::Unary(_, inner) => self.settle(inner, bound),
            Expr::Index(a, b) | Expr::Binary(_, a, b) => {
                self.settle(a, bound)?;
                self.settle(b, bound)
            }
            Expr::Choice(a, b, c) => [a, b, c]
                .into_iter()
                .try_for_each(|part| self.settle(part, bound)),
            Expr::List(items) => items
                .iter_mut()
                .try_for_each(|item| self.settle(item, bound)),
            Expr::Map(entries) => entries.iter_mut().try_for_each(|(key, value)| {
                self.settle(key, bound)?;
                self.settle(value, bound)
            }),
            Expr::Call(target, name, arguments) => {
                self.call(target.as_deref_mut(), name, arguments, bound)
            }
        }
    }

    fn call(
        &self,
        target: Option<&mut Expr>,
        name: &str,
        arguments: &mut [Expr],
        bound: &mut Vec<String>,
    ) -> Result<(), String> {
        let unknown = || Err(format!("undeclared reference to '{name}'"));
        let Some(target) = target else {
            return match (name, &mut *arguments) {
                ("has", [Expr::Member(inner, _)]) => self.settle(inner, bound),
                ("has", _) => Err("invalid argument to has() macro".to_owned()),
                (_, [argument]) if GLOBAL.contains(&name) => self.settle(argument, bound),
                _ => unknown(),
            };
        };
        self.settle(target, bound)?;
        if MACROS.contains(&name) {
            let [Expr::Name(variable), bodies @ ..] = arguments else {
                return Err("argument must be a simple name".to_owned());
            };
            if !(1..=2).contains(&bodies.len()) || (bodies.len() == 2 && name != "map") {
                return unknown();
            }
            bound.push(variable.clone());
            let settled = bodies
                .iter_mut()
                .try_for_each(|body| self.settle(body, bound));
            bound.pop();
            return settled;
        }
        if !METHODS.contains(&name) {
            return unknown();
        }
        arguments
            .iter_mut()
            .try_for_each(|argument| self.settle(argument, bound))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Failure, evaluate_with};
    use super::*;

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
        let scope = [
            ("object", json!({"metadata": {"name": "m1"}})),
            ("oldObject", json!(null)),
        ];
        for (source, expected) in [
            ("variables.own", Ok(json!("agent-m1"))),
            (
                "oldObject == null || variables.before == 'x'",
                Ok(json!(true)),
            ),
            ("['m1'].exists(it, it == variables.name)", Ok(json!(true))),
            (
                "has(variables.name.x)",
                Err(Failure::Wrong("no such overload".to_owned())),
            ),
            (
                "variables.before == 'x'",
                Err(Failure::Wrong("no such overload".to_owned())),
            ),
        ] {
            let expression = names().compile(source).expect(source);
            assert_eq!(evaluate_with(&expression, &scope), expected, "{source}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_before_it_is_needed() {
        for (source, words) in [
            ("authorizer.group('').check('get')", "'authorizer'"),
            ("true || params.x == 1", "'params'"),
            ("true || variables.other", "undefined field 'other'"),
            ("quantity('1').isGreaterThan(quantity('2'))", "'quantity'"),
            ("object.a.find('x') == ''", "'find'"),
            ("object.list.exists(x, y == x)", "'y'"),
            ("object.list.all(x, true) && x == 1", "'x'"),
            ("has(object)", "has()"),
            ("object.?a.orValue('') == ''", "unexpected"),
            ("size(object.a, object.b)", "'size'"),
        ] {
            let error = names().compile(source).expect_err(source);
            assert!(error.contains(words), "{source}: {error}");
        }
    }
}
