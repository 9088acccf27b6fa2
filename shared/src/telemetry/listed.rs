//! Lists of metrics: `/metrics` describes each metric from them, and the tables of the manual
//! (`.github/manual/metrics.md`) are written from them.

use std::fmt::Write as _;

/// Kind of a metric, as Prometheus names it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Metric with what people read about it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in `/metrics`.
    pub name: &'static str,
    kind: Kind,
    /// Labels, each with what it can be where that is a short list: `result: success, error`.
    labels: &'static [&'static str],
    meaning: &'static str,
}

/// Returns a counter.
pub const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    meaning: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        labels,
        meaning,
    }
}

/// Returns a gauge.
pub const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    meaning: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        labels,
        meaning,
    }
}

/// Returns a histogram.
pub const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    meaning: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Histogram,
        labels,
        meaning,
    }
}

/// Metrics that stand under one heading of the manual.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Heading.
    pub title: &'static str,
    /// Metrics in the order of the table.
    pub metrics: &'static [Metric],
}

impl Section {
    /// Returns the heading and the table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n",
            self.title
        );
        for metric in self.metrics {
            let labels: Vec<String> = metric.labels.iter().map(|it| label(it)).collect();
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let (name, labels, meaning) = (metric.name, labels.join("; "), metric.meaning);
            // A `String` takes every text.
            let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {meaning} |");
        }
        text
    }
}

fn label(text: &str) -> String {
    match text.split_once(": ") {
        Some((name, values)) => format!("`{name}`: {values}"),
        None => format!("`{text}`"),
    }
}

/// Registers the meanings of metrics: they stand beside them in `/metrics`.
pub fn describe(sections: &[Section]) {
    for metric in sections.iter().flat_map(|section| section.metrics) {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.meaning),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.meaning),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.meaning),
        }
    }
}
