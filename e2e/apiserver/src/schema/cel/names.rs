//! Names in expressions of admission policies: compiled before they are kept, so that a policy
//! never passes for one that it is not. An expression that refers to anything not implemented here
//! is refused, where the real server would take it.

use cel::common::ast::{EntryExpr, Expr as Kind};
use serde_json::Value;

use super::{Expr, parse};

/// Functions without a target, each with one argument.
const GLOBAL: &[&str] = &["size", "string", "int", "double", "isURL", "url", "dyn"];
/// Functions of a target, with the numbers of arguments that they take besides it.
const METHODS: &[(&str, &[usize])] = &[
    ("size", &[0]),
    ("contains", &[1]),
    ("startsWith", &[1]),
    ("endsWith", &[1]),
    ("matches", &[1]),
    ("split", &[1, 2]),
    ("replace", &[2, 3]),
    ("indexOf", &[1, 2]),
    ("lowerAscii", &[0]),
    ("upperAscii", &[0]),
    ("trim", &[0]),
    ("substring", &[1, 2]),
    ("join", &[0, 1]),
    ("getHost", &[0]),
];

/// Variables that expressions of policies may refer to, `variables` besides.
const ROOTS: &[&str] = &["object", "oldObject", "request"];

/// Names that expressions may refer to.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Variables of the request: `object`, `request`.
    pub roots: &'static [&'static str],
    /// Fields of `variables`, each with its expression, which is put in its place: so it is
    /// evaluated where it is needed only.
    pub variables: Vec<(String, Expr)>,
}

impl Names {
    /// Names that the expressions of an admission policy may refer to; the error is about the
    /// variable at this index.
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

    /// Reads an expression; the error names the first reference that is not known.
    pub fn compile(&self, source: &str) -> Result<Expr, String> {
        let mut expression = parse(source)?;
        self.settle(&mut expression, &mut Vec::new())?;
        Ok(expression)
    }

    /// Puts variables in and refuses unknown names; `bound` are the variables of macros around.
    fn settle(&self, expression: &mut Expr, bound: &mut Vec<String>) -> Result<(), String> {
        match &mut expression.expr {
            Kind::Literal(_) => Ok(()),
            Kind::Ident(name) if bound.contains(name) || self.roots.contains(&name.as_str()) => {
                Ok(())
            }
            Kind::Ident(name) => Err(undeclared(name)),
            Kind::Select(select)
                if !select.test
                    && matches!(&select.operand.expr, Kind::Ident(name) if name == "variables") =>
            {
                let name = &select.field;
                let found = self.variables.iter().find(|(own, _)| own == name);
                let found = found.ok_or_else(|| format!("undefined field '{name}'"))?;
                *expression = found.1.clone();
                Ok(())
            }
            Kind::Select(select) => self.settle(&mut select.operand, bound),
            Kind::Call(call) => {
                check_call(&call.func_name, call.target.is_some(), call.args.len())?;
                let parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
                self.settle_all(parts, bound)
            }
            Kind::List(list) => self.settle_all(&mut list.elements, bound),
            Kind::Map(map) => map.entries.iter_mut().try_for_each(|entry| {
                let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                    return Err("a map has keys".to_owned());
                };
                self.settle_all([&mut entry.key, &mut entry.value], bound)
            }),
            Kind::Comprehension(macros) => {
                self.settle(&mut macros.iter_range, bound)?;
                let outside = bound.len();
                bound.extend([macros.iter_var.clone(), macros.accu_var.clone()]);
                bound.extend(macros.iter_var2.clone());
                let parts = [
                    &mut macros.accu_init,
                    &mut macros.loop_cond,
                    &mut macros.loop_step,
                    &mut macros.result,
                ];
                let settled = self.settle_all(parts, bound);
                bound.truncate(outside);
                settled
            }
            Kind::Struct(message) => Err(undeclared(&message.type_name)),
            Kind::Unspecified => Err("an expression is missing".to_owned()),
        }
    }

    fn settle_all<'e>(
        &self,
        parts: impl IntoIterator<Item = &'e mut Expr>,
        bound: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut parts = parts.into_iter();
        parts.try_for_each(|part| self.settle(part, bound))
    }
}

/// Checks that a function of that name takes so many arguments. Operators are calls whose names are
/// no identifiers (`_&&_`).
fn check_call(name: &str, has_target: bool, arguments: usize) -> Result<(), String> {
    let is_operator = name.contains(|c: char| !c.is_alphanumeric() && c != '_');
    let counts: Option<&[usize]> = if has_target {
        let method = METHODS.iter().find(|(own, _)| *own == name);
        method.map(|(_, counts)| *counts)
    } else {
        GLOBAL.contains(&name).then_some(&[1])
    };
    match counts {
        _ if is_operator => Ok(()),
        None => Err(undeclared(name)),
        Some(counts) if counts.contains(&arguments) => Ok(()),
        Some(_) => Err(format!("found no matching overload for '{name}'")),
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}'")
}
