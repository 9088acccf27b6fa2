//! Taints of policies that make workloads leave.

use muster_shared::api::taint_policy::ClusterTaintPolicySpec;
use muster_shared::taints::{NO_EXECUTE, PREFER_NO_EXECUTE};

/// Returns the taints of a policy that evict, as key and effect.
pub(super) fn evicting(spec: &ClusterTaintPolicySpec) -> impl Iterator<Item = (&str, &str)> {
    let old = spec
        .taints
        .iter()
        .map(|it| (it.key.as_str(), it.effect.as_str()));
    let new = spec
        .taints_to_add
        .iter()
        .map(|it| (it.key.as_str(), it.effect.as_str()));
    let evicts = |effect: &str| [NO_EXECUTE, PREFER_NO_EXECUTE].contains(&effect);
    old.chain(new).filter(move |(_, effect)| evicts(effect))
}
