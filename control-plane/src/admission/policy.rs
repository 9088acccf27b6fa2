//! Admission of PropagationPolicy and ClusterPropagationPolicy: defaults and validation.
//!
//! The rules are those of Karmada's webhooks. What can never work is rejected as well, such as a
//! malformed JSONPath. What Karmada accepts and ignores is a warning, so that every manifest for
//! Karmada is accepted.

use kube::core::ObjectMeta;
use muster_shared::api::policy::{
    FailoverBehavior, PreemptionBehavior, PropagationSpec, PurgeMode, StatePreservation,
};
use muster_shared::api::scope::ResourceScope as Scope;
use muster_shared::jsonpath;
use muster_shared::names::DEFAULT_SCHEDULER;
use muster_shared::selectors::is_label_key;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Object;
use super::placement;
use super::problem::Findings;

/// Seconds that an application's old copy waits for the new one where its policy does not say
/// (Karmada's default).
pub const GRACE_PERIOD_SECONDS: i32 = 600;

/// A policy of either kind.
pub type Policy = Object<PropagationSpec>;

fn id(metadata: &ObjectMeta, scope: Scope) -> Option<&str> {
    let id = metadata.labels.as_ref()?.get(scope.policy_id_label())?;
    Some(id.as_str()).filter(|id| !id.is_empty())
}

/// Returns everything that is wrong with a policy by itself.
pub fn check(policy: &Policy, scope: Scope) -> Findings {
    let mut found = Findings::default();
    let spec = &policy.spec;
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        let at = format!("spec.resourceSelectors[{index}]");
        let elsewhere = selector
            .namespace
            .as_deref()
            .filter(|it| *it != namespace && scope == Scope::Namespaced);
        if let Some(elsewhere) = elsewhere {
            found.invalid(
                format!("{at}.namespace"),
                &elsewhere,
                &format!("must be that of the policy, {namespace:?}"),
            );
        }
        if spec.preemption == Some(PreemptionBehavior::Always)
            && selector.name.as_deref().unwrap_or_default().is_empty()
        {
            found.required(
                format!("{at}.name"),
                "a policy that may take over from others names what it takes",
            );
        }
    }
    placement::check(&spec.placement, "spec.placement", &mut found);
    if let Some(behaviour) = &spec.failover {
        failover(behaviour, spec.propagate_deps, &mut found);
        if spec.preserve_resources_on_deletion == Some(true) {
            found.warn(
                "spec.preserveResourcesOnDeletion",
                "keeps objects in the members when their template or policy is deleted; a workload that moves to another cluster leaves \
                 no copy behind",
            );
        }
    }
    if let Some(suspension) = &spec.suspension
        && suspension.dispatching == Some(true)
        && suspension.dispatching_on_clusters.is_some()
    {
        found.forbidden(
            "spec.suspension.dispatchingOnClusters",
            "suspension.dispatching suspends all clusters: the two cannot co-exist",
        );
    }
    found
}

fn failover(behaviour: &FailoverBehavior, propagate_deps: bool, found: &mut Findings) {
    if let Some(application) = &behaviour.application {
        let at = "spec.failover.application";
        if !propagate_deps {
            found.invalid(
                "spec.propagateDeps",
                &propagate_deps,
                "application failover is set, propagateDeps must be true",
            );
        }
        let grace = application.grace_period_seconds;
        let graceful = PurgeMode::is_graceful(application.purge_mode.as_ref());
        self::grace(graceful, grace, at, found);
        if graceful && grace.is_none() {
            found.required(
                format!("{at}.gracePeriodSeconds"),
                "should not be empty when purgeMode is Gracefully",
            );
        }
        preserve(application.state_preservation.as_ref(), at, found);
    }
    if let Some(cluster) = &behaviour.cluster {
        let at = "spec.failover.cluster";
        let graceful = PurgeMode::is_graceful(cluster.purge_mode.as_ref());
        grace(graceful, cluster.grace_period_seconds, at, found);
        preserve(cluster.state_preservation.as_ref(), at, found);
    }
}

fn grace(graceful: bool, seconds: Option<i32>, at: &str, found: &mut Findings) {
    let at = format!("{at}.gracePeriodSeconds");
    match seconds {
        Some(seconds) if !graceful => found.invalid(
            at,
            &seconds,
            "only takes effect when purgeMode is Gracefully",
        ),
        Some(seconds) if seconds <= 0 => found.invalid(at, &seconds, "must be greater than 0"),
        _ => {}
    }
}

fn preserve(preservation: Option<&StatePreservation>, at: &str, found: &mut Findings) {
    let rules = preservation.iter().flat_map(|it| &it.rules);
    for (index, rule) in rules.enumerate() {
        let at = format!("{at}.statePreservation.rules[{index}]");
        if !is_label_key(&rule.alias_label_name) {
            found.invalid(
                format!("{at}.aliasLabelName"),
                &rule.alias_label_name,
                "must be a label key: a name of at most 63 characters, with an optional DNS prefix",
            );
        }
        if rule.json_path.is_empty() {
            found.required(format!("{at}.jsonPath"), "path of the value");
        } else if let Err(error) = jsonpath::Template::parse(&rule.json_path) {
            found.invalid(
                format!("{at}.jsonPath"),
                &rule.json_path,
                &error.to_string(),
            );
        }
    }
}

