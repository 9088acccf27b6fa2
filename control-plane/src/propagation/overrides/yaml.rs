//! YAML documents inside fields: read so that nothing that is not named changes when they are
//! written again.
//!
//! Readers of YAML 1.1 and of YAML 1.2 disagree on some plain scalars: `no` is a boolean or a text,
//! `0644` is 420 or 644. A document is written anew as a whole, so that its reader would see
//! another value than before. So would the reader of a key that is a number or a boolean, since all
//! keys are written as texts. Such a document is refused.

use std::fmt;

use muster_shared::client::place;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;
use serde_saphyr::Options;

use super::limits::{Bounded, DEEPEST_MANIFEST, LARGEST_MANIFEST};

/// Aliases that a document may have.
const MOST_ALIASES: usize = 1000;
/// Values that a document may have, with those that aliases repeat.
const MOST_NODES: usize = 100_000;

/// Reads a document.
///
/// # Errors
/// A text that says where it is no YAML, or where readers of YAML disagree; never a value.
pub(super) fn read(text: &str) -> Result<Value, String> {
    if text.len() > LARGEST_MANIFEST {
        return Err("the document is too large".to_owned());
    }
    let document: Value = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        format!("the text is no YAML document, or has more levels, values or aliases than are read, {}", place(&error))
    })?;
    let agreed = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |it| {
        Agreed(&document).deserialize(it)
    });
    agreed.map_err(|error| {
        format!(
            "readers of YAML disagree on the value {}, or it is a key that is no text: write true or false, a decimal number, or quotation marks, \
             and a key in quotation marks",
            place(&error)
        )
    })?;
    Ok(document)
}

/// Writes a document of at most `limit` bytes.
///
/// # Errors
/// A text that says that it is longer.
pub(super) fn write(document: &Value, limit: usize) -> Result<String, String> {
    Bounded::text(limit, |text| serde_saphyr::to_io_writer(text, document))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: MOST_ALIASES,
            max_anchors: MOST_ALIASES,
            max_nodes: MOST_NODES,
            max_events: 3 * MOST_NODES,
            max_recorded_anchor_events: 3 * MOST_NODES,
            max_recorded_anchor_bytes: LARGEST_MANIFEST,
            max_total_scalar_bytes: 2 * LARGEST_MANIFEST,
            max_depth: DEEPEST_MANIFEST,
            max_documents: 1,
            max_merge_keys: MOST_ALIASES,
        },
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// Reads a document once more, for the spelling of its booleans and numbers.
struct Agreed<'a>(&'a Value);

impl<'de> DeserializeSeed<'de> for Agreed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Value::Object(_) => deserializer.deserialize_map(self),
            Value::Array(_) => deserializer.deserialize_seq(self),
            Value::Bool(_) | Value::Number(_) => deserializer.deserialize_str(self),
            Value::Null | Value::String(_) => IgnoredAny::deserialize(deserializer).map(|_| ()),
        }
    }
}

impl<'de> Visitor<'de> for Agreed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Key)? {
            map.next_value_seed(Agreed(&self.0[&*key]))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0;
        while list.next_element_seed(Agreed(&self.0[at]))?.is_some() {
            at += 1;
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let is_agreed = match self.0 {
            Value::Bool(_) => {
                matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
            }
            Value::Number(number) => is_agreed_number(text.trim(), number),
            _ => true,
        };
        is_agreed
            .then_some(())
            .ok_or_else(|| E::custom("ambiguous"))
    }
}

