//! The list of the metrics of the control plane.
//!
//! Names without the prefix `muster_` are Karmada's or those of the failover proposal, with their
//! labels, so that existing dashboards work.

use muster_shared::telemetry::{Section, counter, gauge, histogram};

/// Metrics of the control plane.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        title: "Control plane: evictions",
        metrics: &[
            gauge(
                "evict_total",
                OF_CLUSTER,
                "Workloads that have to leave a cluster and have not left it",
            ),
            gauge(
                "evict_kind_total",
                &["cluster_name", "resource_kind"],
                "Workloads that have to leave a cluster and have not left it, by API version and kind",
            ),
            gauge(
                "evict_rate",
                OF_CLUSTER,
                "Workloads evicted per second lately",
            ),
            gauge(
                "evict_success_rate",
                OF_CLUSTER,
                "Share of the evictions tried since the start that took place",
            ),
            histogram(
                "evict_processing_latency_seconds",
                OF_CLUSTER,
                "Time from the end of the toleration until the workload left",
            ),
            gauge(
                "muster_evict_waiting",
                OF_CLUSTER,
                "Part of `evict_total` that waits for a toleration to run out",
            ),
            gauge(
                "muster_evict_stranded",
                OF_CLUSTER,
                "Part of `evict_total` that has nowhere to go",
            ),
            gauge(
                "muster_evict_allowed_rate",
                &[],
                "Evictions per second that the state of the fleet allows now: primary, secondary, or 0",
            ),
            gauge(
                "eviction_queue_depth",
                &["name: binding-eviction, cluster-binding-eviction"],
                "Workloads that wait for the eviction rate (Karmada's)",
            ),
            gauge(
                "eviction_kind_total",
                &["member_cluster", "resource_kind"],
                "Bindings in the queue by kind of binding (Karmada's)",
            ),
            counter(
                "eviction_processing_total",
                &["name", "result: success, error"],
                "Evictions tried (Karmada's)",
            ),
            histogram(
                "eviction_processing_latency_seconds",
                &["name"],
                "Time from the end of the toleration until the workload left (Karmada's)",
            ),
            counter(
                "muster_application_failovers_total",
                &["result: moved, held"],
                "Applications that had to leave a cluster where they stayed unhealthy",
            ),
            counter(
                "muster_failbacks_total",
                &[],
                "Workloads whose return to a cluster was requested",
            ),
        ],
    },
    Section {
        title: "Control plane: failovers and clusters",
        metrics: &[
            counter(
                "muster_failovers_total",
                &["cause: as in the objects Failover"],
                "Failovers that began",
            ),
            counter(
                "muster_failover_workloads_moved_total",
                BY_CAUSE,
                "Workloads that were placed elsewhere",
            ),
            counter(
                "muster_failover_workloads_stranded_total",
                BY_CAUSE,
                "Workloads that had nowhere to go",
            ),
            counter(
                "muster_failover_workloads_held_total",
                BY_CAUSE,
                "Workloads held because too many clusters had failed or movement was paused",
            ),
            histogram(
                "muster_failover_healthy_seconds",
                BY_CAUSE,
                "Time from the cause until a moved workload was healthy elsewhere",
            ),
            counter(
                "muster_failovers_unrecorded_total",
                &[],
                "Failovers without a record, because all of `--failover-history-limit` go on",
            ),
            counter(
                "muster_notices_total",
                &["receiver", "result: sent, failed, left-out, given-up"],
                "Notices of failovers: attempts that were taken or failed, and notices that were left out or given up",
            ),
            gauge(
                "cluster_fault_num",
                &[],
                "Clusters that have failed: not ready, or tainted so that workloads leave",
            ),
            gauge(
                "cluster_fault_rate",
                &[],
                "Share of all clusters that have failed, 0 to 1",
            ),
            gauge(
                "muster_cluster_ready",
                OF_CLUSTER,
                "1 if condition `Ready` is True, else 0",
            ),
            gauge(
                "muster_cluster_taints",
                &[
                    "cluster_name",
                    "effect: NoSchedule, PreferNoExecute, NoExecute",
                ],
                "Taints of the cluster",
            ),
            gauge(
                "muster_cluster_last_heard_timestamp_seconds",
                OF_CLUSTER,
                "Last renewal of the lease, by the member's clock",
            ),
            gauge(
                "muster_cluster_nodes",
                &["cluster_name", "state: ready, other"],
                "Nodes that the cluster reported last",
            ),
            gauge(
                "muster_cluster_capacity",
                &["cluster_name", "resource: cpu, memory, pods"],
                "What nodes offered to pods by the last report, in cores, bytes and pods",
            ),
            gauge(
                "muster_cluster_requested",
                &["cluster_name", "resource: cpu, memory, pods"],
                "What pods on nodes requested by the last report, in cores, bytes and pods",
            ),
            gauge(
                "muster_cluster_credentials_remaining_seconds",
                OF_CLUSTER,
                "Validity left of the agent's credentials for the fleet API; negative once they have expired",
            ),
            gauge(
                "muster_push_clusters",
                &[],
                "Members without an agent, which the control plane connects to",
            ),
            gauge(
                "muster_paused",
                &[],
                "1 while all movement is paused (`kubectl muster pause`), else 0",
            ),
            gauge(
                "muster_paused_clusters",
                &[],
                "Clusters that are paused one by one (`kubectl muster pause CLUSTER`)",
            ),
        ],
    },
    Section {
        title: "Control plane: scheduler and admission",
        metrics: &[
            counter(
                "karmada_scheduler_schedule_attempts_total",
                &["result: scheduled, error", "schedule_type"],
                "Passes over bindings",
            ),
            histogram(
                "karmada_scheduler_e2e_scheduling_duration_seconds",
                &["result: scheduled, error", "schedule_type"],
                "Time from the start of a pass until its result is written",
            ),
            histogram(
                "karmada_scheduler_scheduling_algorithm_duration_seconds",
                &["schedule_step: Filter, Score, Select, AssignReplicas"],
                "Time of a step of a decision",
            ),
            counter(
                "karmada_scheduler_queue_incoming_bindings_total",
                &["event"],
                "Bindings put on the scheduler's queue",
            ),
            gauge(
                "muster_scheduler_waiting_bindings",
                &[],
                "Bindings without a decision, which wait for clusters to change",
            ),
            counter(
                "muster_scheduler_waiting_comparisons_total",
                &[],
                "Comparisons of changes of clusters with what bindings without a decision wait for",
            ),
            counter(
                "muster_webhook_requests_total",
                &[
                    "path: mutate, validate",
                    "kind",
                    "operation",
                    "allowed: true, false, error",
                ],
                "Admission reviews that were answered; `allowed` is `error` for what was no review",
            ),
            histogram(
                "muster_webhook_duration_seconds",
                &["path", "kind"],
                "Time from a complete admission review to its answer",
            ),
            gauge(
                "muster_serving_certificate_remaining_seconds",
                &[],
                "Validity left of the certificate of the admission server",
            ),
        ],
    },
];

const OF_CLUSTER: &[&str] = &["cluster_name"];
const BY_CAUSE: &[&str] = &["cause"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::{env, fs};

    use muster_shared::telemetry;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.github/manual/metrics.md");

    fn sections() -> impl Iterator<Item = &'static Section> {
        let agent = muster_agent::measures::SECTIONS;
        SECTIONS.iter().chain(agent).chain(telemetry::SECTIONS)
    }

    #[test]
    fn the_manual_lists_the_metrics_of_the_code() {
        let stored = fs::read_to_string(PAGE).unwrap();
        let (introduction, _) = stored.split_once("\n## ").unwrap();
        let tables: Vec<String> = sections().map(Section::markdown).collect();
        let page = format!("{introduction}\n{}", tables.join("\n"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(PAGE, &page).unwrap();
        }
        assert!(
            fs::read_to_string(PAGE).unwrap() == page,
            "{PAGE} is not what the code says: run \
             UPDATE_GOLDEN=1 cargo test -p muster-control-plane --lib measures::"
        );
    }

    #[test]
    fn a_metric_is_listed_once() {
        let names: Vec<_> = sections()
            .flat_map(|it| it.metrics)
            .map(|it| it.name)
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
