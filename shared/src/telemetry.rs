//! Logs and metrics of a process: set up once, by its `main`.

use std::io::IsTerminal;
use std::str::FromStr;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is not a log format: text or json")),
        }
    }
}

impl std::fmt::Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter does not parse.
    #[error(
        "refused setting log-filter: {filter:?} is not a list such as info,muster_agent=debug: {source}"
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else in the process logs already.
    #[error("cannot install the log: {0}")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Something else in the process keeps metrics already.
    #[error("cannot install the metrics recorder: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Starts logging to standard error. `filter` is in tracing's syntax (`info`, `info,kube=warn`).
pub fn log(format: LogFormat, filter: &str) -> Result<(), Error> {
    // kube prints whole pages of objects at warn when one does not parse; ours names the object instead.
    let filter = EnvFilter::try_new(format!("{filter},kube_client=error")).map_err(|source| {
        Error::Filter {
            filter: filter.to_owned(),
            source,
        }
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(Error::Log)
}

/// Buckets for everything measured in seconds, from a local call to a drained queue.
const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0,
];

/// Starts keeping metrics; the handle renders them.
pub fn metrics() -> Result<PrometheusHandle, Error> {
    Ok(PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .install_recorder()?)
}
