//! The Cluster's status as metrics, with the names that Karmada's dashboards use.

use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::ResourceExt;
use muster_shared::names::condition::READY;
use muster_shared::quantity::Quantity;

/// Sets the gauges to the status of the Cluster. The gauge of an unknown value stays.
pub fn show(cluster: &Cluster) {
    let name = cluster.name_any();
    let set = |gauge: &'static str, value: f64| {
        metrics::gauge!(gauge, "member_cluster" => name.clone()).set(value);
    };
    let ready = u8::from(cluster.is_true(READY));
    set("cluster_ready_state", f64::from(ready));
    let Some(status) = &cluster.status else {
        return;
    };
    if let Some(nodes) = status.node_summary {
        set("cluster_node_number", f64::from(nodes.total_num));
        set("cluster_ready_node_number", f64::from(nodes.ready_num));
    }
    let Some(resources) = &status.resource_summary else {
        return;
    };
    let sums = [
        (
            &resources.allocatable,
            [
                "cluster_cpu_allocatable_number",
                "cluster_memory_allocatable_bytes",
                "cluster_pod_allocatable_number",
            ],
        ),
        (
            &resources.allocated,
            [
                "cluster_cpu_allocated_number",
                "cluster_memory_allocated_bytes",
                "cluster_pod_allocated_number",
            ],
        ),
    ];
    for (sum, gauges) in sums {
        for (resource, gauge) in ["cpu", "memory", "pods"].into_iter().zip(gauges) {
            if let Some(quantity) = sum.get(resource)
                && let Ok(quantity) = Quantity::from_wire(quantity)
            {
                set(gauge, quantity.as_f64());
            }
        }
    }
}
