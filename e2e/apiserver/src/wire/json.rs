//! Reads JSON as Go's strict decoder does: members that occur twice are noticed.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A document, and the paths of members that occur more than once in it.
#[derive(Debug, PartialEq)]
pub struct Document {
    /// The tree; of members that occur twice, the last.
    pub tree: Value,
    /// Paths such as `spec.replicas`.
    pub duplicates: Vec<String>,
}

/// Returns the texts of a list; what is no text, or no list, is left out.
pub fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Reads a document.
pub fn read(bytes: &[u8]) -> Result<Document, String> {
    let twice = Cell::new(false);
    let tree = run(bytes, Node(&twice)).map_err(|error| error.to_string())?;
    let mut duplicates = Vec::new();
    if twice.get() {
        // Rare: read again, this time keeping track of where we are.
        let trail = RefCell::new(Trail::default());
        if run(bytes, Tracked(&trail)).is_ok() {
            duplicates = trail.into_inner().duplicates;
        }
    }
    Ok(Document { tree, duplicates })
}

fn run<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    seed: S,
) -> Result<S::Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(read)
}

/// Builds a tree and notices that some member occurs twice.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Cell<bool>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if members.insert(key, access.next_value_seed(self)?).is_some() {
                self.0.set(true);
            }
        }
        Ok(Value::Object(members))
    }
}

#[derive(Default)]
struct Trail {
    path: Vec<String>,
    duplicates: Vec<String>,
}

/// Walks a document for the paths of duplicates alone.
#[derive(Clone, Copy)]
struct Tracked<'a>(&'a RefCell<Trail>);

impl<'de> DeserializeSeed<'de> for Tracked<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tracked<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        for i in 0.. {
            let last = self.0.borrow_mut().path.pop().unwrap_or_default();
            self.0.borrow_mut().path.push(format!("{last}[{i}]"));
            let more = access.next_element_seed(self)?.is_some();
            if let Some(top) = self.0.borrow_mut().path.last_mut() {
                top.clone_from(&last);
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            self.0.borrow_mut().path.push(key.clone());
            if seen.contains(&key) {
                let mut trail = self.0.borrow_mut();
                let path = trail.path.join(".");
                if !trail.duplicates.contains(&path) {
                    trail.duplicates.push(path);
                }
            }
            seen.push(key);
            access.next_value_seed(self)?;
            self.0.borrow_mut().path.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_occur_twice_are_named() {
        let read =
            read(br#"{"a":{"b":1,"b":2},"c":[{"d":1},{"d":1,"d":2}],"a":3}"#).expect("reads");
        assert_eq!(read.tree, json!({ "a": 3, "c": [{ "d": 1 }, { "d": 2 }] }));
        assert_eq!(read.duplicates, ["a.b", "c[1].d", "a"]);
    }

    #[test]
    fn numbers_and_nesting_come_out_as_they_went_in() {
        let text = r#"{"a":[-1,1.5,18446744073709551615,null,true,"x"]}"#;
        let read = read(text.as_bytes()).expect("reads");
        assert_eq!(read.tree.to_string(), text);
        assert!(read.duplicates.is_empty());
    }

    #[test]
    fn malformed_documents_are_refused() {
        let deep = "[".repeat(100_000);
        for text in ["", r#"{"a":"#, r#"{"a" 1}"#, "[1 2]", "{} x", &deep] {
            read(text.as_bytes()).expect_err(text);
        }
    }
}
