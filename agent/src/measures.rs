//! The list of the metrics that an agent has and other Muster programs do not.
//!
//! Names without the prefix `muster_` are Karmada's, with its labels, so that its dashboards work.

use jiff::Timestamp;
use muster_shared::telemetry::{Section, counter, gauge, histogram};

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

/// Metrics of an agent. The control plane has most of them as well, for members without an agent.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Agent: the member",
        metrics: &[
            gauge(
                "cluster_ready_state",
                OF_MEMBER,
                "1 when the member is ready, else 0",
            ),
            gauge("cluster_node_number", OF_MEMBER, "Nodes of the member"),
            gauge(
                "cluster_ready_node_number",
                OF_MEMBER,
                "Ready nodes of the member",
            ),
            gauge(
                "cluster_memory_allocatable_bytes",
                OF_MEMBER,
                "Memory that nodes offer to pods",
            ),
            gauge(
                "cluster_cpu_allocatable_number",
                OF_MEMBER,
                "Cores that nodes offer to pods",
            ),
            gauge(
                "cluster_pod_allocatable_number",
                OF_MEMBER,
                "Places for pods that nodes offer",
            ),
            gauge(
                "cluster_memory_allocated_bytes",
                OF_MEMBER,
                "Memory that pods on nodes request",
            ),
            gauge(
                "cluster_cpu_allocated_number",
                OF_MEMBER,
                "Cores that pods on nodes request",
            ),
            gauge("cluster_pod_allocated_number", OF_MEMBER, "Pods on nodes"),
            histogram(
                "cluster_sync_status_duration_seconds",
                OF_MEMBER,
                "Time to compare and write the member's status",
            ),
            histogram(
                "muster_probe_duration_seconds",
                &[],
                "Time of a probe of the member",
            ),
            counter(
                "muster_lease_renewal_failures_total",
                OF_MEMBER,
                "Renewals of the lease that failed",
            ),
            counter(
                "muster_status_report_failures_total",
                &[],
                "Reports of the member's status that failed",
            ),
            gauge(
                "muster_last_success_timestamp_seconds",
                &[
                    "step: lease, probe, version, discovery, nodes, pods, status, credentials, certificate",
                ],
                "Time of the last success of a step, in seconds since 1970",
            ),
            gauge("muster_build_info", &["version"], "Always 1"),
        ],
    },
    Section {
        title: "Agent: Works, fencing, access",
        metrics: &[
            histogram(
                "work_sync_workload_duration_seconds",
                &["result: success, error"],
                "Time to bring a Work into the member",
            ),
            counter(
                "muster_works_applied_total",
                &["result: success, error"],
                "Works that were worked on",
            ),
            counter(
                "muster_objects_applied_total",
                &["kind", "result: created, updated, removed, error"],
                "Objects changed in the member, and failures to change them",
            ),
            counter(
                "muster_drift_detected_total",
                &["kind"],
                "Objects of Works that somebody else changed or removed in the member",
            ),
            gauge(
                "muster_orphaned_objects",
                &["kind"],
                "Objects in the member, of the kinds that are watched, that name a Work which does not exist",
            ),
            gauge(
                "muster_watched_kinds",
                &[],
                "Kinds of objects that are watched in the member",
            ),
            counter(
                "muster_member_watches_broken_total",
                &[],
                "Watches in the member that broke and were started again",
            ),
            counter(
                "muster_work_reports_total",
                &[],
                "Statuses of objects that were written to their Work",
            ),
            counter(
                "muster_work_contents_read_total",
                &[],
                "Works read from the fleet API because the cache had no room for their text",
            ),
            gauge(
                "muster_fenced_objects",
                &[],
                "Objects of policies that ask for fencing that are stopped because the member is cut off",
            ),
            counter(
                "muster_fenced_objects_total",
                &["kind", "result: stopped, deleted, released, error"],
                "Objects of policies that ask for fencing",
            ),
            counter(
                "muster_fencing_failures_total",
                &[],
                "Rounds in which objects to be stopped could not be listed in the member",
            ),
            gauge(
                "muster_fleet_identified",
                &[],
                "1 when the id of the fleet is known, which distinguishes its objects from those of other fleets, else 0",
            ),
            counter(
                "muster_credential_report_failures_total",
                &["secret"],
                "Failures to give the fleet the member's credentials, by what `--report-secrets` calls them",
            ),
            counter(
                "muster_certificate_rotations_total",
                &["result: renewed, bootstrapped, refused, unanswered, useless, error"],
                "Attempts to renew the certificate for the fleet API",
            ),
        ],
    },
];

const OF_MEMBER: &[&str] = &["member_cluster"];

/// Shows the version of this build.
pub fn show_version() {
    metrics::gauge!("muster_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}