/// Checks that a change leaves as it is what it must not change.
pub fn check_change(old: &Policy, new: &Policy, scope: Scope) -> Findings {
    let mut found = Findings::default();
    let scheduler = |policy: &Policy| {
        let name = policy.spec.scheduler_name.clone();
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned())
    };
    if scheduler(old) != scheduler(new) {
        found.invalid(
            "spec.schedulerName",
            &scheduler(new),
            "the schedulerName should not be updated",
        );
    }
    // A policy from before admission was switched on has none, and gets one from the control plane.
    if let Some(was) = id(&old.metadata, scope)
        && id(&new.metadata, scope) != Some(was)
    {
        found.invalid(
            format!("metadata.labels[{}]", scope.policy_id_label()),
            &id(&new.metadata, scope).unwrap_or_default(),
            &format!("is immutable, set by the system: {was:?}"),
        );
    }
    found
}

/// Writes what a policy gets at admission. `old` is what it was, for a change; `new_id` is unique.
pub fn default(policy: &mut Value, old: Option<&Policy>, scope: Scope, new_id: &str) {
    let Ok(read) = Policy::deserialize(&*policy) else {
        // The schema refuses it in a moment, and says why.
        return;
    };
    identify(policy, &read, old, scope, new_id);
    let spec = &read.spec;
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        let unsaid = selector.namespace.as_deref().unwrap_or_default().is_empty();
        if let (Some(namespace), true, Scope::Namespaced) =
            (&read.metadata.namespace, unsaid, scope)
        {
            policy["spec"]["resourceSelectors"][index]["namespace"] = json!(namespace);
        }
    }
    let imports = |kind: &str, version: &str| {
        kind == "ServiceImport" && version.starts_with("multicluster.x-k8s.io/")
    };
    if spec
        .resource_selectors
        .iter()
        .any(|it| imports(&it.kind, &it.api_version))
        && !spec.propagate_deps
    {
        policy["spec"]["propagateDeps"] = json!(true);
    }
    default_placement(policy, spec);
    default_grace(policy, spec, old);
}

fn default_placement(policy: &mut Value, spec: &PropagationSpec) {
    let placement = &spec.placement;
    for (index, constraint) in placement.spread_constraints.iter().enumerate() {
        let raw = &mut policy["spec"]["placement"]["spreadConstraints"][index];
        if constraint.spread_by_field.is_none() && constraint.spread_by_label.is_none() {
            raw["spreadByField"] = json!("cluster");
        }
        if constraint.min_groups == 0 {
            raw["minGroups"] = json!(1);
        }
    }
    if let Some(strategy) = &placement.replica_scheduling {
        let divided = strategy
            .replica_scheduling_type
            .as_ref()
            .is_none_or(|it| it.as_str() == "Divided");
        if divided && strategy.replica_division_preference.is_none() {
            policy["spec"]["placement"]["replicaScheduling"]["replicaDivisionPreference"] =
                json!("Weighted");
        }
    }
}

/// Gives a grace period to an application that is moved gracefully. One that was written for it
/// goes with the mode: whoever applies another mode cannot take away what he never wrote.
fn default_grace(policy: &mut Value, spec: &PropagationSpec, old: Option<&Policy>) {
    let Some(now) = spec.application_failover() else {
        return;
    };
    let before = old.and_then(|old| old.spec.application_failover());
    let raw = &mut policy["spec"]["failover"]["application"];
    if PurgeMode::is_graceful(now.purge_mode.as_ref()) {
        if now.grace_period_seconds.is_none() {
            raw["gracePeriodSeconds"] = json!(GRACE_PERIOD_SECONDS);
        }
    } else if now.grace_period_seconds == Some(GRACE_PERIOD_SECONDS)
        && before.is_some_and(|before| {
            PurgeMode::is_graceful(before.purge_mode.as_ref())
                && before.grace_period_seconds == now.grace_period_seconds
        })
        && let Some(fields) = raw.as_object_mut()
    {
        fields.remove("gracePeriodSeconds");
    }
}

/// Gives a new policy an identity of its own, even if it is a copy that bears another's. A policy
/// that is replaced by a manifest without the identity keeps it.
fn identify(policy: &mut Value, read: &Policy, old: Option<&Policy>, scope: Scope, new_id: &str) {
    let given = match old {
        None => Some(new_id.to_owned()),
        Some(_) if id(&read.metadata, scope).is_some() => None,
        Some(old) => id(&old.metadata, scope).map(str::to_owned),
    };
    if let Some(given) = given {
        policy["metadata"]["labels"][scope.policy_id_label()] = json!(given);
    }
    // Nobody but the controller takes it off again, and that is a change.
    let finalizers = read.metadata.finalizers.clone().unwrap_or_default();
    if old.is_none() && !finalizers.iter().any(|it| it == scope.policy_finalizer()) {
        let all = finalizers
            .into_iter()
            .chain([scope.policy_finalizer().to_owned()]);
        policy["metadata"]["finalizers"] = all.collect();
    }
}

#[cfg(test)]
mod tests;
