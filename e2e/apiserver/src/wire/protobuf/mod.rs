//! Kubernetes' protobuf form, which kubectl and other Go clients prefer for built-in kinds: request
//! bodies, and lists and watches for those who ask for it. All other answers are JSON, which the
//! same clients accept.

pub mod encode;
mod facts;
mod json;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use facts::{FACTS, Field, INLINED, Shape};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Messages within messages deeper than this are refused: no kind nests so far (JSONSchemaProps
/// isn't spoken here).
const DEPTH: usize = 64;

/// Why a body can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not start as every body does.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Prefix,
    /// It ends within a field.
    #[error("proto: unexpected EOF")]
    Truncated,
    /// A field has a wire type that it can't have.
    #[error("proto: wrong wireType for field")]
    WireType,
    /// Messages nest too deeply.
    #[error("proto: exceeded max depth")]
    Depth,
    /// Nothing is known about the kind's wire form.
    #[error("no kind {0:?} is registered")]
    Kind(String),
    /// Something within isn't valid: text that isn't UTF-8, raw JSON that doesn't parse.
    #[error("proto: invalid {0}")]
    Content(&'static str),
}

/// Decodes an object from its protobuf form into JSON.
pub fn decode(body: &[u8]) -> Result<Value, Malformed> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Malformed::Prefix)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in parts(envelope) {
        match part? {
            (1, Wire::Bytes(meta)) => {
                for part in parts(meta) {
                    match part? {
                        (1, Wire::Bytes(text)) => version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = message_name(&version, &kind);
    let known = FACTS.named(&name).ok_or(Malformed::Kind(name))?;
    let mut object = message(raw, &known.fields, 0)?;
    object.insert("apiVersion".to_owned(), version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Returns the name of a kind's message in the facts: `core.v1.Pod`.
fn message_name(version: &str, kind: &str) -> String {
    // Every group has its DeleteOptions, and they are all the same; `Status` is said to be of the
    // core group and defined elsewhere.
    if matches!(kind, "DeleteOptions" | "Status") {
        return format!("meta.v1.{kind}");
    }
    let (group, version) = version.split_once('/').unwrap_or(("core", version));
    let package = group.split('.').next().unwrap_or(group);
    format!("{package}.{version}.{kind}")
}

/// A field's content as it is on the wire.
enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
    Other,
}

/// Returns the fields of a message with their numbers.
fn parts(mut rest: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>), Malformed>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = part(&mut rest);
        if part.is_err() {
            rest = &[];
        }
        Some(part)
    })
}

fn part<'a>(rest: &mut &'a [u8]) -> Result<(u64, Wire<'a>), Malformed> {
    let key = varint(rest)?;
    let wire = match key & 7 {
        0 => Wire::Number(varint(rest)?),
        1 => {
            let bytes: [u8; 8] = take(rest, 8)?
                .try_into()
                .map_err(|_| Malformed::Truncated)?;
            Wire::Double(f64::from_le_bytes(bytes))
        }
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Malformed::Truncated)?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => {
            take(rest, 4)?;
            Wire::Other
        }
        _ => return Err(Malformed::WireType),
    };
    Ok((key >> 3, wire))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    if rest.len() < length {
        return Err(Malformed::Truncated);
    }
    let (taken, after) = rest.split_at(length);
    *rest = after;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(Malformed::Truncated)?;
        *rest = after;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Content("varint"))
}

fn utf8(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::Content("UTF-8"))
}

fn message(bytes: &[u8], fields: &[Field], depth: usize) -> Result<Map<String, Value>, Malformed> {
    if depth > DEPTH {
        return Err(Malformed::Depth);
    }
    let mut object = Map::new();
    for part in parts(bytes) {
        let (number, wire) = part?;
        let Some(field) = fields.iter().find(|f| f.number == number) else {
            continue;
        };
        if field.map {
            let (key, value) = entry(&wire, field, depth)?;
            object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
            continue;
        }
        let value = value(&wire, field, depth)?;
        if field.name == INLINED {
            if let Value::Object(inner) = value {
                object.extend(inner);
            }
        } else if field.repeated {
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                list.push(value);
            }
        } else {
            object.insert(field.name.to_owned(), value);
        }
    }
    Ok(object)
}

