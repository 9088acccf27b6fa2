//! Shows what the members report of a resource on its template.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_interpreter::{Operation, acceptable_status, reported_status};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{AggregatedStatusItem, ResourceBindingSpec, ResourceHealth};
use muster_shared::events::EventType;
use muster_shared::k8s::ObjectMeta;
use muster_shared::merge;
use muster_shared::queue::Next;
use serde_json::{Value, json};

use super::controller::{Error, Memory, STEP};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::completion::{held, undone};
use crate::fleet::selection::given;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::fleet::works::CachedWork;
use crate::fleet::write::{Written, merge_status};

/// Time after which a template is tried again where as many others of its kind are being written
/// as may be.
const CROWDED: Duration = Duration::from_millis(500);

/// Statuses that are shown on a template, and what they are shown by.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    /// The reports of all clusters that have a copy.
    pub(super) items: &'a [AggregatedStatusItem],
    /// The clusters among them that keep an old copy beside the targets. It stays as it was before
    /// the template was last edited, so that it does not hold back the observed generation, and it
    /// counts as long as not every target is healthy.
    pub(super) kept: &'a BTreeSet<String>,
    /// The binding.
    pub(super) spec: &'a ResourceBindingSpec,
    /// The Works of the binding.
    pub(super) works: &'a [Arc<CachedWork>],
}

/// Shows the members' statuses on the template, as if its own controllers had written them.
pub(super) async fn reflect(
    fleet: &Fleet,
    client: &Client,
    memory: &Memory,
    binding: &BindingKey,
    (key, uid): (&TemplateKey, Option<&str>),
    shown: Shown<'_>,
) -> Result<Next, Error> {
    let (interpreters, operation) = (&fleet.interpreters, Operation::AggregateStatus);
    if !interpreters.has(&key.kind.api_version, &key.kind.kind, operation) {
        return Ok(Next::Done);
    }
    let template = match fleet.templates.get(key) {
        Lookup::Found(template) => template,
        Lookup::Absent => return Ok(Next::Done),
        Lookup::Unknown => return Ok(memory.parked.wait(&key.kind, binding.clone())),
    };
    if !is_meant(uid, template.metadata().uid.as_deref()) {
        return Ok(Next::Done);
    }
    // Of a state that was replaced only a part of the difference would be written.
    let seen = template.metadata();
    memory.shown.observe(binding, seen);
    if let Some(pause) = memory.shown.pause(binding, seen) {
        return Ok(Next::After(pause));
    }
    let template = template.object(&key.kind);
    let with_undone = with_undone(&shown, &template);
    let Shown { items, kept, .. } = shown;
    let items = with_undone.as_deref().unwrap_or(items);
    let now = fleet.clock.now();
    let asking = interpreters.accepting_late();
    let is_kept = |it: &&AggregatedStatusItem| kept.contains(&it.cluster_name);
    let placed = || -> Vec<_> { items.iter().filter(|it| !is_kept(it)).cloned().collect() };
    let placed = (!kept.is_empty()).then(placed);
    let judged = placed.as_ref().and_then(|placed| {
        let judged = asking.aggregate_status(&template, placed, now).ok()??;
        judged.get("observedGeneration").cloned()
    });
    let is_healthy = |it: &AggregatedStatusItem| it.health == Some(ResourceHealth::Healthy);
    let is_replaced = |placed: &&Vec<_>| judged.is_some() && placed.iter().all(is_healthy);
    let items = placed.as_ref().filter(is_replaced).map_or(items, |it| it);
    let aggregated = asking.aggregate_status(&template, items, now);
    if let Some(pending) = asking.late() {
        memory.parked.wakes(pending, binding);
    }
    let mut wanted = match aggregated {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return Ok(Next::Done),
        Err(error) if memory.parked.waits(&error, binding) => return Ok(Next::Done),
        Err(error) => return Err(error.into()),
    };
    if let Some(generation) = judged {
        wanted["observedGeneration"] = generation;
    }
    let wanted = acceptable_status(&template, wanted, now);
    let kind = (&*key.kind.api_version, &*key.kind.kind);
    // A script of the user's says itself what is to be read.
    let wanted = if interpreters.is_native(kind, operation) {
        // An old copy that is kept runs for the new one until that reports.
        let wanted = if kept.is_empty() {
            observed_by_all(wanted, items)
        } else {
            wanted
        };
        reported_status(&template, wanted, items, now)
    } else {
        wanted
    };
    let held = template.get("status").cloned().unwrap_or_else(|| json!({}));
    let Some(difference) = merge::difference(&held, &wanted) else {
        memory.patches.forget(binding);
        return Ok(Next::Done);
    };
    let version = template["metadata"]["resourceVersion"].as_str();
    if memory.patches.is_repeated(binding, version, &difference) || !fleet.leadership.is_current() {
        return Ok(Next::Done);
    }
    // For this object, and none that takes its name meanwhile, in the state that it was seen in.
    let uid = &template["metadata"]["uid"];
    let patch = json!({
        "metadata": { "uid": uid, "resourceVersion": version }, "status": &difference,
    });
    write(fleet, client, memory, binding, (key, seen), patch).await
}