/// Reads a key, which has to be a text.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// Returns whether all readers take a plain scalar for this number.
fn is_agreed_number(text: &str, number: &serde_json::Number) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_decimal = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let is_octal =
        digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    // An integer of more than 64 bits has lost digits.
    let is_cut = number.is_f64() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal && !is_octal && !is_cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn again(text: &str) -> Result<String, String> {
        write(&read(text)?, LARGEST_MANIFEST)
    }

    #[test]
    fn a_value_on_which_readers_of_yaml_disagree_is_refused() {
        for text in [
            "0644",
            "007",
            "-01",
            "no",
            "yes",
            "on",
            "Off",
            "y",
            "N",
            "0x1F",
            "0o17",
            "0b11",
            "1_000",
            "123456789012345678901234567890",
        ] {
            for document in [
                format!("a:\n  SECRET: {text}\n"),
                format!("- SECRET\n- [{text}]\n"),
                format!("a: &x {text}\nb: *x\n"),
            ] {
                let error = again(&document).unwrap_err();
                assert!(
                    error.contains("disagree") && error.contains("line "),
                    "{document}: {error}"
                );
                assert!(!error.contains("SECRET"), "{error}");
            }
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_refused() {
        for key in [
            "8080", "0644", "1.5", "-7", "0x1F", "on", "no", "y", "true", "False",
        ] {
            for document in [
                format!("a:\n  {key}: SECRET\n"),
                format!("- {{{key}: SECRET}}\n"),
            ] {
                let error = again(&document).unwrap_err();
                assert!(
                    error.contains("a key in quotation marks") && error.contains("line "),
                    "{document}: {error}"
                );
                assert!(!error.contains("SECRET"), "{error}");
            }
            let quoted = format!("a:\n  '{key}': x\n");
            let expected = json!({ "a": { key: "x" } });
            assert_eq!(read(&quoted), Ok(expected.clone()), "{key}");
            assert_eq!(read(&again(&quoted).unwrap()), Ok(expected), "{key}");
        }
    }

    #[test]
    fn texts_and_numbers_stay_what_they_are() {
        for (text, value) in [
            ("'0644'", json!("0644")),
            ("\"no\"", json!("no")),
            ("'007'", json!("007")),
            ("'1e3'", json!("1e3")),
            ("'null'", json!("null")),
            ("\"\"", json!("")),
            ("'1:30'", json!("1:30")),
            ("true", json!(true)),
            ("0", json!(0)),
            ("-7", json!(-7)),
            ("1.50", json!(1.5)),
            ("~", json!(null)),
            ("v1", json!("v1")),
            ("18446744073709551615", json!(u64::MAX)),
        ] {
            let document = format!("a: {text}\n");
            assert_eq!(read(&document), Ok(json!({ "a": value })), "{text}");
            let written = again(&document).unwrap();
            assert_eq!(read(&written), Ok(json!({ "a": value })), "{written}");
            if text.starts_with(['\'', '"']) {
                assert!(written.contains(['\'', '"']), "{written}");
            }
        }
    }

    #[test]
    fn anchors_and_merge_keys_are_written_out() {
        let text = "base: &b {a: 1, list: [true, x]}\nx:\n  <<: *b\n  a: text\n";
        let base = json!({ "a": 1, "list": [true, "x"] });
        let expected = json!({ "base": base, "x": { "a": "text", "list": [true, "x"] } });
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn aliases_and_levels_are_limited_and_no_error_quotes_the_text() {
        let billion = (1..9).fold("a0: &a0 [SECRET, SECRET]\n".to_owned(), |text, at| {
            let before = at - 1;
            let many = vec![format!("*a{before}"); 10].join(", ");
            format!("{text}a{at}: &a{at} [{many}]\n")
        });
        let large = format!(
            "a: &a {}\nb: [{}]\n",
            "SECRET".repeat(10_000),
            vec!["*a"; 99].join(", ")
        );
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        for text in [
            billion,
            large,
            deep,
            "a: {SECRET".to_owned(),
            "SECRET: 1\nSECRET: 2\n".to_owned(),
            "a: !SECRET b".to_owned(),
            "a: *SECRET".to_owned(),
            "--- SECRET\n--- SECRET\n".to_owned(),
        ] {
            let error = read(&text).unwrap_err();
            assert!(!error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn a_document_that_grows_by_its_indentation_is_bounded() {
        let inner = vec!["1"; 20_000].join(",");
        let text = "[".repeat(90) + &inner + &"]".repeat(90);
        let document = read(&text).unwrap();
        assert!(write(&document, LARGEST_MANIFEST).is_err());
    }
}
