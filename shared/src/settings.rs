//! Settings: defaults, then a YAML file, then environment variables, then flags, each stronger than the one before.
//!
//! A binary has one struct that derives `clap::Args` and `serde::Deserialize`; flags and file keys have the same names (those of
//! Karmada where Karmada has them), environment variables are `MUSTER_` and the name in capitals. Nothing unknown is accepted
//! silently: a flag, key or value that we do not know is refused with its name and what is allowed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;

use clap::parser::ValueSource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Prefix of the environment variables that are settings.
pub const ENVIRONMENT_PREFIX: &str = "MUSTER_";

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag is unknown or its value malformed (or help was asked for): clap's own message, to be printed as it is.
    #[error(transparent)]
    Flag(#[from] clap::Error),
    /// The file, a variable or a value was refused.
    #[error("refused settings: {0}")]
    Refused(#[from] config::ConfigError),
    /// A value that parses and makes no sense.
    #[error("refused setting {name}: {problem}")]
    Invalid {
        /// The setting's name, as the flag is spelled without its dashes.
        name: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
}

impl Error {
    /// A value that parses and makes no sense.
    pub fn invalid(name: &str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Loads settings from the process's arguments and environment.
pub fn load<T: clap::Args + DeserializeOwned>(command: clap::Command) -> Result<T, Error> {
    load_from::<T>(command, std::env::args_os(), std::env::vars())
}

/// Loads settings from given arguments (the first is the program's name) and variables.
pub fn load_from<T: clap::Args + DeserializeOwned>(
    command: clap::Command,
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<T, Error> {
    // The struct's own documentation would take the place of what the program says about itself.
    let about = command.get_about().cloned();
    let command = T::augment_args(command)
        .about(about.unwrap_or_default())
        .long_about(None)
        .arg(
            clap::Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("YAML file with settings; its keys are the names of the flags"),
        );
    let matches = command.clone().try_get_matches_from(arguments)?;

    let mut builder = config::Config::builder();
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        builder =
            builder.add_source(config::File::from(path.as_path()).format(config::FileFormat::Yaml));
    }
    let environment: BTreeMap<String, String> = environment
        .into_iter()
        .filter_map(|(name, value)| {
            Some((name.strip_prefix(ENVIRONMENT_PREFIX)?.to_owned(), value))
        })
        .collect();
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "config")
    {
        let Some(name) = argument.get_long() else {
            continue;
        };
        if let Some(value) = environment.get(&name.to_uppercase().replace('-', "_")) {
            builder = builder.set_override(name, value.as_str())?;
        }
        let id = argument.get_id().as_str();
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            let given: Vec<String> = matches
                .get_raw(id)
                .into_iter()
                .flatten()
                .map(|value| value.to_string_lossy().into_owned())
                .collect();
            builder = builder.set_override(name, given.join(","))?;
        }
    }
    Ok(builder.build()?.try_deserialize()?)
}

/// The defaults that a settings struct declares in its clap attributes: the body of its `Default`.
///
/// # Panics
/// When a default value does not parse, which any test of the struct finds.
pub fn defaults<T: clap::Args>() -> T {
    let matches = T::augment_args(clap::Command::new("defaults").no_binary_name(true))
        .get_matches_from(Vec::<OsString>::new());
    T::from_arg_matches(&matches).expect("the declared default values parse")
}

/// A duration in Go's syntax (`40s`, `1m30s`, `250ms`, `1.5h`), which is what Karmada's flags take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// Whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }
}

impl Deref for Duration {
    type Target = std::time::Duration;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

/// The units of Go's durations with their length in nanoseconds; longer spellings first where one begins another.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || format!("{text:?} is not a duration: write for example 40s, 5m, 1h30m or 250ms");
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut nanoseconds = 0.0;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(refused)?;
            let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
            rest = &rest[digits..];
            // Longest match: "ms" is not "m" followed by "s".
            let (unit, length) = UNITS
                .iter()
                .filter(|(unit, _)| rest.starts_with(unit))
                .max_by_key(|(unit, _)| unit.len())
                .ok_or_else(refused)?;
            nanoseconds += number * length;
            rest = &rest[unit.len()..];
        }
        if text.is_empty() {
            return Err(refused());
        }
        std::time::Duration::try_from_secs_f64(nanoseconds / 1e9)
            .map(Self)
            .map_err(|_| refused())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
        if whole == 0 && millis > 0 {
            return write!(f, "{millis}ms");
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if millis > 0 {
            write!(f, "{seconds}.{millis:03}s")
        } else {
            write!(f, "{seconds}s")
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// How mature a feature is; `AllAlpha` and `AllBeta` switch a whole stage, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// May change or go.
    Alpha,
    /// Here to stay; details may change.
    Beta,
}

/// A feature that can be switched.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name as in `--feature-gates=NAME=true`.
    pub name: &'static str,
    /// Whether it is on when nothing is said.
    pub default: bool,
    /// Its stage.
    pub stage: Stage,
}

/// What was said with `--feature-gates=Failover=true,...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Whether a gate is on: what was said of it, else of its stage, else its default.
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

    /// Refuses gates that nobody knows.
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

/// A list of strings, given as `a,b` or as a YAML list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

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

/// Which controllers run: `*`, `name`, `-name`, first mention wins (Karmada's `--controllers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(Words);

impl Controllers {
    /// Whether a controller runs. `*` starts everything that is not off by default.
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

    /// Refuses names that nobody knows.
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

impl<'de> Deserialize<'de> for Controllers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Words::deserialize(deserializer).map(Self)
    }
}

/// A listening address as Karmada's flags write it: `:8080`, `127.0.0.1:8080`, or `0` for none.
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

impl<'de> Deserialize<'de> for BindAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
