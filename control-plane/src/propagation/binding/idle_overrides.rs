//! Reports parts of override policies that have no effect: a selector that selects nothing which
//! is propagated, a rule for no cluster, a name of a cluster that is not in the fleet, and a change
//! of containers in kinds of which it is not known where they have them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_policy::AnyOverridePolicy;
use muster_shared::api::override_policy::{OverrideSpec, Overriders};
use muster_shared::api::policy::{ClusterAffinity, ResourceSelector};
use muster_shared::check::listed;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::names::label;
use muster_shared::queue::{Next, Queue};
use muster_shared::selectors::matches_affinity;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use super::overriding::widened;
use crate::fleet::Fleet;
use crate::fleet::policy::PolicyKey;
use crate::fleet::selection::{Strength, Subject, may_select, strength};
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::propagation::overrides::path_of_containers;

/// Time after a change of a policy within which what it names may still come.
const GRACE: Duration = Duration::from_secs(30);
/// Selectors of one policy that are compared with what is propagated.
const MOST_COMPARED: usize = 50;
/// Parts of one policy that are reported.
const MOST_REPORTED: usize = 8;
/// Clusters that one event names.
const MOST_NAMED: usize = 10;

/// Starts reporting policies that are made or edited while this process runs: comparing all of
/// them with all bindings when it starts would take minutes in a large fleet.
pub(super) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let queue = Queue::new("override audits");
    Controller::with(fleet, "override audits", &queue)
        .gathers(GRACE, &fleet.override_policies, edited)
        .run(tasks, 1, (), |fleet, (), key: PolicyKey| async move {
            Ok::<_, Infallible>(reconcile(&fleet, &key))
        });
}

/// Returns the key of a policy that is new or edited.
fn edited(fleet: &Fleet, change: &Change<AnyOverridePolicy>) -> Option<PolicyKey> {
    let Change::Applied { old, new } = change else {
        return None;
    };
    let namespace = new.metadata.namespace.as_deref();
    let is_update = match old {
        Some(old) => old.spec != new.spec,
        // One of the first list is not new.
        None => fleet.override_policies.of(namespace).is_synced(),
    };
    // The process that leads reports what is edited while this one is a standby.
    let is_update = is_update && fleet.leadership.is_current();
    let name = new.metadata.name.as_deref().unwrap_or_default();
    is_update.then(|| PolicyKey::new(namespace, name))
}

fn reconcile(fleet: &Fleet, key: &PolicyKey) -> Next {
    let policies = fleet.override_policies.of(key.namespace());
    let policy = policies.get(key.namespace(), key.name());
    let Some(policy) = policy.filter(|policy| !policy.is_deleting()) else {
        return Next::Done;
    };
    let idle = idle_selectors(fleet, &policy).into_iter();
    let idle = idle.map(|note| ("NothingSelected", note));
    let idle = idle.chain(idle_rules(fleet, &policy));
    let unchanged = idle_changes(&policy.spec).into_iter();
    let unchanged = unchanged.map(|note| ("NothingChanged", note));
    for (reason, note) in idle.chain(unchanged).take(MOST_REPORTED) {
        let about = policy.reference();
        let events = &fleet.events;
        events.publish_about(about, EventType::Warning, reason, note);
    }
    Next::Done
}

/// Returns what is reported of the selectors of a policy that select nothing in any cluster.
fn idle_selectors(fleet: &Fleet, policy: &AnyOverridePolicy) -> Vec<String> {
    let namespace = policy.metadata.namespace.as_deref();
    let spec = widened(namespace, &policy.spec);
    let selectors = spec.resource_selectors.iter().enumerate();
    let mut idle: Vec<_> = selectors.take(MOST_COMPARED).collect();
    for binding in fleet.bindings.iter_of(namespace) {
        if idle.is_empty() {
            break;
        }
        let resource = &binding.spec.resource;
        // A template is decoded for its labels, which takes long for each of a large fleet.
        if !idle.iter().any(|(_, it)| may_select(it, resource)) {
            continue;
        }
        let key = TemplateKey::of(resource);
        match fleet.templates.get(&key) {
            Lookup::Found(template) => {
                let subject = Subject::of(&key.kind, &template);
                idle.retain(|(_, it)| strength(it, subject) == Strength::Mismatch);
            }
            Lookup::Absent => {}
            Lookup::Unknown => idle.retain(|(_, it)| !may_select(it, resource)),
        }
    }
    // An OverridePolicy selects nothing that lies in no namespace.
    let by_themselves = namespace.is_none() && fleet.settings.runs("namespace");
    idle.into_iter()
        .map(|(index, it)| selects_nothing(index, it, by_themselves))
        .collect()
}

