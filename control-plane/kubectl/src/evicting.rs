//! Taints of policies that make workloads leave.

use muster_shared::api::taint_policy::ClusterTaintPolicySpec;
use muster_shared::taints::evicts;

/// Returns the effects of the taints of a policy that evict.
pub(super) fn evicting(spec: &ClusterTaintPolicySpec) -> impl Iterator<Item = &str> {
    let old = spec.taints.iter().map(|it| it.effect.as_str());
    let new = spec.taints_to_add.iter().map(|it| it.effect.as_str());
    old.chain(new).filter(|effect| evicts(effect))
}
