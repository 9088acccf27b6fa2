//! Whether a configuration fits the schema at all, before it is merged.

use serde_json::Value;

use super::element::Element;
use super::typed::{Form, element, form};
use crate::schema::node::{At, Shape};

/// Returns what does not fit, as the message of the real server lists it; empty text where all
/// fits.
pub fn misfits(at: At<'_>, config: &Value) -> String {
    let mut errors = Vec::new();
    check(Some(at), config, "", &mut errors);
    match errors.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

fn check(at: Option<At<'_>>, value: &Value, path: &str, errors: &mut Vec<String>) {
    let Some(at) = at else {
        return;
    };
    let mut wrong = |what: String| {
        errors.push(if path.is_empty() {
            what
        } else {
            format!("{path}: {what}")
        });
    };
    match (&at.node().shape, value) {
        (_, Value::Null)
        | (Shape::Any | Shape::IntOrString | Shape::Quantity, _)
        | (Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime, Value::String(_))
        | (Shape::Integer(_) | Shape::Number, Value::Number(_))
        | (Shape::Boolean, Value::Bool(_)) => {}
        (Shape::Object { values, .. }, Value::Object(fields)) => {
            for (name, child) in fields {
                let path = format!("{path}{}", Element::field(name));
                match at.field(name) {
                    Some(at) => check(Some(at), child, &path, errors),
                    None if values.is_some() || at.node().preserve_unknown => {}
                    None => errors.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Shape::List { .. }, Value::Array(list)) => {
            let mut seen = Vec::new();
            for (index, item) in list.iter().enumerate() {
                let step = match form(Some(at), Some(value)) {
                    Form::List(kind) => match element(at.items(), kind, item) {
                        Ok(step) => step,
                        Err(error) => {
                            let prefix = if path.is_empty() {
                                String::new()
                            } else {
                                format!("{path}: ")
                            };
                            errors.push(format!("{prefix}element {index}: {error}"));
                            return;
                        }
                    },
                    _ => Element::parse(&format!("i:{index}"))
                        .expect("an index is a step: invariant"),
                };
                if seen.contains(&step) {
                    errors.push(format!("{path}: duplicate entries for key {step}"));
                }
                check(at.items(), item, &format!("{path}{step}"), errors);
                seen.push(step);
            }
        }
        (Shape::Object { .. }, other) => wrong(format!("expected map, got {other}")),
        (Shape::List { .. }, other) => wrong(format!("expected list, got {other}")),
        (Shape::Integer(_) | Shape::Number, other) => {
            wrong(format!("expected number, got {other}"));
        }
        (Shape::Boolean, other) => wrong(format!("expected boolean, got {other}")),
        (_, other) => wrong(format!("expected string, got {other}")),
    }
}
