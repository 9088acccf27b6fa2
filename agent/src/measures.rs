//! Metrics about the agent itself: the last success of each recurring task, and its version.

use jiff::Timestamp;

/// Recurring tasks; each has its own series of `muster_last_success_timestamp_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Renewal of the lease.
    Lease,
    /// Probe of the member that was answered, whether healthy or not.
    Probe,
    /// Reading the member's version.
    Version,
    /// Discovery of the member's kinds.
    Discovery,
    /// Message of the watch on nodes while it was current.
    Nodes,
    /// Message of the watch on pods while it was current.
    Pods,
    /// Writing the Cluster's status, or finding it up to date.
    Status,
    /// Reporting the member's credentials.
    Credentials,
    /// Checking the certificate for the fleet API, which lasts long enough.
    Certificate,
}

impl Step {
    /// Records a success.
    pub fn succeeded(self, at: Timestamp) {
        // The series have the names of the variants.
        let step = format!("{self:?}").to_lowercase();
        metrics::gauge!("muster_last_success_timestamp_seconds", "step" => step).set(seconds(at));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of this century fit into 52 bits"
)]
fn seconds(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}

/// Shows the version of this build.
pub fn show_version() {
    metrics::gauge!("muster_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}
