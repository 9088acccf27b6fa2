//! The Muster control plane: detects failed clusters, evicts their workloads at a limited rate,
//! places them in other clusters, and reports why.
//!
//! One process has one cache per kind ([`fleet`]) and a module per capability, in which pure
//! functions decide and one `controller.rs` gathers, calls and writes. Every decision is stored in
//! API objects and memory is a cache, so that a restart at any instruction loses nothing and
//! repeats nothing.
//!
//! # The controllers
//!
//! Each has a name in `--controllers`, watches kinds, decides in pure functions and writes objects:
//!
//! * `cluster` watches Clusters, leases, namespaces and Works; decides in
//!   [`cluster`](clusters::cluster) (`monitor`, `lifecycle`, `identity`) and
//!   [`taint`](clusters::taint) (`condition_taints`); writes conditions, condition taints and the
//!   finalizer of Clusters, and execution namespaces. Decides in [`peers`](clusters::peers)
//!   (`choose`, `judge`) which agents watch which clusters and what they see; writes the annotation
//!   that asks them, and the condition `SeenByPeers`. Decides in [`workloads`](clusters::workloads)
//!   (`count`) from bindings where workloads are unhealthy that are healthy elsewhere; writes the
//!   condition `WorkloadsHealthy`.
//! * `clustertaintpolicy` watches ClusterTaintPolicies and Clusters; decides in
//!   [`taint`](clusters::taint) (`decide`); writes taints of Clusters, and the annotation that
//!   records them.
//! * `policyStatus` watches ClusterTaintPolicies and Clusters; decides in
//!   [`policy_status`](clusters::policy_status) (`decide`); writes the status of
//!   ClusterTaintPolicies.
//! * `taintmanager` watches Clusters and bindings; decides in [`eviction`](movement::eviction)
//!   (`judge`, `plan`) and [`budget`](fleet::budget) (`rate`); writes `spec.clusters` and
//!   `spec.gracefulEvictionTasks` of bindings, and the condition `EvictionPending`.
//! * `applicationFailover` watches bindings; decides in
//!   [`application_failover`](movement::application_failover) (`decide`); moves by the queue of
//!   `taintmanager`, which it starts without its taints where that does not run; writes the
//!   annotation with its history, and the condition `ApplicationFailoverPending`.
//! * `gracefulEviction` watches bindings, Clusters and templates; decides in
//!   [`graceful_eviction`](movement::graceful_eviction) (`assess`); removes completed
//!   `spec.gracefulEvictionTasks`.
//! * `failoverHistory` watches Clusters, bindings and Works; decides in
//!   [`failovers`](movement::failovers) (`ledger`, `episode`, `cause`, `prune`); writes Failovers,
//!   which nothing reads to decide anything. Notifies the receivers of [`notices`] of them (`due`,
//!   `pacing`), and writes into an annotation what it sent.
//! * `scheduler` watches bindings and Clusters; decides in [`scheduler::core::schedule`]; writes
//!   `spec.clusters` and the condition `Scheduled`.
//! * `detector` watches policies, templates and bindings; decides in
//!   [`detector`](propagation::detector) (`select`, `build`, `report::decide`) and [`fleet`]
//!   (`claim`); writes bindings, claims on templates, dependencies, and the status of policies.
//! * `binding` watches bindings, templates, Works and leases; decides in
//!   [`binding`](propagation::binding) (`render`, `hold`, `owner`), [`data`](propagation::data)
//!   (`roles`, `gates`) and [`fencing`](fleet::fencing) (`decide`); writes Works.
//! * `bindingStatus` watches Works; decides in [`status`](propagation::status) (`aggregate`);
//!   writes the status of bindings and templates.
//! * `traffic` watches bindings, templates, Clusters and DNSEndpoints; decides in [`traffic`]
//!   (`copies`, `decide`); writes DNSEndpoints and the condition `HostnamePublished` of bindings.
//! * `namespace` watches namespaces and Clusters; decides in [`binding`](propagation::binding)
//!   (`namespaces`); writes Works with namespaces.
//! * `clusterStatus` watches Clusters of sync mode Push and their members; decides in
//!   [`push`](clusters::push) (`connection`) and the agent's crate; writes the status of Clusters.
//! * `execution` watches the Works of these Clusters; decides in the agent's crate; writes objects
//!   in the members, and conditions and finalizers of Works.
//! * `workStatus` watches objects in the members; decides in the agent's crate; writes
//!   `status.manifestStatuses` of Works.
//! * `workloadRebalancer` watches WorkloadRebalancers, bindings and Clusters; decides in
//!   [`rebalance`](movement::rebalance) (`decide`, `failback::decide`); writes
//!   `spec.rescheduleTriggeredAt` of bindings, the status of WorkloadRebalancers, and the
//!   annotation of Clusters since when they are healthy.
//! * `agentcsrapproving` watches signing requests, Clusters and namespaces; decides in
//!   [`registration`](clusters::registration) (`decide`, `roles`); writes approvals, and roles of
//!   agents that went with a namespace.
//!
//! [`fleet_api`] is a program of its own (`muster-control-plane fleet-api`): it keeps the
//! certificates of a fleet API that the chart brings along, and prepares that API.
//!
//! # A failover, step by step
//!
//! Each line names the deciding function, the writing file, what carries the result, and the
//! scenario of `e2e/tests` that shows it; `failover` shows them all.
//!
//! 1. An agent stops renewing its lease: agent `heartbeat`. Result: Lease
//!    `karmada-cluster/<cluster>`. Scenario: agent `report`.
//! 2. The grace period ends: `clusters/cluster/monitor.rs`: `judge`;
//!    `clusters/cluster/lease_monitor.rs` writes. Result: condition `Ready`=Unknown. Scenario:
//!    `detection`.
//! 3. The condition sets a taint: `clusters/taint/condition_taints.rs`: `wanted`, asked by
//!    `clusters/cluster/lifecycle.rs`; `clusters/cluster/controller.rs` writes. Result: taint
//!    `unreachable:NoSchedule`. Scenario: `detection`.
//! 4. A policy adds a taint that evicts: `clusters/taint/decide.rs`: `decide`;
//!    `clusters/taint/controller.rs` writes. Result: `NoExecute` or `PreferNoExecute`. Scenario:
//!    `eviction`.
//! 5. The workloads that must leave are found: `movement/eviction/judge.rs`: `judge`. Result:
//!    condition `EvictionPending`. Scenario: `eviction`.
//! 6. They are ordered and paced: `movement/eviction/backlog.rs`: `pop_but`;
//!    `fleet/budget/pace.rs`: `pay`. Scenario: `eviction`.
//! 7. A new placement is written: `movement/eviction/plan.rs`: `plan`;
//!    `movement/eviction/execute.rs` writes. Result: `spec.clusters`, `spec.gracefulEvictionTasks`.
//!    Scenario: `failover`.
//! 8. The Work for the new cluster is created: `propagation/binding/render.rs`: `render`;
//!    `propagation/binding/write.rs` writes. Result: Work in `karmada-es-<new>`. Scenario:
//!    `propagation`.
//! 9. Its agent applies the Work and reports: agent `work/drift`: `needs_apply`; agent `work/apply`
//!    and `work/report` write. Result: objects in the member, status of the Work. Scenario: agent
//!    `works`.
//! 10. The reports are collected: `propagation/status/aggregate.rs`: `patch`;
//!     `propagation/status/controller.rs` writes. Result: `status.aggregatedStatus`. Scenario:
//!     `propagation`.
//! 11. The replacement is healthy: `movement/graceful_eviction/assess.rs`: `assess`; its
//!     `controller.rs` writes. Result: the eviction task is removed. Scenario: `failover`.
//! 12. The old Work is deleted: `propagation/binding/render.rs`: `expects`;
//!     `propagation/binding/write.rs` writes. Result: Work in `karmada-es-<old>`. Scenario:
//!     `propagation`.
//! 13. The old cluster returns: agent `work/apply/removal.rs`: `remove`. Result: the old copy is
//!     removed. Scenario: `failover`.
//!
//! # Terms in the code
//!
//! * *Template*: an object of the fleet API that a policy selects, and that is propagated to
//!   members.
//! * *Safety contract N*: promise N of the README.
//! * *The proposal*: Karmada's proposal "Optimize Cluster Failover", which was released in part.
//!   ClusterTaintPolicy has Karmada's *released form* (`taints`, also called shipped) and the
//!   *proposed form* (`taintsToAdd`).
//! * *Classic mode*: NoExecute taints some time after a failure, as in Karmada 1.3; enabled by
//!   `--failover-eviction-timeout`.
//! * *K15* and the like: numbers in the project's list of Karmada's defects; the sentence beside
//!   each says which behaviour is avoided.

