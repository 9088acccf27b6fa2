//! Jobs and other tasks that have completed: in another cluster they would run again. And Jobs that
//! cannot: no cluster has been given a part of their completions.

use std::collections::BTreeMap;

use muster_shared::api::binding::{
    AggregatedStatusItem, ObjectReference, ResourceBindingSpec, TargetCluster,
};
use muster_shared::api::policy::Placement;
use muster_shared::finished::{self, Finish};
use muster_shared::work_status::COMPLETED_MANIFEST;
use serde_json::Value;

use super::Fleet;
use super::template::TemplateKey;
use super::template_event::Lookup;
use super::works::{self, CachedWork, cluster_of};

/// Returns whether a resource is a Job.
pub fn is_job(resource: &ObjectReference) -> bool {
    (resource.api_version.as_str(), resource.kind.as_str()) == ("batch/v1", "Job")
}

fn is_pod(resource: &ObjectReference) -> bool {
    (resource.api_version.as_str(), resource.kind.as_str()) == ("v1", "Pod")
}

/// Returns whether a resource runs to an end, as a Job or a bare Pod does.
pub fn is_task(resource: &ObjectReference) -> bool {
    is_pod(resource) || finished::is_task(&resource.api_version, &resource.kind)
}

/// Returns how the task of a resource has ended, as a status of it says, unless it is a bare Pod.
fn finish<'a>(resource: &ObjectReference, status: &'a Value) -> Option<Finish<'a>> {
    finished::finish(&resource.api_version, &resource.kind, status)
}

/// Returns whether the status of a resource says that it is a task, as a Job or a bare Pod is, and
/// has completed.
pub fn says_completed(resource: &ObjectReference, status: &Value) -> bool {
    if is_pod(resource) {
        // A kubelet says so of any pod that ends well because it is deleted.
        status["phase"] == "Succeeded" && status[COMPLETED_MANIFEST].is_string()
    } else {
        finish(resource, status) == Some(Finish::Succeeded)
    }
}

/// Returns whether a cluster reports that the resource is a task and has completed there.
pub fn has_completed(
    resource: &ObjectReference,
    reports: &[AggregatedStatusItem],
    cluster: &str,
) -> bool {
    reports_any(reports, cluster, |status| says_completed(resource, status))
}

/// Returns whether a cluster reports that the resource has completed there, as [`has_completed`]
/// says; `None` if it reports no status of it.
pub fn completed(
    resource: &ObjectReference,
    reports: &[AggregatedStatusItem],
    cluster: &str,
) -> Option<bool> {
    let has_report = reports_any(reports, cluster, |_| true);
    has_report.then(|| has_completed(resource, reports, cluster))
}

/// Returns whether a cluster reports that the resource is a Job and has completed or failed there.
pub fn is_over_in(
    resource: &ObjectReference,
    reports: &[AggregatedStatusItem],
    cluster: &str,
) -> bool {
    let is_over = |status: &Value| finish(resource, status).is_some();
    is_job(resource) && reports_any(reports, cluster, is_over)
}

/// Returns whether each cluster that a resource is in reports that it is a task, other than a bare
/// Pod, and has completed or failed there.
pub fn has_ended_everywhere(spec: &ResourceBindingSpec, reports: &[AggregatedStatusItem]) -> bool {
    let has_ended = |status: &Value| finish(&spec.resource, status).is_some();
    let mut copies = spec.copies().peekable();
    copies.peek().is_some() && copies.all(|it| reports_any(reports, &it.name, has_ended))
}

/// Returns whether a task, other than a bare Pod, has ended in each of its clusters, and has failed
/// in one of them at least: placed anew, it would run again.
pub fn has_failed(spec: &ResourceBindingSpec, reports: &[AggregatedStatusItem]) -> bool {
    let fails = |name: &str| !has_completed(&spec.resource, reports, name);
    has_ended_everywhere(spec, reports) && spec.copies().any(|it| fails(&it.name))
}

fn reports_any(
    reports: &[AggregatedStatusItem],
    cluster: &str,
    says: impl Fn(&Value) -> bool,
) -> bool {
    let mut reports = reports.iter().filter(|it| it.cluster_name == cluster);
    reports.any(|it| it.status.as_ref().is_some_and(|status| says(&status.0)))
}

/// Kinds whose status, as Karmada puts it together of those of several clusters, says that a task
/// has completed once it has in one of them.
const SAID_BY_ONE: [&str; 2] = ["RayJob", "SparkApplication"];

/// Returns whether the status of a template is about each cluster that its task is in.
fn is_of_all(spec: &ResourceBindingSpec) -> bool {
    spec.clusters.len() <= 1 || !SAID_BY_ONE.contains(&spec.resource.kind.as_str())
}

/// Returns whether a task has completed in every cluster that it was in, by the status of its
/// template: the reports of its clusters are removed when they leave the fleet. `None` means that
/// this cannot be read yet. A template that is not seen may have been left out by a list; if it is
/// gone, garbage collection removes its binding.
pub fn has_completed_by_template(fleet: &Fleet, spec: &ResourceBindingSpec) -> Option<bool> {
    let resource = &spec.resource;
    if !is_task(resource) || !is_of_all(spec) {
        return Some(false);
    }
    let key = TemplateKey::of(resource);
    match fleet.templates.get(&key) {
        Lookup::Found(template) => {
            let is_same = template.metadata().uid == resource.uid;
            Some(is_same && is_complete(resource, &template.object(&key.kind)))
        }
        Lookup::Absent | Lookup::Unknown => None,
    }
}