/// Returns what is reported of a selector that selects nothing. Namespaces that go to all clusters
/// `by_themselves` have no binding: they are written as they are.
fn selects_nothing(index: usize, selector: &ResourceSelector, by_themselves: bool) -> String {
    let (kind, version) = (&*selector.kind, &*selector.api_version);
    let note = format!(
        "spec.resourceSelectors[{index}]: selects no {kind} of {version} that is propagated"
    );
    if !by_themselves || (version, kind) != ("v1", "Namespace") {
        return note;
    }
    let label = label::SKIP_AUTO_PROPAGATION;
    format!(
        "{note} by a policy: Namespaces that go to all clusters by themselves go without overrides. The label {label}: \"true\" keeps \
         one from that, and a ClusterPropagationPolicy brings it to clusters with them"
    )
}

/// Returns what is reported of the rules of a policy that are for no cluster, or name one that is
/// not in the fleet, each with the reason of its event. Nothing is reported in a fleet without any,
/// whose policies are applied before the clusters join.
fn idle_rules(fleet: &Fleet, policy: &AnyOverridePolicy) -> Vec<(&'static str, String)> {
    let clusters = fleet.clusters.list();
    if clusters.is_empty() {
        return Vec::new();
    }
    let reported = |(index, (target, _)): (usize, (Option<&ClusterAffinity>, _))| {
        let target = target?;
        let at = path(&policy.spec, index, "targetCluster");
        if !clusters.iter().any(|it| matches_affinity(target, it)) {
            let note = format!("{at}: selects no cluster of the fleet");
            return Some(("NothingSelected", note));
        }
        let names = target.cluster_names.iter();
        let unknown = names.filter(|it| !fleet.clusters.presence(None, it).may_exist());
        let unknown: Vec<&str> = unknown.map(String::as_str).collect();
        let note = || {
            let names = listed(&unknown, MOST_NAMED);
            format!("{at}: names clusters that are not in the fleet: {names}")
        };
        (!unknown.is_empty()).then(|| ("UnknownCluster", note()))
    };
    let rules = policy.spec.rules().enumerate();
    rules.filter_map(reported).collect()
}

/// Returns what is told of the changes of containers in a policy that selects kinds of which it is
/// not known where they have them: nothing else, or CronJobs, which have some.
fn idle_changes(spec: &OverrideSpec) -> Vec<String> {
    let kinds = || spec.resource_selectors.iter().map(|it| it.kind.as_str());
    let is_known = |kind: &str| path_of_containers(kind).is_some();
    let has_known = kinds().any(is_known);
    let idle = kinds().filter(|it| !is_known(it) && (!has_known || *it == "CronJob"));
    let idle: BTreeSet<&str> = idle.collect();
    if idle.is_empty() {
        return Vec::new();
    }
    let idle: Vec<&str> = idle.into_iter().collect();
    let idle = listed(&idle, MOST_NAMED);
    let reported = |(index, (_, overriders)): (usize, (_, &Overriders))| {
        let field = change_of_containers(overriders)?;
        let at = path(spec, index, "overriders");
        Some(format!(
            "{at}.{field}: changes nothing of {idle}, whose containers are not looked for: name the field of an image by predicate, or \
             change it by plaintext"
        ))
    };
    spec.rules().enumerate().filter_map(reported).collect()
}

/// Returns the path of a field of a rule: a policy without a list of rules is one itself.
fn path(spec: &OverrideSpec, index: usize, field: &str) -> String {
    if spec.override_rules.is_empty() {
        format!("spec.{field}")
    } else {
        format!("spec.overrideRules[{index}].{field}")
    }
}