async fn write(
    fleet: &Fleet,
    client: &Client,
    memory: &Memory,
    binding: &BindingKey,
    (key, seen): (&TemplateKey, &ObjectMeta),
    patch: Value,
) -> Result<Next, Error> {
    let Some(api) = fleet.templates.api(key, client) else {
        return Ok(memory.parked.wait(&key.kind, binding.clone()));
    };
    if let Some(rest) = memory.unserved.rest(binding) {
        return Ok(Next::After(rest));
    }
    let Some(_place) = memory.places.take(&key.kind) else {
        return Ok(Next::After(CROWDED));
    };
    let (version, difference) = (seen.resource_version.as_deref(), &patch["status"]);
    let answer = merge_status(&api, &key.name, &patch).await;
    let written = Written::of(answer).map_err(ApiError::of(STEP, key))?;
    memory.unserved.forget(binding);
    match written {
        Written::Done(after) => {
            memory.patches.record(binding.clone(), version, difference);
            memory
                .shown
                .written(binding.clone(), seen, after.metadata(), ());
            Ok(Next::Done)
        }
        Written::Overtaken => {
            memory.shown.conflicted(binding.clone(), seen);
            Ok(Next::Again)
        }
        // It is gone, or its kind has no status to write.
        Written::Gone => {
            let binding = binding.clone();
            memory.patches.record_refused(binding, version, difference);
            Ok(Next::Done)
        }
    }
}

/// Returns whether a template is the one that its binding names, by their uids; where one of them
/// has none, the name decides. What members say of a former template is not shown on the one that
/// has its name now: a Job would count as ended before it begins, and that cannot be taken back.
fn is_meant(named: Option<&str>, template: Option<&str>) -> bool {
    let uids = given(named).zip(template);
    uids.is_none_or(|(named, template)| named == template)
}

/// Reports that the status of a template is not shown.
pub(super) fn report_failure(
    fleet: &Fleet,
    binding: &AnyBinding,
    template: &TemplateKey,
    error: &Error,
) {
    let note = format!("the status of {template} is not shown: {error}");
    let reason = "AggregateStatusFailed";
    fleet.publish(binding, EventType::Warning, reason, note);
}

/// Returns whether a template has anything in its status; `None`: that cannot be read yet.
pub(super) fn is_reported(fleet: &Fleet, key: &TemplateKey) -> Option<bool> {
    match fleet.templates.get(key) {
        Lookup::Found(template) => {
            let object = template.object(&key.kind);
            let status = object["status"].as_object();
            Some(status.is_some_and(|it| !it.is_empty()))
        }
        Lookup::Absent => Some(false),
        Lookup::Unknown => None,
    }
}

/// Returns the reports, and one that says nothing for each cluster that is to have the resource and
/// does not report. What is not everywhere yet is not complete.
pub(super) fn with_silent(
    expected: &BTreeSet<String>,
    items: &[AggregatedStatusItem],
) -> Vec<AggregatedStatusItem> {
    let reporting: BTreeSet<&str> = items.iter().map(|it| &*it.cluster_name).collect();
    let silent = expected
        .iter()
        .filter(|it| !reporting.contains(it.as_str()));
    let silent = silent.map(|name| AggregatedStatusItem {
        cluster_name: name.clone(),
        ..AggregatedStatusItem::default()
    });
    items.iter().cloned().chain(silent).collect()
}

/// Returns the wanted status of a template without the generation that was observed, if a cluster
/// that is to have it reports nothing: one that joined after the others had observed it has not.
fn observed_by_all(mut wanted: Value, items: &[AggregatedStatusItem]) -> Value {
    let is_silent =
        |it: &AggregatedStatusItem| it.status.as_ref().is_none_or(|status| status.0.is_null());
    if items.iter().any(is_silent)
        && let Some(fields) = wanted.as_object_mut()
    {
        fields.remove("observedGeneration");
    }
    wanted
}

