//! What copies of a workload still need although its template does not refer to it any more.
//!
//! A template is edited at once, and its pods are replaced one after the other: those of the former
//! template cannot start again without the ConfigMap that they were made with. Copies that are not
//! updated at all (dispatching to their cluster is suspended, or they wait for their replacement in
//! another one) need it for as long as they are there. (Karmada removes it at once.)

use std::collections::HashMap;

use muster_interpreter::Dependency;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::k8s::RawExtension;
use muster_shared::queue::Next;
use serde_json::Value;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::works::{CachedWork, cluster_of, means};
use crate::propagation::detector::controller::LATER;

/// Field of a reported status: the generation of the template that the copy was made from.
const OF_TEMPLATE: &str = "resourceTemplateGeneration";

/// Kinds whose reports leave out a number of updated pods that is 0. A report on another kind that
/// lacks that number counts no such pods: a `ReplicaSet` replaces none.
const LEAVE_OUT_ZERO: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// Former dependencies of a workload that are kept at most. A cluster that is offline for weeks has
/// a copy that is behind all the time, and each edit may be of another `ConfigMap`.
const MOST: usize = 200;

/// Returns the dependencies that are not among others. Both may be very many.
pub(super) fn without(mut former: Vec<Dependency>, needs: &[Dependency]) -> Vec<Dependency> {
    let mut needed: HashMap<_, Vec<&Dependency>> = HashMap::new();
    for need in needs {
        needed.entry(place(need)).or_default().push(need);
    }
    former.retain(|it| {
        let same = needed.get(&place(it));
        same.is_none_or(|same| !same.contains(&it))
    });
    former
}

/// Returns what a dependency says beside labels.
fn place(it: &Dependency) -> (&str, &str, Option<&str>, Option<&str>) {
    let (namespace, name) = (it.namespace.as_deref(), it.name.as_deref());
    (&it.api_version, &it.kind, namespace, name)
}

/// Returns what a workload needed before its template had this generation, as long as a copy of it
/// may have pods that were made before, and when that is to be found out again: of a copy that is
/// not seen nobody reports that it is gone.
pub(super) async fn still_needed(
    fleet: &Fleet,
    (key, spec): (&BindingKey, &ResourceBindingSpec),
    generation: i64,
    former: Vec<Dependency>,
) -> Result<(Vec<Dependency>, Next), ApiError> {
    // To read what the Works report is dear, and mostly no template refers to less than before.
    if former.is_empty() {
        return Ok((former, Next::Done));
    }
    let works = fleet.work_index.of(key);
    if works.iter().any(|it| is_behind(it, spec, generation)) {
        return Ok((first_and_last(former), Next::Done));
    }
    // A list may lack a Work that is there.
    let unseen = fleet.unseen_works.read(fleet, key).await?;
    Ok(if unseen.is_empty() {
        (Vec::new(), Next::Done)
    } else {
        (first_and_last(former), Next::After(LATER))
    })
}

/// Leaves out the middle ones of very many former dependencies, which come in order, the last ones
/// first. A copy that is being updated needs what was needed last, and one that is not updated for
/// long what was needed when it was.
fn first_and_last(mut former: Vec<Dependency>) -> Vec<Dependency> {
    if former.len() > MOST {
        former.drain(MOST / 2..former.len() - MOST / 2);
    }
    former
}

/// Returns whether the copy of a Work may have pods that were made before its template had this
/// generation. A copy of a kind that does not report generations is taken for one that has none, as
/// far as its Work is updated.
fn is_behind(work: &CachedWork, spec: &ResourceBindingSpec, generation: i64) -> bool {
    let Some(cluster) = cluster_of(work) else {
        return false;
    };
    let reports = work.status().manifest_statuses.into_iter();
    let mut own = reports.filter(|it| means(&it.identifier, &spec.resource));
    let status = own.next().and_then(|it| it.status);
    match status {
        Some(RawExtension(status)) if status[OF_TEMPLATE].is_i64() => {
            !is_replaced(&spec.resource.kind, &status, generation)
        }
        Some(RawExtension(status)) if runs_jobs(&spec.resource.kind, &status) => true,
        _ => {
            let is_suspended =
                work.suspend_dispatching == Some(true) || spec.dispatching_suspended_in(cluster);
            is_suspended || spec.target(cluster).is_none()
        }
    }
}

/// Returns whether a status is that of a `CronJob`, or of Kruise's, with Jobs that run. It does not
/// say of which template they are.
fn runs_jobs(kind: &str, status: &Value) -> bool {
    let active = status["active"].as_array();
    ["CronJob", "AdvancedCronJob"].contains(&kind) && active.is_some_and(|it| !it.is_empty())
}