/// Returns the first field of a rule that changes containers wherever a kind has them.
fn change_of_containers(overriders: &Overriders) -> Option<&'static str> {
    let mut images = overriders.image_overrider.iter();
    if images.any(|it| it.predicate.is_none()) {
        Some("imageOverrider")
    } else if !overriders.command_overrider.is_empty() {
        Some("commandOverrider")
    } else if !overriders.args_overrider.is_empty() {
        Some("argsOverrider")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use muster_shared::client::Gateway;
    use muster_shared::lease::Leadership;
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fleet::testing::{Bench, FakeApi, binding, cluster, deployment, pass};
    use crate::settings::Settings;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stands_by_remembers_no_policies_for_the_time_when_it_leads() {
        let policy = |name: &str| -> Arc<AnyOverridePolicy> {
            let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
            let policy = json!({
                "metadata": {"namespace": "shop", "name": "web"},
                "spec": {"resourceSelectors": [selector], "overriders": {}},
            });
            Arc::new(serde_json::from_value(policy).unwrap())
        };
        for (leadership, expected) in [(Leadership::elected(), false), (Leadership::always(), true)]
        {
            let config = Config::new("http://fleet".parse().unwrap());
            let gateway = Gateway::over(Arc::new(FakeApi::default()), "fleet", config);
            let mut tasks = Tasks::new(CancellationToken::new());
            let fleet = Fleet::new(&gateway, Settings::default(), leadership, &mut tasks).unwrap();
            let change = Change::Applied {
                old: Some(policy("web")),
                new: policy("wep"),
            };
            assert_eq!(edited(&fleet, &change).is_some(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rule_for_a_cluster_that_joins_later_is_not_reported_in_a_fleet_without_clusters() {
        let policy: AnyOverridePolicy = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"overrideRules": [
                {"targetCluster": {"clusterNames": ["m9"]}, "overriders": {}},
            ]},
        }))
        .unwrap();
        for (clusters, expected) in [(None, 0), (Some(("clusters", cluster("m1"))), 1)] {
            let bench = Bench::followed(clusters).await;
            assert_eq!(idle_rules(&bench.fleet, &policy).len(), expected);
        }
    }

    #[test]
    fn a_selector_of_namespaces_is_told_that_those_that_go_everywhere_are_not_overridden() {
        for (version, kind, by_themselves, expected) in [
            ("v1", "Namespace", true, true),
            ("v1", "Namespace", false, false),
            ("v1", "ConfigMap", true, false),
            ("example.io/v1", "Namespace", true, false),
        ] {
            let selector = json!({"apiVersion": version, "kind": kind});
            let selector: ResourceSelector = serde_json::from_value(selector).unwrap();
            let reported = selects_nothing(1, &selector, by_themselves);
            let start =
                format!("spec.resourceSelectors[1]: selects no {kind} of {version} that is");
            assert!(reported.starts_with(&start), "{reported}");
            let is_told = reported.contains(label::SKIP_AUTO_PROPAGATION);
            assert_eq!(is_told, expected, "{reported}");
        }
    }

    #[test]
    fn changes_of_containers_are_reported_where_it_is_not_known_where_these_are() {
        let image = json!({"component": "Registry", "operator": "replace", "value": "eu.example"});
        let mut placed = image.clone();
        placed["predicate"] = json!({"path": "/spec/image"});
        let arguments = json!({"containerName": "c", "operator": "add", "value": ["-v"]});
        let images = &("imageOverrider", image);
        let (at_a_path, args) = (&("imageOverrider", placed), &("argsOverrider", arguments));
        for (kinds, (field, change), expected) in [
            (&["CronJob"][..], images, Some("CronJob")),
            (&["CronJob"], at_a_path, None),
            (&["CronJob"], args, Some("CronJob")),
            (&["Job", "CronJob"], images, Some("CronJob")),
            (&["Widget"], images, Some("Widget")),
            (&["Job", "Widget"], images, None),
            (&["Deployment"], images, None),
            (&[], images, None),
        ] {
            let selectors = kinds
                .iter()
                .map(|it| json!({"apiVersion": "v1", "kind": it}));
            let selectors: Vec<_> = selectors.collect();
            let rules = [json!({"overriders": {(*field): [change]}})];
            let spec = json!({"resourceSelectors": selectors, "overrideRules": rules});
            let reported = idle_changes(&serde_json::from_value(spec).unwrap());
            let expected = expected.map(|idle| {
                format!("spec.overrideRules[0].overriders.{field}: changes nothing of {idle}, ")
            });
            let is_reported = expected.iter().all(|it| reported[0].starts_with(it));
            assert!(
                is_reported && reported.len() == expected.iter().len(),
                "{kinds:?}: {reported:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn override_policies_that_change_nothing_anywhere_are_reported() {
        let mut bench = Bench::new([
            ("clusters", cluster("m1")),
            ("deployments", deployment(2)),
            ("resourcebindings", binding()),
        ]);
        bench.api.serve_deployments();
        start(&bench.fleet, &mut bench.tasks);
        bench.fleet.follow_templates();
        let policy = |name: &str, version: &str, clusters: &[&str]| -> Value {
            let selector = json!({"apiVersion": version, "kind": "Deployment", "name": "web"});
            let rule = json!({"targetCluster": {"clusterNames": clusters}, "overriders": {}});
            json!({
                "metadata": {"namespace": "shop", "name": name, "uid": name},
                "spec": {"resourceSelectors": [selector], "overrideRules": [rule]},
            })
        };
        bench
            .api
            .put("overridepolicies", policy("old", "apps/v2", &["m1"]));
        bench.follow_for(5).await;
        let policies = [
            policy("sound", "apps/v1", &["m1"]),
            policy("of-another-version", "apps/v2", &["m1"]),
            policy("for-no-cluster", "apps/v1", &["m9"]),
            policy("for-one-of-two-clusters", "apps/v1", &["m1", "m9"]),
        ];
        for policy in policies {
            bench.api.put("overridepolicies", policy);
        }
        pass(60).await;
        let mut reported = bench.api.events().await;
        reported.sort();
        let reported: Vec<_> = reported
            .iter()
            .map(|(name, reason, note)| (name.as_str(), reason.as_str(), note.as_str()))
            .collect();
        let expected = [
            (
                "for-no-cluster",
                "NothingSelected",
                "spec.overrideRules[0].targetCluster: selects no cluster of the fleet",
            ),
            (
                "for-one-of-two-clusters",
                "UnknownCluster",
                "spec.overrideRules[0].targetCluster: names clusters that are not in the fleet: m9",
            ),
            (
                "of-another-version",
                "NothingSelected",
                "spec.resourceSelectors[0]: selects no Deployment of apps/v2 that is propagated",
            ),
        ];
        assert_eq!(reported, expected);
    }
}
