//! Logs and metrics of a process, initialised once by its `main`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::str::FromStr;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

mod listed;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Logfmt, for reading.
    #[default]
    Text,
    /// One JSON object per line, for log collectors.
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

/// Error while telemetry is initialised.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter cannot be parsed.
    #[error(
        "refused setting log-filter: {filter:?} is not a list such as info,muster_agent=debug: {source}"
    )]
    Filter {
        /// The filter, as given.
        filter: String,
        /// Error of the parser.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A logger is installed already.
    #[error("cannot install the log: {0}")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A metrics recorder is installed already.
    #[error("cannot install the metrics recorder: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Starts logging to standard error. `filter` is in tracing's syntax (`info`, `info,kube=warn`).
pub fn log(format: LogFormat, filter: &str) -> Result<(), Error> {
    // kube prints whole pages of objects at warn when one does not parse; ours names the object
    // instead.
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
        LogFormat::Text => builder
            .with_target(false)
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(Error::Log)
}

/// Prints text to standard output. A reader who has left, such as `head`, has what it wanted: that
/// is no error.
///
/// # Errors
/// When standard output cannot be written, a full disk for instance.
pub fn print(text: &str) -> std::io::Result<()> {
    is_read(text).map(drop)
}

/// Prints text as [`print()`] does, and returns whether the reader is still there: what prints
/// again and again has to end when it is not.
///
/// # Errors
/// As [`print()`].
pub fn is_read(text: &str) -> std::io::Result<bool> {
    write_to(&mut std::io::stdout().lock(), text)
}

fn write_to(output: &mut impl std::io::Write, text: &str) -> std::io::Result<bool> {
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true),
    }
}

/// Writes the fields of a line for people as logfmt: a value with blanks, quotes or `=` in it
/// is in quotes, so that programs can take the line apart. The message comes first, as it is.
fn write_field(
    writer: &mut Writer<'_>,
    field: &tracing::field::Field,
    value: &dyn std::fmt::Debug,
) -> std::fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{text}"),
        name if is_plain(&text) || is_quoted(&text) => write!(writer, "{name}={text}"),
        name => write!(writer, "{name}={text:?}"),
    }
}

fn is_plain(text: &str) -> bool {
    let odd = |it: char| it.is_whitespace() || it.is_control() || matches!(it, '"' | '=');
    !text.is_empty() && !text.contains(odd)
}

/// Returns whether the text is one quoted string already, as texts are whose field was given
/// without `%`.
fn is_quoted(text: &str) -> bool {
    serde_json::from_str::<String>(text).is_ok()
}

/// Buckets for everything measured in seconds, from a local call to a drained queue.
const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0,
];

/// Histograms that Karmada has, too: their buckets are a millisecond, doubled so many times, as its
/// dashboards expect.
const KARMADAS: [(&str, u32); 5] = [
    ("work_sync_workload_duration_seconds", 12),
    ("binding_sync_work_duration_seconds", 12),
    ("eviction_processing_latency_seconds", 15),
    ("karmada_scheduler_e2e_scheduling_duration_seconds", 15),
    (
        "karmada_scheduler_scheduling_algorithm_duration_seconds",
        15,
    ),
];

/// Histograms of what takes a failover: seconds where evictions are not limited, an hour and more
/// where thousands of workloads wait for the rate.
const FAILOVERS: [&str; 2] = [
    "evict_processing_latency_seconds",
    "muster_failover_healthy_seconds",
];
/// Buckets of [`FAILOVERS`].
const FAILOVER_SECONDS: [f64; 14] = [
    0.1, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0, 10800.0,
];

/// Starts keeping metrics; the handle renders them.
pub fn metrics() -> Result<PrometheusHandle, Error> {
    let mut builder = PrometheusBuilder::new().set_buckets(&SECONDS)?;
    for (name, count) in KARMADAS {
        let buckets: Vec<f64> = (0..count)
            .map(|power| 0.001 * f64::from(1_u32 << power))
            .collect();
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), &buckets)?;
    }
    for name in FAILOVERS {
        let name = Matcher::Full(name.to_owned());
        builder = builder.set_buckets_for_metric(name, &FAILOVER_SECONDS)?;
    }
    let handle = builder.install_recorder()?;
    listed::describe();
    Ok(handle)
}

/// Returns the metrics as text. A gauge without a value ([`Gauges`]) is left out.
pub fn render(handle: &PrometheusHandle) -> String {
    let text = handle.render();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !is_withdrawn(line)).collect()
}

fn is_withdrawn(line: &str) -> bool {
    !line.starts_with('#') && line.trim_end().ends_with(" NaN")
}

/// Name of a gauge and its labels.
pub type Series = (&'static str, Vec<(&'static str, String)>);

/// Gauges that are shown together. Those that are not shown again, such as those of a cluster that
/// has left, are withdrawn from `/metrics` instead of keeping their last value.
#[derive(Debug, Default)]
pub struct Gauges {
    shown: BTreeSet<Series>,
}

impl Gauges {
    /// Sets these gauges, and withdraws those of the last time that are not among them.
    pub fn show(&mut self, values: impl IntoIterator<Item = (Series, f64)>) {
        let set = |(name, labels): &Series, value: f64| {
            let labels = labels.iter().map(|(key, value)| (*key, value.clone()));
            let labels: Vec<metrics::Label> = labels.map(|label| (&label).into()).collect();
            metrics::gauge!(*name, labels).set(value);
        };
        let mut shown = BTreeSet::new();
        for (series, value) in values {
            set(&series, value);
            shown.insert(series);
        }
        for gone in self.shown.difference(&shown) {
            set(gone, f64::NAN);
        }
        self.shown = shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of which the reader has left, or that fails otherwise.
    struct Broken(std::io::ErrorKind);

    impl std::io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_who_has_left_is_no_error_and_is_known() {
        use std::io::ErrorKind::{BrokenPipe, StorageFull};
        assert!(!write_to(&mut Broken(BrokenPipe), "words").unwrap());
        write_to(&mut Broken(StorageFull), "words").unwrap_err();
        assert!(write_to(&mut Vec::new(), "words").unwrap());
    }

    #[test]
    fn lines_for_people_can_be_taken_apart_by_programs() {
        let sink = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let writer = {
            let sink = std::sync::Arc::clone(&sink);
            move || Sink(std::sync::Arc::clone(&sink))
        };
        let subscriber = tracing_subscriber::fmt()
            .with_writer(writer)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let cause = "taint a/b:NoExecute, tolerated for a time";
            tracing::info!(cluster = %"m1", cause = %cause, to = "m2", n = 3, empty = %"", "evicted a workload");
        });
        let line = String::from_utf8(sink.lock().clone()).unwrap();
        assert_eq!(
            line.trim(),
            r#"INFO evicted a workload cluster=m1 cause="taint a/b:NoExecute, tolerated for a time" to="m2" n=3 empty="""#
        );
    }

    struct Sink(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
