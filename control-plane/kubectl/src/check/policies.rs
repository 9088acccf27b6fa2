//! Checks of the policies: which select nothing, name what is not there, or move nothing.

use std::collections::BTreeSet;

use muster_control_plane::clusters::taint::policy::faults;
use muster_control_plane::clusters::taint::record::Record;
use muster_control_plane::fleet::claim::Claim;
use muster_control_plane::fleet::policy::PolicyKey;
use muster_control_plane::fleet::scope::Scope;
use muster_control_plane::movement::eviction::fleet_view::evicts;
use muster_control_plane::propagation::detector::audit::{unknown_clusters, written};
use muster_control_plane::settings::FAILOVER;
use muster_shared::api::any_policy::AnyPropagationPolicy;
use muster_shared::api::cluster::Cluster;
use muster_shared::check::{Category, Refusal, listed};
use muster_shared::k8s::ResourceExt as _;
use muster_shared::names::condition::READY;
use muster_shared::names::taint::DRAIN;
use muster_shared::taints::{NO_EXECUTE, PREFER_NO_EXECUTE, describe};

use super::facts::Facts;
use crate::evicting::evicting;

/// Names that one line lists.
const MOST: usize = 5;
/// Policies of which each fault has a line.
const MOST_REPORTED: usize = 20;

pub(super) fn check(category: &mut Category, facts: &Facts) {
    match policies(facts) {
        Err(refusal) => category.unknown("policies", "the policies", refusal),
        Ok(policies) if policies.is_empty() => {
            category.skipped("policies", "there is no PropagationPolicy");
        }
        Ok(policies) => {
            select_nothing(category, facts, &policies);
            without_effect(category, facts, &policies);
        }
    }
    match &facts.taint_policies {
        Err(refusal) => category.unknown("taint-policies", "the ClusterTaintPolicies", refusal),
        Ok(_) => taint_policies(category, facts),
    }
    taints(category, facts);
}

fn policies(facts: &Facts) -> Result<Vec<&AnyPropagationPolicy>, &Refusal> {
    let policies = facts.policies.as_ref()?.iter();
    Ok(policies.filter(|it| !it.is_deleting()).collect())
}

fn key(policy: &AnyPropagationPolicy) -> PolicyKey {
    PolicyKey::new(policy.metadata.namespace.as_deref(), &policy.name_any())
}

fn select_nothing(category: &mut Category, facts: &Facts, policies: &[&AnyPropagationPolicy]) {
    let bindings = match &facts.bindings {
        Ok(bindings) => bindings.iter(),
        Err(refusal) => return category.unknown("policies", "the bindings", refusal),
    };
    let claims = bindings.filter_map(|it| Claim::on(&it.metadata));
    let used: BTreeSet<PolicyKey> = claims.map(|it| it.policy).collect();
    let idle = policies.iter().map(|it| key(it));
    let idle = idle.filter(|it| !used.contains(it));
    let idle: Vec<String> = idle.map(|it| it.to_string()).collect();
    if idle.is_empty() {
        let number = policies.len();
        category.ok("policies", format!("each of {number} places something"));
    } else {
        category.warning(
            "policies",
            format!(
                "select nothing, or nothing that no other policy has: {}",
                listed(&idle, MOST)
            ),
            "kubectl describe the policy: events say which selector finds nothing.",
        );
    }
}

fn without_effect(category: &mut Category, facts: &Facts, policies: &[&AnyPropagationPolicy]) {
    let mut reported = 0;
    for policy in policies {
        let mut notes: Vec<String> = written(
            &policy.spec,
            policy.metadata.namespace.as_deref(),
            &Scope::default(),
        )
        .into_iter()
        .map(|finding| finding.note)
        .collect();
        if let Ok(names) = facts.cluster_names() {
            notes.extend(unknown_clusters(&policy.spec, |it| names.contains(&it)));
        }
        for note in notes {
            reported += 1;
            if reported <= MOST_REPORTED {
                let message = format!("{}: {note}", key(policy));
                let hint = "That part of the policy has no effect: correct it or take it out.";
                category.warning("policy-parts", message, hint);
            }
        }
    }
    if reported > MOST_REPORTED {
        category.skipped(
            "policy-parts",
            format!("{} more of these", reported - MOST_REPORTED),
        );
    }
}