/// Returns the reports, and one that says nothing if a part of a divided Job runs nowhere: each
/// cluster completes its own part only.
fn with_undone(shown: &Shown<'_>, template: &Value) -> Option<Vec<AggregatedStatusItem>> {
    undone(
        shown.spec,
        template,
        &held(shown.works.iter().map(AsRef::as_ref)),
        shown.items,
    )?;
    let nowhere = AggregatedStatusItem::default();
    Some(shown.items.iter().cloned().chain([nowhere]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_complete_when_each_cluster_that_is_to_have_it_says_so() {
        let template = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 2}});
        let complete =
            json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        let item: AggregatedStatusItem =
            serde_json::from_value(json!({"clusterName": "m1", "status": complete})).unwrap();
        for (expected, is_complete) in [(&["m1"][..], true), (&["m1", "m3"], false)] {
            let expected = expected.iter().map(|it| (*it).to_owned()).collect();
            let shown = with_silent(&expected, std::slice::from_ref(&item));
            let found = completes(&template, &shown);
            assert_eq!(found, is_complete, "{expected:?}");
        }
    }

    /// Returns whether a Job with this template is complete by these reports.
    fn completes(template: &Value, items: &[AggregatedStatusItem]) -> bool {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let status = muster_interpreter::aggregate_status(template, items, now);
        status.unwrap().unwrap()["conditions"].is_array()
    }

    /// Returns the Work of a part of a Job.
    fn part((cluster, share): (&str, u64)) -> Arc<CachedWork> {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": share},
        });
        let namespace = muster_shared::names::execution_namespace(cluster);
        let work = json!({
            "metadata": {"namespace": namespace, "name": "sum"},
            "spec": {"workload": {"manifests": [job]}},
        });
        Arc::new(serde_json::from_value(work).unwrap())
    }

    #[test]
    fn a_job_is_not_complete_whose_share_of_a_cluster_that_left_was_done_by_nobody() {
        let template = json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 40, "parallelism": 3},
        });
        let complete = |cluster: &str| -> AggregatedStatusItem {
            let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
            serde_json::from_value(json!({"clusterName": cluster, "status": status})).unwrap()
        };
        for (kind, shares, expected) in [
            ("Divided", &[("m1", 27), ("m2", 13)][..], true),
            ("Divided", &[("m2", 13)], false),
            ("Divided", &[("m2", 40)], true),
            ("Duplicated", &[("m2", 13)], true),
        ] {
            let names = shares
                .iter()
                .map(|(name, _)| json!({"name": name, "replicas": 1}));
            let spec: ResourceBindingSpec = serde_json::from_value(json!({
                "replicas": 3, "clusters": names.collect::<Vec<_>>(),
                "placement": {"replicaScheduling": {"replicaSchedulingType": kind}},
            }))
            .unwrap();
            let works: Vec<_> = shares.iter().copied().map(part).collect();
            let items: Vec<_> = shares.iter().map(|(name, _)| complete(name)).collect();
            let shown = Shown {
                items: &items,
                kept: &BTreeSet::new(),
                spec: &spec,
                works: &works,
            };
            let items = with_undone(&shown, &template).unwrap_or_else(|| items.clone());
            let is_complete = completes(&template, &items);
            assert_eq!(is_complete, expected, "{kind} {shares:?}");
        }
    }

    #[test]
    fn a_job_is_complete_whose_old_copy_has_done_what_no_target_was_given() {
        let template = json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 40, "parallelism": 3},
        });
        let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        // The Job left `m1` while it ran there, and nobody but `m2`, with its own part, took it.
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "sum"},
            "replicas": 3, "clusters": [{"name": "m2", "replicas": 3}],
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "gracefulEvictionTasks": [{"fromCluster": "m1", "reason": "r", "producer": "p"}],
        }))
        .unwrap();
        let works = [("m1", 27), ("m2", 13)].map(part);
        for (old, expected) in [(json!({"active": 2}), false), (done.clone(), true)] {
            let items: Vec<AggregatedStatusItem> = serde_json::from_value(json!([
                {"clusterName": "m1", "status": old}, {"clusterName": "m2", "status": done},
            ]))
            .unwrap();
            let shown = Shown {
                items: &items,
                kept: &BTreeSet::from(["m1".to_owned()]),
                spec: &spec,
                works: &works,
            };
            let items = with_undone(&shown, &template).unwrap_or_else(|| items.clone());
            assert_eq!(completes(&template, &items), expected, "{old}");
        }
    }

    #[test]
    fn a_status_is_shown_on_the_template_that_the_binding_names_and_on_no_later_one() {
        for (named, template, expected) in [
            (Some("u"), Some("u"), true),
            (Some("former"), Some("u"), false),
            (Some(""), Some("u"), true),
            (None, Some("u"), true),
            (Some("u"), None, true),
        ] {
            assert_eq!(
                is_meant(named, template),
                expected,
                "{named:?} {template:?}"
            );
        }
    }
}
