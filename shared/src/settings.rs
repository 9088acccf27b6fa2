//! Settings of a program: defaults, overridden by a YAML file, environment variables and flags, in
//! this order.
//!
//! A program has one struct that derives `clap::Args` and `serde::Deserialize`. Flags and file keys
//! have the same names (Karmada's, if Karmada has the flag); environment variables are `MUSTER_`
//! and the name in capitals. Unknown flags, keys and values are rejected, with their name and the
//! accepted ones.

mod duration;
mod gates;
mod listed;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use serde::de::DeserializeOwned;

pub use self::duration::Duration;
pub use self::gates::{FeatureGates, Gate, Stage};
pub use self::listed::{FleetServers, from_json, list_or_json};
pub use self::values::{BindAddress, Controllers, Words};

/// Prefix of the environment variables that are settings.
pub const ENVIRONMENT_PREFIX: &str = "MUSTER_";

/// Reason why settings were rejected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag is unknown or its value malformed, or help was requested: clap's own message, to be
    /// printed as it is.
    #[error(transparent)]
    Flag(#[from] clap::Error),
    /// The file, a variable or a value was rejected.
    #[error("refused settings: {0}")]
    Refused(#[from] config::ConfigError),
    /// A value parses but is not allowed.
    #[error("refused setting {name}: {problem}")]
    Invalid {
        /// Name of the setting: the flag without its dashes.
        name: String,
        /// Fault of the setting, and what is allowed.
        problem: String,
    },
}

impl Error {
    /// Makes the error for a value that is not allowed.
    pub fn invalid(name: &str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Loads the settings from the arguments and environment of the process.
pub fn load<T: clap::Args + DeserializeOwned>(command: clap::Command) -> Result<T, Error> {
    load_from::<T>(command, std::env::args_os(), std::env::vars_os())
}

/// Loads the settings from given arguments (the first is the program's name) and variables.
pub fn load_from<T: clap::Args + DeserializeOwned>(
    command: clap::Command,
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
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
    let environment: BTreeMap<String, OsString> = ours(environment).collect();
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "config")
    {
        let Some(name) = argument.get_long() else {
            continue;
        };
        if let Some(value) = environment.get(&variable(name)) {
            let text = value
                .to_str()
                .ok_or_else(|| Error::invalid(name, "the environment variable is not UTF-8"))?;
            builder = builder.set_override(name, text)?;
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

/// Returns the environment variables that begin as settings do and are none of this program. A
/// program names them: one of them may be a setting that is misspelled. What Kubernetes sets for a
/// Service of such a name (`MUSTER_AGENT_SERVICE_HOST`) is not among them.
pub fn unknown_variables<T: clap::Args>(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let command = T::augment_args(clap::Command::new("known"));
    let known: Vec<String> = command
        .get_arguments()
        .filter_map(|argument| argument.get_long().map(variable))
        .collect();
    let is_of_a_service = |name: &str| {
        let number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || name.ends_with("_PORT")
            || name.split("_PORT_").skip(1).any(number)
    };
    ours(environment)
        .map(|(name, _)| name)
        .filter(|name| !known.contains(name) && !is_of_a_service(name))
        .map(|name| format!("{ENVIRONMENT_PREFIX}{name}"))
        .collect()
}

/// Logs [`unknown_variables`] of the process.
pub fn warn_of_unknown_variables<T: clap::Args>() {
    for name in unknown_variables::<T>(std::env::vars_os()) {
        tracing::warn!(name, "ignored an environment variable that is no setting");
    }
}

/// Returns the variables whose names begin with the prefix, without it. A name that is not UTF-8 is
/// none of them.
fn ours(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, OsString)> {
    environment.into_iter().filter_map(|(name, value)| {
        let name = name.to_str()?.strip_prefix(ENVIRONMENT_PREFIX)?;
        Some((name.to_owned(), value))
    })
}

/// Returns the environment variable of a flag, without the prefix.
fn variable(flag: &str) -> String {
    flag.to_uppercase().replace('-', "_")
}

/// Returns the defaults that a settings struct declares in its clap attributes: the body of its
/// `Default`.
///
/// # Panics
/// When a default value does not parse, which any test of the struct finds.
pub fn defaults<T: clap::Args>() -> T {
    let matches = T::augment_args(clap::Command::new("defaults").no_binary_name(true))
        .get_matches_from(Vec::<OsString>::new());
    T::from_arg_matches(&matches).expect("the declared default values parse")
}

#[cfg(test)]
mod tests;
