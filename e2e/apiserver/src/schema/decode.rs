//! Reads a request body the way a Go server does: wrong types are refused, spellings become
//! canonical, and what the Go types would not keep or always print is dropped or added.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::node::{Absent, At, Field, Shape};
use super::quantity;

/// Reads `value` in place. The error is the message behind `… cannot be handled as a …: `.
pub fn decode(at: At<'_>, value: &mut Value) -> Result<(), String> {
    read(
        at,
        value,
        &Place {
            above: None,
            name: "",
        },
    )
}

/// Reads the metadata of an object that has no Go type of its own: no time is made up.
pub fn metadata(at: At<'_>, metadata: &mut Value) -> Result<(), String> {
    let implied = metadata.get("creationTimestamp").is_none_or(Value::is_null);
    decode(at, metadata)?;
    if implied && let Value::Object(fields) = metadata {
        fields.remove("creationTimestamp");
    }
    Ok(())
}

/// The field that is read; the path has no indexes.
///
/// The path is put together only when something is wrong: most of what is read is right.
struct Place<'a> {
    above: Option<&'a Self>,
    name: &'a str,
}

impl Place<'_> {
    fn path(&self) -> String {
        match self.above {
            Some(above) => super::walk::join(&above.path(), self.name),
            None => self.name.to_owned(),
        }
    }
}

fn read(at: At<'_>, value: &mut Value, place: &Place<'_>) -> Result<(), String> {
    let node = at.node();
    match (&node.shape, &mut *value) {
        (Shape::Any, _)
        | (Shape::Boolean, Value::Bool(_))
        | (Shape::Number, Value::Number(_))
        | (Shape::String | Shape::IntOrString, Value::String(_)) => {}
        (Shape::Object { fields, values }, Value::Object(object)) => {
            if fields.is_empty() && values.is_none() {
                return Ok(());
            }
            struct_fields(at, object, place)?;
            if values.is_some() {
                map_values(at, object, place)?;
            }
        }
        (Shape::List { .. }, Value::Array(list)) => {
            if let Some(items) = at.items() {
                for item in list {
                    if item.is_null() {
                        *item = nothing(items);
                    }
                    read(items, item, place)?;
                }
            }
        }
        (Shape::Integer(32), Value::Number(n))
            if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
        (Shape::Integer(64), Value::Number(n)) if n.as_i64().is_some() => {}
        (Shape::IntOrString, Value::Number(n))
            if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
        (Shape::Time, Value::String(text)) => *text = time(text, 0)?,
        (Shape::MicroTime, Value::String(text)) => *text = time(text, 6)?,
        (Shape::Bytes, Value::String(text)) => check_base64(text)?,
        (Shape::Quantity, Value::String(text)) => *text = quantity::canonical(text)?,
        (Shape::Quantity, Value::Number(n)) => {
            *value = Value::String(quantity::canonical(&n.to_string())?);
        }

        _ => return Err(mismatch(at, value, place)),
    }
    Ok(())
}

fn struct_fields(
    at: At<'_>,
    object: &mut Map<String, Value>,
    place: &Place<'_>,
) -> Result<(), String> {
    for (name, field, child) in at.fields() {
        let present = object.get_mut(name).filter(|value| !value.is_null());
        if let Some(value) = present {
            let place = Place {
                above: Some(place),
                name,
            };
            read(child, value, &place)?;
            if vanishes(field, child, value) {
                object.remove(name);
            } else if value.as_array().is_some_and(Vec::is_empty) {
                // What the real server stores does not distinguish an empty list from none.
                *value = Value::Null;
            }
        } else if field.absent == Absent::Omitted {
            object.remove(name);
        } else {
            object.insert(name.clone(), printed(field, child));
        }
    }
    Ok(())
}

fn map_values(
    at: At<'_>,
    object: &mut Map<String, Value>,
    place: &Place<'_>,
) -> Result<(), String> {
    for (name, value) in object.iter_mut() {
        if at.declared(name).is_some() {
            continue;
        }
        if let Some(values) = at.field(name) {
            if value.is_null() {
                *value = nothing(values);
            }
            read(values, value, place)?;
        }
    }
    Ok(())
}

/// Returns whether Go's `omitempty` leaves the value out when it prints.
fn vanishes(field: &Field, at: At<'_>, value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty() && field.absent == Absent::Omitted,
        Value::Object(map) => {
            let is_map = matches!(
                &at.node().shape,
                Shape::Object {
                    values: Some(_),
                    ..
                }
            );
            map.is_empty() && is_map && field.absent == Absent::Omitted
        }
        Value::String(text) => text.is_empty() && (field.drops_zero || is_bytes(at, field)),
        Value::Number(n) => field.drops_zero && n.as_f64() == Some(0.0),
        Value::Bool(set) => field.drops_zero && !set,
        Value::Null => true,
    }
}

fn is_bytes(at: At<'_>, field: &Field) -> bool {
    matches!(at.node().shape, Shape::Bytes) && field.absent == Absent::Omitted
}

/// Returns what Go prints for a field that nobody set.
fn printed(field: &Field, at: At<'_>) -> Value {
    match field.absent {
        Absent::Omitted | Absent::Null => Value::Null,
        Absent::Zero => nothing(at),
        Absent::Struct => {
            let mut object = Map::new();
            for (name, field, child) in at.fields() {
                if field.absent != Absent::Omitted {
                    object.insert(name.clone(), printed(field, child));
                }
            }
            Value::Object(object)
        }
    }
}

/// Returns Go's zero value.
fn nothing(at: At<'_>) -> Value {
    match &at.node().shape {
        Shape::String => json!(""),
        Shape::Integer(_) | Shape::Number | Shape::IntOrString => json!(0),
        Shape::Boolean => json!(false),
        Shape::Quantity => json!("0"),
        Shape::Object { values: None, .. } => printed(
            &Field {
                absent: Absent::Struct,
                ..Field::default()
            },
            at,
        ),
        Shape::Any
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::List { .. }
        | Shape::Object { .. } => Value::Null,
    }
}

fn time(text: &str, digits: u8) -> Result<String, String> {
    // Go's RFC 3339 wants capital letters and a zone; jiff alone would allow more.
    let strict = text.len() >= 20 && text.as_bytes()[10] == b'T';
    match text.parse::<Timestamp>() {
        Ok(time) if strict && digits == 0 => Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        Ok(time) if strict => Ok(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
        _ => Err(format!("{text:?} is no time of RFC 3339")),
    }
}

fn check_base64(text: &str) -> Result<(), String> {
    use base64::Engine as _;
    let compact: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    base64::engine::general_purpose::STANDARD
        .decode(compact)
        .map(drop)
        .map_err(|error| format!("illegal base64 data: {error}"))
}

fn mismatch(at: At<'_>, value: &Value, place: &Place<'_>) -> String {
    let expected = expected(at);
    match place.path().as_str() {
        "" => format!("{value} is no {expected}"),
        path => format!("{path}: {value} is no {expected}"),
    }
}

fn expected(at: At<'_>) -> &'static str {
    match &at.node().shape {
        Shape::Any => "value",
        Shape::Object { .. } => "object",
        Shape::List { .. } => "list",
        Shape::String => "string",
        Shape::Quantity => "quantity",
        Shape::Bytes => "string in base64",
        Shape::Time | Shape::MicroTime => "time",
        Shape::Integer(32) => "integer of 32 bits",
        Shape::Integer(_) => "integer",
        Shape::Number => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrString => "integer or string",
    }
}
