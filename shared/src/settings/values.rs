//! Types of flag values: lists, controllers, addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::Error;

/// Deserializes a type from a text as it is parsed from one.
#[macro_export]
macro_rules! deserialize_parsed {
    ($name:ty) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(::serde::de::Error::custom)
            }
        }
    };
}

/// List of strings, given as `a,b` or as a YAML list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

impl Words {
    /// Reads the words as a list of `*`, `name` and `-name` over the known names, of which the
    /// later words count (the syntax of Kubernetes' `--controllers`): says which names are on.
    ///
    /// # Errors
    /// When a name is unknown; the error names `flag` and the known names.
    pub fn chosen<const N: usize>(
        &self,
        flag: &'static str,
        names: &[&str; N],
    ) -> Result<[bool; N], Error> {
        let mut on = [false; N];
        for word in &self.0 {
            if word == "*" {
                on = [true; N];
                continue;
            }
            let name = word.strip_prefix('-').unwrap_or(word);
            let Some(known) = names.iter().position(|known| *known == name) else {
                let names = names.join(", ");
                let why = format!("unknown plugin {name:?}; known are *, {names}");
                return Err(Error::invalid(flag, why));
            };
            on[known] = !word.starts_with('-');
        }
        Ok(on)
    }
}

impl FromStr for Words {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(
            text.split(',')
                .map(str::trim)
                .filter(|w| !w.is_empty())
                .map(str::to_owned)
                .collect(),
        ))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelling {
            Text(String),
            List(Vec<String>),
        }
        Ok(match Spelling::deserialize(deserializer)? {
            Spelling::Text(text) => text.parse().unwrap_or_default(),
            Spelling::List(list) => Self(list),
        })
    }
}

/// Controllers to run: `*`, `name`, `-name`; the first mention of a name counts (Karmada's
/// `--controllers`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Controllers(Words);

impl Controllers {
    /// Returns whether a controller runs. `*` starts every controller that is not off by default.
    pub fn enabled(&self, name: &str, off_by_default: bool) -> bool {
        let mut all = false;
        for word in &self.0.0 {
            match word.as_str() {
                "*" => all = true,
                word if word == name => return true,
                word if word.strip_prefix('-') == Some(name) => return false,
                _ => {}
            }
        }
        all && !off_by_default
    }

    /// Rejects names that are not known.
    pub fn check(&self, known: &[&str]) -> Result<(), Error> {
        for word in &self.0.0 {
            let name = word.strip_prefix('-').unwrap_or(word);
            if word != "*" && !known.contains(&name) {
                return Err(Error::invalid(
                    "controllers",
                    format!(
                        "unknown controller {name:?}; known are *, {}",
                        known.join(", ")
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for Controllers {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Listening address in the syntax of Karmada's flags: `:8080`, `127.0.0.1:8080`, or `0` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress(pub Option<std::net::SocketAddr>);

impl FromStr for BindAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" || text.is_empty() {
            return Ok(Self(None));
        }
        let full = if text.starts_with(':') {
            format!("0.0.0.0{text}")
        } else {
            text.to_owned()
        };
        full.parse()
            .map(|address| Self(Some(address)))
            .map_err(|_| {
                format!("{text:?} is not an address: write :8080, 127.0.0.1:8080, or 0 for none")
            })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("0"),
        }
    }
}

crate::deserialize_parsed!(BindAddress);
