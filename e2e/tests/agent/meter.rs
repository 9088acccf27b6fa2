//! The metrics of one test, which runs on one thread with everything in it.

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Keeps the metrics of this thread until it is dropped.
pub struct Meter {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Meter {
    pub fn install() -> Self {
        // The guard borrows it; a test has one of them.
        let recorder: &'static PrometheusRecorder =
            Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self {
            handle: recorder.handle(),
            _guard: metrics::set_default_local_recorder(recorder),
        }
    }

    /// Returns what a scrape would get.
    pub fn text(&self) -> String {
        self.handle.render()
    }

    /// Returns all series of a metric, as a scrape would get them.
    pub fn series(&self, metric: &str) -> Vec<String> {
        let text = self.text();
        let of_metric = |line: &&str| {
            line.strip_prefix(metric)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        text.lines().filter(of_metric).map(str::to_owned).collect()
    }

    /// Returns the sum over all series of a metric that have these labels (`name="value"`).
    pub fn sum(&self, metric: &str, labels: &[&str]) -> f64 {
        let series = self.series(metric);
        series
            .iter()
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}