/// Decodes an entry of a map: key 1, value 2.
fn entry(wire: &Wire<'_>, field: &Field, depth: usize) -> Result<(String, Value), Malformed> {
    let Wire::Bytes(bytes) = wire else {
        return Err(Malformed::WireType);
    };
    let (mut key, mut found) = (String::new(), None);
    for part in parts(bytes) {
        match part? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => found = Some(value(&wire, field, depth)?),
            _ => {}
        }
    }
    let absent = || match field.shape {
        Shape::Message(_) => json!({}),
        _ => json!(""),
    };
    Ok((key, found.unwrap_or_else(absent)))
}

fn value(wire: &Wire<'_>, field: &Field, depth: usize) -> Result<Value, Malformed> {
    Ok(match (&field.shape, wire) {
        (Shape::Integer, Wire::Number(n)) => n.cast_signed().into(),
        (Shape::Boolean, Wire::Number(n)) => (*n != 0).into(),
        (Shape::Double, Wire::Double(d)) => json!(d),
        (Shape::Text, Wire::Bytes(bytes)) => utf8(bytes)?.into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Shape::Quantity, Wire::Bytes(bytes)) => {
            let (_, text) = numbers_and_text(bytes)?;
            text.unwrap_or_else(|| "0".to_owned()).into()
        }
        (Shape::Time { micro }, Wire::Bytes(bytes)) => time(bytes, *micro)?,
        (Shape::IntOrString, Wire::Bytes(bytes)) => {
            let (numbers, text) = numbers_and_text(bytes)?;
            if number(&numbers, 1) == 0 {
                number(&numbers, 2).into()
            } else {
                text.unwrap_or_default().into()
            }
        }
        (Shape::Raw, Wire::Bytes(bytes)) => {
            let mut raw = Value::Null;
            for part in parts(bytes) {
                if let (1, Wire::Bytes(json)) = part? {
                    raw = serde_json::from_slice(json).map_err(|_| Malformed::Content("JSON"))?;
                }
            }
            raw
        }
        (Shape::Message(inner), Wire::Bytes(bytes)) => {
            let known = FACTS.message(*inner);
            let mut inner = message(bytes, known.map_or(&[], |m| &m.fields), depth + 1)?;
            // A list of its own type on the wire, a plain list in JSON.
            if known.is_some_and(|m| m.is_list) {
                inner.remove("items").unwrap_or_else(|| json!([]))
            } else {
                Value::Object(inner)
            }
        }
        _ => return Err(Malformed::WireType),
    })
}

/// What a small message holds: its integers by number, and its text.
type Small = (Vec<(u64, i64)>, Option<String>);

/// Returns the integers of a small message by number, and its text.
fn numbers_and_text(bytes: &[u8]) -> Result<Small, Malformed> {
    let (mut numbers, mut text) = (Vec::new(), None);
    for part in parts(bytes) {
        match part? {
            (number, Wire::Number(n)) => numbers.push((number, n.cast_signed())),
            (_, Wire::Bytes(bytes)) => text = Some(utf8(bytes)?),
            _ => {}
        }
    }
    Ok((numbers, text))
}

/// Returns the integer of a field, 0 where there is none.
fn number(numbers: &[(u64, i64)], field: u64) -> i64 {
    let found = numbers.iter().find(|(number, _)| *number == field);
    found.map_or(0, |(_, value)| *value)
}

/// Decodes a point in time; an empty message is the absence of one.
fn time(bytes: &[u8], micro: bool) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (numbers, _) = numbers_and_text(bytes)?;
    let nanos = i32::try_from(number(&numbers, 2)).map_err(|_| Malformed::Content("time"))?;
    let time =
        Timestamp::new(number(&numbers, 1), nanos).map_err(|_| Malformed::Content("time"))?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(time.strftime(format).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_protobuf_is_refused() {
        assert_eq!(decode(b"{}"), Err(Malformed::Prefix));
        assert_eq!(
            decode(&[MAGIC, &[0x0a, 0x7f]].concat()),
            Err(Malformed::Truncated)
        );
        assert!(matches!(
            decode(b"k8s\0\x0a\x0e\x0a\x02v1\x12\x08Nonsense"),
            Err(Malformed::Kind(_))
        ));
    }
}