/// Returns whether the status of a template says that its task has completed everywhere.
fn is_complete(resource: &ObjectReference, template: &Value) -> bool {
    if is_pod(resource) {
        let policy = template["spec"]["restartPolicy"].as_str();
        matches!(policy, Some("Never" | "OnFailure")) && template["status"]["phase"] == "Succeeded"
    } else {
        finish(resource, &template["status"]) == Some(Finish::Succeeded)
    }
}

/// Returns whether the template of a Job says that it has completed or failed.
pub fn is_over_as_a_whole(fleet: &Fleet, resource: &ObjectReference) -> bool {
    let key = TemplateKey::of(resource);
    let template = fleet.templates.get(&key);
    let is_over = |object: &Value| finish(resource, &object["status"]).is_some();
    is_job(resource) && matches!(template, Lookup::Found(it) if is_over(&it.object(&key.kind)))
}

/// Returns whether the placement of a binding divides its replicas.
fn divides(spec: &ResourceBindingSpec) -> bool {
    let placement = spec.placement.as_deref();
    placement.is_some_and(Placement::is_divided)
}

/// Returns whether a binding is that of a Job whose placement divides its replicas.
pub fn is_divided_job(spec: &ResourceBindingSpec) -> bool {
    is_job(&spec.resource) && divides(spec)
}

/// Returns the completions of a Job that its placement divides.
pub fn to_divide(spec: &ResourceBindingSpec, template: &Value) -> Option<u64> {
    let completions = template["spec"]["completions"].as_u64()?;
    (divides(spec) && works::is_job(template)).then_some(completions)
}

/// Returns the completions that the Works of a Job ask for, by cluster. An API server lets nobody
/// change those of a Job that is there.
pub fn held<'a>(works: impl IntoIterator<Item = &'a CachedWork>) -> BTreeMap<&'a str, u64> {
    let works = works.into_iter();
    works
        .filter_map(|it| Some((cluster_of(it)?, it.completions?)))
        .collect()
}

/// Returns how many completions of a Job run in no cluster, and how many it has: each cluster that
/// it is placed in has a Job of its own already, as `held` says, which takes no more of them. The
/// completions of a cluster that is being left are done where `reports` say so.
pub fn undone(
    spec: &ResourceBindingSpec,
    template: &Value,
    held: &BTreeMap<&str, u64>,
    reports: &[AggregatedStatusItem],
) -> Option<(u64, u64)> {
    let all = to_divide(spec, template)?;
    let has = |it: &TargetCluster| held.get(&*it.name).copied();
    let given: u64 = spec.clusters.iter().map(has).sum::<Option<_>>()?;
    let is_done =
        |name: &str| spec.target(name).is_none() && has_completed(&spec.resource, reports, name);
    let done = held.iter().filter(|(name, _)| is_done(name));
    let given = given.saturating_add(done.map(|(_, it)| *it).sum());
    (!spec.clusters.is_empty() && given < all).then_some((all - given, all))
}

/// Returns whether a part of the completions of a Job runs in no cluster, as its Works say.
/// Completions of a cluster that is being left count as done where `reports` say so.
pub fn is_undone<'a>(
    spec: &ResourceBindingSpec,
    template: &Value,
    works: impl IntoIterator<Item = &'a CachedWork>,
    reports: &[AggregatedStatusItem],
) -> bool {
    finish(&spec.resource, &template["status"]).is_none()
        && undone(spec, template, &held(works), reports).is_some()
}

/// Returns whether a part of the completions of a binding runs in no cluster, as [`is_undone`] says
/// of its template. `None` means that this cannot be read yet.
pub fn leaves_undone<'a>(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    works: impl IntoIterator<Item = &'a CachedWork>,
    reports: &[AggregatedStatusItem],
) -> Option<bool> {
    if !is_divided_job(spec) {
        return Some(false);
    }
    let key = TemplateKey::of(&spec.resource);
    match fleet.templates.get(&key) {
        Lookup::Found(template) => {
            Some(is_undone(spec, &template.object(&key.kind), works, reports))
        }
        // Garbage collection removes its binding.
        Lookup::Absent if fleet.templates.was_deleted(&key) => Some(false),
        // A list may have lacked it.
        Lookup::Absent | Lookup::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_of_a_template_says_nothing_of_a_cluster_that_another_may_speak_for() {
        for (kind, clusters, expected) in [
            ("RayJob", &["a"][..], true),
            ("RayJob", &["a", "b"], false),
            ("SparkApplication", &["a", "b"], false),
            ("SparkApplication", &[], true),
            ("Job", &["a", "b"], true),
        ] {
            let targets = clusters.iter().map(|it| json!({ "name": it }));
            let targets: Vec<Value> = targets.collect();
            let spec = json!({
                "resource": { "apiVersion": "a/v1", "kind": kind, "name": "sum" },
                "clusters": targets,
            });
            let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(is_of_all(&spec), expected, "{kind} {clusters:?}");
        }
    }
}
