//! Copies of a workload that asks for no replicas, and that are kept for want of another cluster:
//! whoever scales it to zero means them, too.

use muster_shared::api::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use muster_shared::names::eviction::REASON_NO_CLUSTER_FIT;

/// Returns whether a copy with so many replicas is one too many: its workload asks for none, and
/// what it asks for is sent to the cluster.
fn is_surplus(spec: &ResourceBindingSpec, cluster: &str, replicas: i32) -> bool {
    spec.is_scaled_to_zero() && replicas > 0 && !spec.dispatching_suspended_in(cluster)
}

/// Returns whether no copy has to be kept of a target that no cluster takes over.
pub fn is_scaled_away(spec: &ResourceBindingSpec, target: &TargetCluster) -> bool {
    is_surplus(spec, &target.name, target.replicas)
}

/// Returns whether a task keeps a copy that has only been kept because no cluster fitted, and that
/// nobody asks for any more.
pub fn is_released(spec: &ResourceBindingSpec, task: &GracefulEvictionTask) -> bool {
    task.reason == REASON_NO_CLUSTER_FIT
        && task.suppress_deletion != Some(true)
        && is_surplus(spec, &task.from_cluster, task.replicas.unwrap_or(0))
}

/// Returns the eviction tasks of a workload that are left; `None` where all are.
pub fn left(spec: &ResourceBindingSpec) -> Option<Vec<GracefulEvictionTask>> {
    let tasks = &spec.graceful_eviction_tasks;
    let goes = |task: &GracefulEvictionTask| is_released(spec, task);
    // Each pass asks, and hardly any task goes.
    tasks.iter().any(goes).then(|| {
        let left = tasks.iter().filter(|task| !is_released(spec, task));
        left.cloned().collect()
    })
}