/// Returns whether a status says that all pods of a copy are made from this generation of its
/// template, or a later one, as far as copies of the kind count them.
fn is_replaced(kind: &str, status: &Value, generation: i64) -> bool {
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let is_counted = |key: &str| !status[key].is_null() || LEAVE_OUT_ZERO.contains(&kind);
    // Some agents do not report what was observed.
    let is_observed = status["observedGeneration"]
        .as_i64()
        .is_none_or(|observed| observed >= count("generation"));
    let pods = [
        ("replicas", "updatedReplicas"),
        ("currentNumberScheduled", "updatedNumberScheduled"),
    ];
    count(OF_TEMPLATE) >= generation
        && is_observed
        && pods
            .iter()
            .all(|(all, updated)| count(updated) >= count(all) || !is_counted(updated))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{binding, work};

    /// Returns the Work of the Deployment in m1 with a report of its status.
    fn reported(status: &Value) -> Value {
        let mut work = work("m1", "Healthy");
        work["status"]["manifestStatuses"][0]["status"] = status.clone();
        work
    }

    fn is_left_behind(work: Value, spec: Value) -> bool {
        let work: CachedWork = serde_json::from_value(work).unwrap();
        is_behind(&work, &serde_json::from_value(spec).unwrap(), 2)
    }

    #[test]
    fn what_is_needed_as_before_is_nothing_that_was_needed_before_alone() {
        let dependency = |kind: &str, name: Option<&str>, label: Option<&str>| Dependency {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("shop".to_owned()),
            name: name.map(str::to_owned),
            label_selector: label
                .map(|app| serde_json::from_value(json!({"matchLabels": {"app": app}})).unwrap()),
        };
        let map = |name: &str| dependency("ConfigMap", Some(name), None);
        let chosen = |app: &str| dependency("ConfigMap", None, Some(app));
        let secret = dependency("Secret", Some("a"), None);
        let former = vec![
            map("a"),
            map("b"),
            chosen("web"),
            chosen("db"),
            secret.clone(),
        ];
        let needs = [map("c"), map("a"), chosen("db")];
        let expected = [map("b"), chosen("web"), secret];
        assert_eq!(without(former, &needs), expected);
    }

    #[test]
    fn of_very_many_former_dependencies_the_first_and_the_last_ones_are_kept() {
        let named = |at: usize| Dependency {
            name: Some(at.to_string()),
            ..Dependency::default()
        };
        for count in [0, 1, MOST, MOST + 1, MOST * 5] {
            let kept = first_and_last((0..count).map(named).collect());
            assert_eq!(kept.len(), count.min(MOST));
            assert_eq!(kept.first(), (count > 0).then(|| named(0)).as_ref());
            let last = count.checked_sub(1).map(named);
            assert_eq!(kept.last(), last.as_ref());
        }
    }

    #[test]
    fn pods_of_the_former_template_may_be_there_until_all_are_replaced() {
        let (all, old) = (
            ["replicas", "updatedReplicas"],
            ["replicas", "readyReplicas"],
        );
        let (nowhere, daemons) = ("readyReplicas", "currentNumberScheduled");
        for (what, template, observed, counters, expected) in [
            ("not updated", 1, 3, all, true),
            ("not observed", 2, 2, all, true),
            ("rolling", 2, 3, old, true),
            ("replaced", 2, 3, all, false),
            ("newer", 3, 3, all, false),
            ("nowhere", 2, 3, [nowhere, "updatedReplicas"], false),
            ("old daemons", 2, 3, [daemons, "numberReady"], true),
            (
                "new daemons",
                2,
                3,
                [daemons, "updatedNumberScheduled"],
                false,
            ),
        ] {
            let status = json!({
                "resourceTemplateGeneration": template, "generation": 3,
                "observedGeneration": observed, (counters[0]): 2, (counters[1]): 2,
            });
            let spec = binding()["spec"].take();
            assert_eq!(is_left_behind(reported(&status), spec), expected, "{what}");
        }
    }

    #[test]
    fn a_kind_that_counts_no_updated_pods_needs_nothing_of_a_template_that_is_observed() {
        let rolling = json!({"updatedReplicas": 0});
        let silent = json!({});
        for (kind, counter, observed, expected) in [
            ("ReplicaSet", &silent, 3, true),
            ("ReplicaSet", &silent, 2, false),
            ("CloneSet", &rolling, 3, false),
            ("StatefulSet", &silent, 3, false),
        ] {
            let mut status = json!({
                "resourceTemplateGeneration": 2, "generation": 3, "observedGeneration": observed,
                "replicas": 2,
            });
            muster_shared::merge::apply(&mut status, counter);
            let is_over = is_replaced(kind, &status, 2);
            assert_eq!(is_over, expected, "{kind} {counter} {observed}");
        }
    }

    #[test]
    fn jobs_that_run_may_be_of_the_former_template_of_their_cron_job() {
        let active = json!({"active": [{"kind": "Job", "name": "web-1"}]});
        for (kind, status, expected) in [
            ("CronJob", &active, true),
            ("AdvancedCronJob", &active, true),
            ("CronJob", &json!({"active": []}), false),
            (
                "CronJob",
                &json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}),
                false,
            ),
            ("Workflow", &active, false),
        ] {
            let mut work = reported(status);
            work["status"]["manifestStatuses"][0]["identifier"]["kind"] = json!(kind);
            let mut spec = binding()["spec"].take();
            spec["resource"]["kind"] = json!(kind);
            assert_eq!(is_left_behind(work, spec), expected, "{kind} {status}");
        }
    }

    #[test]
    fn a_copy_that_reports_no_generation_may_be_old_where_it_is_not_updated() {
        let plain = json!({"replicas": 2});
        let suspended = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
        let elsewhere = json!([{"name": "m2", "replicas": 2}]);
        for (what, field, value, expected) in [
            ("a target", "propagateDeps", json!(true), false),
            ("suspended", "suspension", suspended, true),
            ("an old copy", "clusters", elsewhere, true),
        ] {
            let mut spec = binding()["spec"].take();
            spec[field] = value;
            assert_eq!(is_left_behind(reported(&plain), spec), expected, "{what}");
        }
        let mut work = reported(&plain);
        work["spec"] = json!({"suspendDispatching": true});
        assert!(is_left_behind(work, binding()["spec"].take()));
    }
}
