//! What a CRD's schema demands of a value beyond its type.

use regex::Regex;
use serde_json::Value;

use super::cel::{self, Expr};
use super::known;
use super::node::Id;
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
    /// Lower bound, and whether it is excluded.
    pub minimum: Option<(f64, bool)>,
    /// Upper bound, and whether it is excluded.
    pub maximum: Option<(f64, bool)>,
    /// Numbers must be multiples of it.
    pub multiple_of: Option<f64>,
    /// Length of text in characters, elements of a list, fields of an object: lower bounds.
    pub at_least: Bounds,
    /// The same, upper bounds.
    pub at_most: Bounds,
    /// Elements must differ.
    pub unique: bool,
    /// All of these must hold.
    pub all_of: Vec<Id>,
    /// At least one of these must hold.
    pub any_of: Vec<Id>,
    /// Exactly one of these must hold.
    pub one_of: Vec<Id>,
    /// This must not hold.
    pub not: Option<Id>,
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
    /// Fields.
    pub properties: Option<u64>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names)]
pub struct Expression {
    /// The CEL source.
    pub rule: String,
    /// What to say when it does not hold.
    pub message: Option<String>,
    /// Reason of the error, `FieldValueInvalid` where absent.
    pub reason: Option<String>,
    /// Where to report it, relative to the value.
    pub field_path: Option<String>,
    /// What to say instead, worked out from the value.
    pub message_expression: Option<Expr>,
    /// The source, understood; `None` where it makes no sense, which the definition was refused
    /// for.
    pub parsed: Option<Expr>,
}

impl Rules {
    /// Returns the demands of `schema`, or `None` where it has none. `node` builds the schemas
    /// inside `allOf` and the like.
    pub fn read(schema: &Value, mut node: impl FnMut(&Value) -> Id) -> Option<Box<Self>> {
        let mut each = |name: &str| -> Vec<Id> {
            schema[name]
                .as_array()
                .into_iter()
                .flatten()
                .map(&mut node)
                .collect()
        };
        let (all_of, any_of, one_of) = (each("allOf"), each("anyOf"), each("oneOf"));
        let exclusive = |name: &str| schema[name].as_bool().unwrap_or(false);
        let rules = Self {
            required: texts(&schema["required"]),
            allowed: schema["enum"].as_array().cloned().unwrap_or_default(),
            pattern: schema["pattern"]
                .as_str()
                .and_then(|p| known::pattern(p).ok().map(|regex| (p.to_owned(), regex))),
            format: schema["format"].as_str().map(str::to_owned),
            minimum: schema["minimum"]
                .as_f64()
                .map(|m| (m, exclusive("exclusiveMinimum"))),
            maximum: schema["maximum"]
                .as_f64()
                .map(|m| (m, exclusive("exclusiveMaximum"))),
            multiple_of: schema["multipleOf"].as_f64(),
            at_least: Bounds::read(schema, ["minLength", "minItems", "minProperties"]),
            at_most: Bounds::read(schema, ["maxLength", "maxItems", "maxProperties"]),
            unique: exclusive("uniqueItems"),
            not: schema.get("not").map(&mut node),
            expressions: schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Expression::read)
                .collect(),
            all_of,
            any_of,
            one_of,
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
            && self.multiple_of.is_none()
            && self.at_least.is_empty()
            && self.at_most.is_empty()
            && !self.unique
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
            && self.expressions.is_empty()
    }
}

impl Bounds {
    fn read(schema: &Value, [length, items, properties]: [&str; 3]) -> Self {
        Self {
            length: schema[length].as_u64(),
            items: schema[items].as_u64(),
            properties: schema[properties].as_u64(),
        }
    }

    fn is_empty(self) -> bool {
        self.length.is_none() && self.items.is_none() && self.properties.is_none()
    }
}

impl Expression {
    /// Returns whether the rule has an answer: one about changes has none without a value before.
    pub fn applies(&self, old: Option<&Value>) -> bool {
        old.is_some() || !self.parsed.as_ref().is_some_and(cel::is_transition)
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let parsed = |name: &str| {
            value[name]
                .as_str()
                .and_then(|source| cel::parse(source).ok())
        };
        Some(Self {
            parsed: parsed("rule"),
            message_expression: parsed("messageExpression"),
            rule: text("rule")?,
            message: text("message"),
            reason: text("reason"),
            field_path: text("fieldPath"),
        })
    }
}
