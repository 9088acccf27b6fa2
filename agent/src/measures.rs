//! Metrics of the agent that other Muster programs do not have, with their descriptions.
//!
//! Names without the prefix `muster_` are Karmada's, with its labels, so that its dashboards work.

use jiff::Timestamp;
use metrics::{describe_counter, describe_gauge, describe_histogram};

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

/// Registers the descriptions of the metrics, which `/metrics` shows, and the version of this
/// build.
pub fn describe() {
    describe_gauge!("muster_build_info", "Always 1; the version is a label.");
    metrics::gauge!("muster_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    describe_cluster();
    describe_gauge!(
        "muster_last_success_timestamp_seconds",
        "When a step of the agent last succeeded, in seconds since 1970."
    );
    describe_counter!(
        "muster_lease_renewal_failures_total",
        "Renewals of the lease that failed."
    );
    describe_histogram!(
        "muster_probe_duration_seconds",
        "Time that a probe of the member took."
    );
    describe_counter!(
        "muster_status_report_failures_total",
        "Reports of the member's status that failed."
    );
    describe_counter!(
        "muster_works_applied_total",
        "Works that were worked on, by result: success or error."
    );
    describe_counter!(
        "muster_objects_applied_total",
        "Objects in the member that were created, updated or removed, and failures to do so, by kind."
    );
    describe_counter!(
        "muster_drift_detected_total",
        "Objects of Works that somebody else changed or removed in the member."
    );
    describe_counter!(
        "muster_work_contents_read_total",
        "Works that were read from the fleet API because the cache had no room for their text."
    );
    describe_counter!(
        "muster_work_reports_total",
        "Statuses of objects that were written to their Work."
    );
    describe_counter!(
        "muster_credential_report_failures_total",
        "Failures to give the fleet the member's credentials, by what --report-secrets calls them."
    );
    describe_counter!(
        "muster_certificate_rotations_total",
        "Attempts to renew the certificate for the fleet API, by result: renewed, refused, unanswered, useless or error."
    );
    describe_gauge!(
        "muster_fenced_objects",
        "Objects that are stopped because the member is cut off, of policies that ask for fencing."
    );
    describe_counter!(
        "muster_fenced_objects_total",
        "Objects of policies that ask for fencing, by kind and result: stopped, deleted, released or error."
    );
    describe_counter!(
        "muster_fencing_failures_total",
        "Rounds in which objects to be stopped could not be listed in the member."
    );
    describe_gauge!(
        "muster_watched_kinds",
        "Kinds of objects that are watched in the member."
    );
    describe_counter!(
        "muster_member_watches_broken_total",
        "Watches in the member that broke and were started again."
    );
    describe_gauge!(
        "muster_fleet_identified",
        "1 when the id of the fleet is known, by which objects of other fleets are told apart, else 0."
    );
    describe_gauge!(
        "muster_orphaned_objects",
        "Objects in the member that name a Work which is not there, by kind, of the kinds that are watched."
    );
}

fn describe_cluster() {
    describe_gauge!("cluster_ready_state", "1 when the member is ready, else 0.");
    describe_gauge!("cluster_node_number", "Nodes of the member.");
    describe_gauge!("cluster_ready_node_number", "Ready nodes of the member.");
    describe_gauge!(
        "cluster_memory_allocatable_bytes",
        "Memory that the nodes offer."
    );
    describe_gauge!(
        "cluster_cpu_allocatable_number",
        "Cores that the nodes offer."
    );
    describe_gauge!(
        "cluster_pod_allocatable_number",
        "Places for pods that the nodes offer."
    );
    describe_gauge!(
        "cluster_memory_allocated_bytes",
        "Memory that pods on nodes ask for."
    );
    describe_gauge!(
        "cluster_cpu_allocated_number",
        "Cores that pods on nodes ask for."
    );
    describe_gauge!("cluster_pod_allocated_number", "Pods on nodes.");
    describe_histogram!(
        "cluster_sync_status_duration_seconds",
        "Time to compare and write the member's status."
    );
    describe_histogram!(
        "work_sync_workload_duration_seconds",
        "Time to bring a Work into the member, by result: success or error."
    );
}
