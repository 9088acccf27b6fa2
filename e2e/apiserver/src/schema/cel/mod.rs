//! CEL of validation rules, match conditions and admission policies: the language by the crate
//! `cel`, with what Kubernetes adds for text and for hosts of URLs.
//!
//! Left out are estimated costs, type checking before evaluation, and the other libraries of
//! Kubernetes (lists, quantities, addresses, formats). A rule of a definition that calls a function
//! that is not there is taken to hold; an admission policy that does is refused.

mod names;
#[cfg(test)]
mod tests;
mod urls;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey};
use cel::common::types::{CelNull, CelString};
use cel::common::value::{CowVal, Val};
use cel::{Context, DeclarationError, Env, ExecutionError};
use serde_json::Value;

use super::known::Known;

pub use names::Names;

/// An expression that was read; its macros are expanded.
pub type Expr = cel::IdedExpr;

/// Expressions that were read.
static READ: LazyLock<Known<Result<Expr, String>>> = LazyLock::new(Known::default);

/// The functions and macros that expressions may use.
static LANGUAGE: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(language().expect("no function is declared twice")));

fn language() -> Result<Env, DeclarationError> {
    let mut language = Env::stdlib().with_optional_support(false);
    language.add_extension(cel::extensions::strings)?;
    language.add_extension(urls::extension)?;
    Ok(language)
}

/// Why an expression has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The expression went wrong, as it would in the real server: `no such key: x`.
    Wrong(String),
    /// The expression calls a function that is not there.
    Unsupported,
}

/// Reads an expression; the error shows where it stops making sense.
pub fn parse(source: &str) -> Result<Expr, String> {
    READ.get(source, |source| {
        let read = LANGUAGE.parser().parse(source);
        read.map_err(|errors| errors.to_string())
    })
}

/// Returns whether the rule compares with the value before; such rules are silent on creation.
pub fn is_transition(rule: &Expr) -> bool {
    rule.references().has_variable("oldSelf")
}

/// Variables that expressions are evaluated with.
pub struct Scope<'v>(Context<'v, 'v>);

impl<'v> Scope<'v> {
    /// Returns a scope with these variables.
    pub fn new(variables: impl IntoIterator<Item = (&'static str, &'v Value)>) -> Self {
        let mut context = Context::with_env(Arc::clone(&LANGUAGE));
        for (name, value) in variables {
            context.add_variable_as_val(name, converted(value));
        }
        Self(context)
    }

    /// Returns whether the expression is true.
    pub fn holds(&self, expression: &Expr) -> Result<bool, Failure> {
        let answer = self.resolve(expression)?;
        let truth = answer.downcast_ref::<CelBool>().map(|truth| *truth.inner());
        truth.ok_or_else(|| Failure::Wrong("the expression must evaluate to a bool".to_owned()))
    }

    fn resolve<'b>(&'b self, expression: &'b Expr) -> Result<CowVal<'b, 'v>, Failure> {
        cel::Value::resolve_val(expression, &self.0).map_err(|error| match error {
            ExecutionError::UndeclaredReference(name)
                if expression.references().has_function(&*name) =>
            {
                Failure::Unsupported
            }
            ExecutionError::NoSuchKey(name) => Failure::Wrong(format!("no such key: {name}")),
            error => Failure::Wrong(error.to_string()),
        })
    }
}

/// Returns the value as the language sees it; texts are borrowed. Whole numbers are `int`, all
/// others `double`.
fn converted(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Box::new(CelInt::from(whole)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(list) => {
            let items: Vec<Box<dyn Val + '_>> = list.iter().map(converted).collect();
            Box::new(CelList::from(items))
        }
        Value::Object(fields) => {
            let entries: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = fields
                .iter()
                .map(|(name, value)| (name.as_str().into(), converted(value)))
                .collect();
            Box::new(CelMap::from(entries))
        }
    }
}
