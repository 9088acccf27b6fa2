//! Feature gates, with Kubernetes' `--feature-gates` syntax.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::Error;

/// Maturity of a feature. `AllAlpha` and `AllBeta` switch all features of a stage, as in
/// Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The feature may change or be removed.
    Alpha,
    /// The feature stays; details may change.
    Beta,
}

/// Feature that can be switched on or off.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name of the gate, as in `--feature-gates=NAME=true`.
    pub name: &'static str,
    /// Whether the feature is on by default.
    pub default: bool,
    /// Maturity of the feature.
    pub stage: Stage,
}

/// Value of `--feature-gates=Failover=true,...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Returns whether a gate is on: as given for it, or else for its stage, or else its default.
    pub fn enabled(&self, gate: &Gate) -> bool {
        let stage = match gate.stage {
            Stage::Alpha => "AllAlpha",
            Stage::Beta => "AllBeta",
        };
        self.0
            .get(gate.name)
            .or_else(|| self.0.get(stage))
            .copied()
            .unwrap_or(gate.default)
    }

    /// Rejects gates that are not known.
    pub fn check(&self, known: &[Gate]) -> Result<(), Error> {
        for name in self
            .0
            .keys()
            .filter(|name| *name != "AllAlpha" && *name != "AllBeta")
        {
            if !known.iter().any(|gate| gate.name == name) {
                let known: Vec<&str> = known.iter().map(|gate| gate.name).collect();
                return Err(Error::invalid(
                    "feature-gates",
                    format!("unknown gate {name:?}; known are {}", known.join(", ")),
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for FeatureGates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gates = BTreeMap::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not NAME=true or NAME=false"))?;
            let value = match value.trim().to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => true,
                "false" | "f" | "0" => false,
                _ => return Err(format!("{part:?} is not NAME=true or NAME=false")),
            };
            gates.insert(name.trim().to_owned(), value);
        }
        Ok(Self(gates))
    }
}

impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(name, on)| format!("{name}={on}"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for FeatureGates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelling {
            Text(String),
            Map(BTreeMap<String, bool>),
        }
        match Spelling::deserialize(deserializer)? {
            Spelling::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Spelling::Map(map) => Ok(Self(map)),
        }
    }
}