mod admission;
pub mod clusters;
mod definitions;
#[cfg(test)]
mod deviations;
pub mod fleet;
pub mod fleet_api;
pub mod movement;
pub mod notices;
pub mod propagation;
pub mod scheduler;
pub mod settings;
pub(crate) mod traffic;
mod wiring;

use std::ffi::OsString;
use std::process::ExitCode;

use muster_shared::{tasks, telemetry, tls};
use tokio_util::sync::CancellationToken;

use crate::fleet_api::snapshots;
use crate::settings::{COMPONENT, Settings};

pub use wiring::{run, run_over};

/// Runs the program: reads arguments and environment, and runs until a signal to stop.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let first = arguments.get(1).and_then(|argument| argument.to_str());
    match first {
        Some(definitions::COMMAND) => return definitions::execute(arguments),
        Some(fleet_api::COMMAND) => return fleet_api::execute(arguments),
        Some(fleet_api::etcd::COMMAND) => return fleet_api::etcd::execute(arguments),
        Some(snapshots::KEEP) => return snapshots::keep(arguments),
        Some(snapshots::FETCH) => return snapshots::fetch(arguments),
        _ => {}
    }
    settings::execute(command(), arguments, start)
}

fn command() -> clap::Command {
    clap::Command::new(COMPONENT)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Cluster failover for fleets of Kubernetes clusters: the control plane")
        .subcommand(clap::Command::new(definitions::COMMAND).about(definitions::ABOUT))
        .subcommand(clap::Command::new(fleet_api::COMMAND).about(fleet_api::ABOUT))
        .subcommand(clap::Command::new(fleet_api::etcd::COMMAND).about(fleet_api::etcd::ABOUT))
        .subcommand(clap::Command::new(snapshots::KEEP).about(snapshots::KEEP_ABOUT))
        .subcommand(clap::Command::new(snapshots::FETCH).about(snapshots::FETCH_ABOUT))
}

#[tokio::main]
async fn start(settings: Settings) -> anyhow::Result<()> {
    telemetry::log(settings.log_format, &settings.log_filter)?;
    muster_shared::settings::warn_of_unknown_variables::<Settings>();
    let metrics = telemetry::metrics()?;
    let shutdown = CancellationToken::new();
    tokio::spawn(tasks::stop_on_signal(shutdown.clone()));
    run(settings, Some(metrics), shutdown).await
}