fn taint_policies(category: &mut Category, facts: &Facts) {
    let policies = facts.taint_policies.as_deref().unwrap_or_default();
    let leader = facts.leader_report();
    let failover = leader.and_then(|it| it.feature_gates.get(FAILOVER.name).copied());
    let effects = policies.iter().flat_map(|it| evicting(&it.spec));
    let effects: BTreeSet<&str> = effects.collect();
    let some_evict = !effects.is_empty();
    let strict = effects.contains(NO_EXECUTE);
    let name = "taint-policies";
    match (some_evict, failover) {
        (false, Some(true)) => category.warning(
            name,
            "Failover is on, and no ClusterTaintPolicy adds a taint that evicts: a failed cluster keeps its workloads",
            "Add one, as in .github/manual/failover.md (\"Switch failover on\").",
        ),
        (true, Some(false)) => category.warning(
            name,
            "ClusterTaintPolicies add taints that evict, and Failover is off: nothing moves",
            "Set featureGates.Failover=true of charts/control-plane, or leave it as it is on purpose.",
        ),
        (true, _) if !facts.settings.runs("taintmanager") => category.warning(
            name,
            "ClusterTaintPolicies add taints that evict, and the controller taintmanager is off: no taint moves anything",
            "Let it run (--controllers, --enable-taint-manager), or leave it as it is on purpose.",
        ),
        (true, _) if strict && !facts.settings.enable_no_execute_taint_eviction => category.warning(
            name,
            "ClusterTaintPolicies add taints of effect NoExecute, which move nothing (--enable-no-execute-taint-eviction=false)",
            "Set it to true, or leave it as it is on purpose.",
        ),
        (true, _) => category.ok(name, "taints that evict are added to failed clusters"),
        (false, _) => category.skipped(name, "no ClusterTaintPolicy adds a taint that evicts"),
    }
    let prefers = effects.contains(PREFER_NO_EXECUTE);
    let propagation = policies_of_failover(facts);
    if let (true, false, Some(false)) = (prefers, strict, propagation) {
        category.warning(
            "failover-policies",
            "taints are PreferNoExecute, and no PropagationPolicy has spec.failover.cluster: they move nothing",
            "Add spec.failover.cluster to the policies of what is to move.",
        );
    }
    for policy in policies {
        let title = policy.name_any();
        let hint = "That part of the policy has no effect: kubectl describe clustertaintpolicy says so, too.";
        for fault in faults(&policy.spec, facts.settings.condition_taints) {
            category.warning(
                "taint-policy-parts",
                format!("ClusterTaintPolicy {title}: {fault}"),
                hint,
            );
        }
        let known = conditions(facts);
        let asked = [
            &policy.spec.add_on_conditions,
            &policy.spec.match_conditions,
        ];
        for asked in asked.into_iter().flatten() {
            if !known.is_empty() && !known.contains(asked.condition_type.as_str()) {
                let message = format!(
                    "ClusterTaintPolicy {title}: no cluster has a condition {:?}",
                    asked.condition_type
                );
                category.warning("taint-policy-parts", message, hint);
            }
        }
    }
}

/// Returns whether any policy asks for failover of clusters; `None` if there is none, or they are
/// not known.
fn policies_of_failover(facts: &Facts) -> Option<bool> {
    let policies = policies(facts).ok().filter(|it| !it.is_empty())?;
    let mut policies = policies.iter();
    Some(policies.any(|it| it.spec.cluster_failover().is_some()))
}

/// Returns the types of conditions that clusters have.
fn conditions(facts: &Facts) -> BTreeSet<&str> {
    let clusters = facts.clusters.as_deref().unwrap_or_default().iter();
    let conditions = clusters.flat_map(Cluster::conditions);
    let mut found: BTreeSet<&str> = conditions.map(|it| it.type_.as_str()).collect();
    if !found.is_empty() {
        found.insert(READY);
    }
    found
}

/// Checks for taints that evict and that no policy set: nothing takes them off.
fn taints(category: &mut Category, facts: &Facts) {
    let mut found = false;
    for cluster in facts.clusters.as_deref().unwrap_or_default() {
        let record = Record::on(cluster).unwrap_or_default();
        for taint in cluster.spec.taints.iter().filter(|it| evicts(it)) {
            let owned = record.owned(&taint.key, &taint.effect);
            if owned.is_some_and(|it| !it.is_free()) {
                continue;
            }
            found = true;
            let name = cluster.name_any();
            let order = if taint.key == DRAIN {
                format!("Somebody drains it. To end that: kubectl muster undrain {name}")
            } else {
                format!(
                    "It stays until somebody takes it off: kubectl muster taint {name} {}:{}-",
                    taint.key, taint.effect
                )
            };
            category.warning(
                "taints",
                format!(
                    "{name} has the taint {}, which no policy set",
                    describe(taint)
                ),
                order,
            );
        }
    }
    if !found && facts.clusters.is_ok() {
        category.ok("taints", "every taint that evicts is a policy's");
    }
}
