//! What a CRD's schema demands of a value beyond its type.

use regex::Regex;
use serde_json::Value;

use super::cel::{self, Expr};
use super::known;
use crate::wire::json::texts;

/// Demands on one value; absent ones are `None` or empty.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Fields that must be there.
    pub required: Vec<String>,
    /// Allowed values.
    pub allowed: Vec<Value>,
    /// Pattern as written, and compiled.
    pub pattern: Option<(String, Regex)>,
    /// Named format (`date-time`, `int32`, …).
    pub format: Option<String>,
    /// Lower bound.
    pub minimum: Option<f64>,
    /// Upper bound.
    pub maximum: Option<f64>,
    /// Length of text in characters, elements of a list: lower bounds.
    pub at_least: Bounds,
    /// The same, upper bounds.
    pub at_most: Bounds,
    /// CEL rules.
    pub expressions: Vec<Expression>,
}

/// Bounds on sizes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Characters.
    pub length: Option<u64>,
    /// Elements.
    pub items: Option<u64>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names)]
pub struct Expression {
    /// The CEL source.
    pub rule: String,
    /// What to say when it does not hold.
    pub message: Option<String>,
    /// The source, understood; `None` where it makes no sense, which the definition was refused
    /// for.
    pub parsed: Option<Expr>,
}

impl Rules {
    /// Returns the demands of `schema`, or `None` where it has none.
    pub fn read(schema: &Value) -> Option<Box<Self>> {
        let rules = Self {
            required: texts(&schema["required"]),
            allowed: schema["enum"].as_array().cloned().unwrap_or_default(),
            pattern: schema["pattern"]
                .as_str()
                .and_then(|p| known::pattern(p).ok().map(|regex| (p.to_owned(), regex))),
            format: schema["format"].as_str().map(str::to_owned),
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            at_least: Bounds::read(schema, ["minLength", "minItems"]),
            at_most: Bounds::read(schema, ["maxLength", "maxItems"]),
            expressions: schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Expression::read)
                .collect(),
        };
        (!rules.is_empty()).then(|| Box::new(rules))
    }

    fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.allowed.is_empty()
            && self.pattern.is_none()
            && self.format.is_none()
            && self.minimum.is_none()
            && self.maximum.is_none()
            && self.at_least.is_empty()
            && self.at_most.is_empty()
            && self.expressions.is_empty()
    }
}

impl Bounds {
    fn read(schema: &Value, [length, items]: [&str; 2]) -> Self {
        Self {
            length: schema[length].as_u64(),
            items: schema[items].as_u64(),
        }
    }

    fn is_empty(self) -> bool {
        self.length.is_none() && self.items.is_none()
    }
}

impl Expression {
    /// Returns whether the rule has an answer: one about changes has none without a value before.
    pub fn applies(&self, old: Option<&Value>) -> bool {
        old.is_some() || !self.parsed.as_ref().is_some_and(cel::is_transition)
    }

    fn read(value: &Value) -> Option<Self> {
        let rule = value["rule"].as_str()?;
        Some(Self {
            parsed: cel::parse(rule).ok(),
            rule: rule.to_owned(),
            message: value["message"].as_str().map(str::to_owned),
        })
    }
}
