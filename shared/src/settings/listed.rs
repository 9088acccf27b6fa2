//! Settings that are lists of objects, given as a YAML list or as JSON in a text.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::fleet_servers::{self, FleetServer};

/// Reads a list from JSON; an empty text is an empty list.
///
/// # Errors
/// When the text is no JSON list of such objects.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, serde_json::Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text)
}

/// Reads a list, or a text with the same as JSON.
///
/// # Errors
/// When it is neither, or an object of the list is malformed.
pub fn list_or_json<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Spelling<T>(PhantomData<T>);
    impl<'de, T: DeserializeOwned> Visitor<'de> for Spelling<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of objects, or the same as JSON in a text")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            from_json(text).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(list))
        }
    }
    deserializer.deserialize_any(Spelling(PhantomData))
}

/// Addresses of the fleet API, in order of preference, given as a YAML list or as JSON in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct FleetServers(#[serde(deserialize_with = "list_or_json")] pub Vec<FleetServer>);

impl FromStr for FleetServers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let read = from_json(text).map(Self);
        read.map_err(|error| format!("it is no JSON list of servers: {error}"))
    }
}

impl fmt::Display for FleetServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&fleet_servers::write(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_read_from_yaml_and_from_json_in_a_text() {
        let list = json!([{"server": "https://a"}, {"server": "https://b", "store": "second"}]);
        let of_text: FleetServers = list.to_string().parse().unwrap();
        let of_list: FleetServers = serde_json::from_value(list.clone()).unwrap();
        let of_quoted: FleetServers = serde_json::from_value(json!(list.to_string())).unwrap();
        assert_eq!(of_text.0.len(), 2);
        assert!(of_text == of_list && of_list == of_quoted);
        assert_eq!(" ".parse(), Ok(FleetServers::default()));
        for wrong in ["{}", "[1]", "https://a"] {
            let error = wrong.parse::<FleetServers>().unwrap_err();
            assert!(error.contains("JSON list of servers"), "{error}");
        }
        let unknown = r#"[{"server": "https://a", "ca": ""}]"#;
        let error = unknown.parse::<FleetServers>().unwrap_err();
        assert!(
            error.contains("`ca`") && error.contains("`caData`"),
            "{error}"
        );
    }
}
