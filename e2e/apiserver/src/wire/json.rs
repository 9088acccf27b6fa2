//! Reads JSON as Go's strict decoder does: members that occur twice are noticed.

use std::cell::RefCell;
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
    let duplicates = RefCell::default();
    let place = Place {
        above: None,
        step: Step::Root,
        duplicates: &duplicates,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let tree = place.deserialize(&mut deserializer);
    let tree = tree.and_then(|tree| deserializer.end().map(|()| tree));
    let tree = tree.map_err(|error| error.to_string())?;
    let duplicates = duplicates.into_inner();
    Ok(Document { tree, duplicates })
}

/// A place in a document, as far as the way to it.
#[derive(Clone, Copy)]
struct Place<'a> {
    above: Option<&'a Self>,
    step: Step<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

/// The last step of the way to a place.
#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Member(&'a str),
    Item(usize),
}

impl Place<'_> {
    fn path(&self) -> String {
        let above = self.above.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Root => above,
            Step::Member(name) if above.is_empty() => name.to_owned(),
            Step::Member(name) => format!("{above}.{name}"),
            Step::Item(index) => format!("{above}[{index}]"),
        }
    }

    fn below<'b>(&'b self, step: Step<'b>) -> Place<'b> {
        Place {
            above: Some(self),
            step,
            duplicates: self.duplicates,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
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
        while let Some(item) = access.next_element_seed(self.below(Step::Item(items.len())))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let place = self.below(Step::Member(&key));
            let value = access.next_value_seed(place)?;
            if members.contains_key(&key) {
                let path = place.path();
                let mut duplicates = self.duplicates.borrow_mut();
                if !duplicates.contains(&path) {
                    duplicates.push(path);
                }
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
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
