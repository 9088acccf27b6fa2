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
    const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Probe => "probe",
            Self::Version => "version",
            Self::Discovery => "discovery",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Status => "status",
            Self::Credentials => "credentials",
            Self::Certificate => "certificate",
        }
    }

    /// Records a success.
    pub fn succeeded(self, at: Timestamp) {
        metrics::gauge!("muster_last_success_timestamp_seconds", "step" => self.name())
            .set(seconds(at));
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
