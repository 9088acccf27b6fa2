//! Tasks that have run to their end: Jobs and tasks of other projects that are complete or have
//! failed, and bare pods that have succeeded.
//!
//! Their objects are no state to be kept. One that was reported and is then cleaned up in the
//! member is not made again, because its task would run a second time. The report says of which
//! manifest it was: another one is another task.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::terminates_since;
use super::ownership::annotation;
use muster_shared::finished::{self, Finish};
use muster_shared::names::annotation::{TEMPLATE_GENERATION, TEMPLATE_UID};
use muster_shared::work_status::COMPLETED_MANIFEST;

/// Returns whether objects of the kind of a manifest run to an end.
pub fn is_task(manifest: &Value) -> bool {
    match kind(manifest) {
        ("v1", "Pod") => {
            let policy = manifest["spec"]["restartPolicy"].as_str();
            matches!(policy, Some("Never" | "OnFailure"))
        }
        (api_version, kind) => finished::is_task(api_version, kind),
    }
}

/// Returns the API version and the kind of an object.
fn kind(object: &Value) -> (&str, &str) {
    let (api_version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    (api_version.unwrap_or_default(), kind.unwrap_or_default())
}

/// Returns whether the task of a manifest has run to its end, as its object says. A pod that has
/// failed has not: its node may have evicted it.
fn has_ended(object: &Value, manifest: &Value) -> bool {
    let (api_version, kind) = kind(manifest);
    if kind == "Pod" {
        return object["status"]["phase"] == "Succeeded" && !was_stopped(object);
    }
    match finished::finish(api_version, kind, &object["status"]) {
        Some(Finish::Succeeded) => true,
        Some(Finish::Failed(at)) => !fails_deleted(object, at),
        None => false,
    }
}

/// Returns whether a task that failed at a time, if that is known, failed while it was being
/// deleted: pods that are stopped with it, such as by a fence, may count as failed.
fn fails_deleted(task: &Value, end: Option<&str>) -> bool {
    let end: Option<Timestamp> = end.and_then(|it| it.parse().ok());
    terminates_since(task).is_some_and(|since| end.is_none_or(|end| end >= since))
}

/// Returns whether a pod has ended because somebody deleted it, such as a fence: its kubelet says
/// of one whose containers end well on that, too, that it has succeeded.
fn was_stopped(pod: &Value) -> bool {
    let Some(since) = terminates_since(pod) else {
        return false;
    };
    let containers = pod["status"]["containerStatuses"].as_array();
    let mut ends = containers.into_iter().flatten().map(|it| {
        let end = it["state"]["terminated"]["finishedAt"].as_str()?;
        end.parse::<Timestamp>().ok()
    });
    ends.any(|end| end.is_none_or(|end| end >= since))
}

/// Adds the name of the manifest to the status that is reported of an object, if it is a task that
/// has run to its end. Of a pod that was stopped it is not reported that it has.
pub fn note(status: &mut Value, object: &Value, manifest: &Value) {
    if !is_task(manifest) || !status.is_object() {
        return;
    }
    if has_ended(object, manifest) {
        status[COMPLETED_MANIFEST] = json!(name(manifest));
    } else if object["kind"] == "Pod" && status["phase"] == "Succeeded" {
        status["phase"] = json!("Failed");
    }
}

/// Returns what is reported of an object whose status is too long to be reported, if it is a task
/// that has run to its end: the part that says so.
pub fn brief(object: &Value, manifest: &Value) -> Option<Value> {
    let (api_version, kind) = kind(manifest);
    finished::brief(api_version, kind, &object["status"])
}

/// Returns whether a reported status says that the task of a manifest has run to its end.
pub fn says(status: &Value, manifest: &Value) -> bool {
    is_task(manifest) && status[COMPLETED_MANIFEST].as_str() == Some(&*name(manifest))
}

/// Names a manifest by the generation of its template and its share in the task, which a cluster
/// gets without another generation. Labels and overrides, such as that of a registry, may change
/// and are no reason to run again. One that names no template is named by its `spec`.
fn name(manifest: &Value) -> String {
    let uid = annotation(manifest, TEMPLATE_UID).unwrap_or_default();
    let spec = &manifest["spec"];
    match annotation(manifest, TEMPLATE_GENERATION) {
        Some(generation) if !uid.is_empty() => {
            let share = [&spec["completions"], &spec["parallelism"]];
            format!("{uid}/{generation}/{}/{}", share[0], share[1])
        }
        _ => format!("{uid}/{:016x}", hash(&spec.to_string())),
    }
}

/// Returns the hash of a text, which is the same in each process and version.
fn hash(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(uid: Option<&str>, completions: u32) -> Value {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"},
            "spec": {"completions": completions}});
        if let Some(uid) = uid {
            job["metadata"]["annotations"] = json!({TEMPLATE_UID: uid});
        }
        job
    }

    fn reported(manifest: &Value, status: Value) -> Value {
        let mut object = manifest.clone();
        object["status"] = status;
        let mut status = json!({"succeeded": 1});
        note(&mut status, &object, manifest);
        status
    }

    #[test]
    fn a_complete_job_is_known_until_its_template_or_its_spec_is_another_one() {
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let first = job(Some("u"), 5);
        let status = reported(&first, complete.clone());
        assert!(says(&status, &first));
        let mut relabelled = first.clone();
        relabelled["metadata"]["labels"] = json!({"policy": "other"});
        assert!(says(&status, &relabelled), "its labels are no task");
        let more = job(Some("u"), 8);
        assert!(!says(&status, &more), "it got the rest of another cluster");
        assert!(!says(&status, &job(Some("v"), 5)), "another template");
        // A Work that somebody made by hand names no template.
        let mut bare = job(None, 5);
        let status = reported(&bare, complete);
        bare["metadata"]["labels"] = json!({"policy": "other"});
        assert!(says(&status, &bare) && !says(&status, &job(None, 8)));
    }

    #[test]
    fn another_override_of_a_complete_job_is_no_other_task() {
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let made = |generation: &str, image: &str, completions: u32| {
            let mut job = job(Some("u"), completions);
            job["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(generation);
            job["spec"]["template"] = json!({"spec": {"containers": [{"image": image}]}});
            job
        };
        let status = reported(&made("1", "registry-a/sum", 5), complete);
        for (what, job, expected) in [
            ("the same", made("1", "registry-a/sum", 5), true),
            ("its registry moved", made("1", "registry-b/sum", 5), true),
            ("another share", made("1", "registry-a/sum", 8), false),
            ("an edit", made("2", "registry-a/sum", 5), false),
        ] {
            assert_eq!(says(&status, &job), expected, "{what}");
        }
    }

    #[test]
    fn a_job_that_has_failed_has_ended_unless_it_failed_because_it_was_deleted() {
        let manifest = job(Some("u"), 5);
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:30Z"});
        for (kind, status, deleted_at, expected) in [
            ("Failed", "True", None, true),
            ("Failed", "True", Some("2026-01-01T00:00:31Z"), true),
            ("Failed", "True", Some("2026-01-01T00:00:30Z"), false),
            ("Failed", "False", None, false),
            ("FailureTarget", "True", None, false),
            ("Complete", "True", Some("2026-01-01T00:00:29Z"), true),
        ] {
            let mut object = manifest.clone();
            object["metadata"]["deletionTimestamp"] = json!(deleted_at);
            object["status"] = json!({"conditions": [condition(kind, status)]});
            let mut said = json!({"failed": 1});
            note(&mut said, &object, &manifest);
            assert_eq!(
                says(&said, &manifest),
                expected,
                "{kind} {status} {deleted_at:?}"
            );
        }
    }

    #[test]
    fn a_task_of_another_project_has_ended_as_its_controller_says() {
        let failed = json!({"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"});
        let failed = json!({"conditions": [failed]});
        let succeeded = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
        let (early, late) = ("2026-01-01T00:00:29Z", "2026-01-01T00:00:31Z");
        let workflow = |phase: &str| json!({"phase": phase});
        let finished = json!({"phase": "Failed", "finishedAt": "2026-01-01T00:00:30Z"});
        for (version, kind, status, deleted_at, expected) in [
            ("kubeflow.org/v1", "TFJob", succeeded.clone(), None, true),
            ("kubeflow.org/v1", "Notebook", succeeded, None, false),
            ("kubeflow.org/v1", "TFJob", failed.clone(), None, true),
            ("kubeflow.org/v1", "TFJob", failed.clone(), Some(late), true),
            ("kubeflow.org/v1", "TFJob", failed, Some(early), false),
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                workflow("Running"),
                None,
                false,
            ),
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                workflow("Failed"),
                None,
                true,
            ),
            // It does not say when it failed.
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                workflow("Failed"),
                Some(late),
                false,
            ),
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                finished.clone(),
                Some(late),
                true,
            ),
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                finished,
                Some(early),
                false,
            ),
        ] {
            let manifest = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
            let mut object = manifest.clone();
            object["metadata"]["deletionTimestamp"] = json!(deleted_at);
            object["status"] = status;
            let mut said = object["status"].clone();
            note(&mut said, &object, &manifest);
            assert_eq!(says(&said, &manifest), expected, "{object}");
        }
    }

    #[test]
    fn what_runs_or_is_no_task_has_not_ended() {
        let manifest = job(Some("u"), 5);
        assert!(!says(&reported(&manifest, json!({"active": 1})), &manifest));
        let pod = |policy: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"restartPolicy": policy}})
        };
        for (policy, phase, expected) in [
            ("Never", "Succeeded", true),
            ("OnFailure", "Succeeded", true),
            ("Always", "Succeeded", false),
            ("Never", "Failed", false),
        ] {
            let status = reported(&pod(policy), json!({"phase": phase}));
            assert_eq!(says(&status, &pod(policy)), expected, "{policy} {phase}");
        }
    }

    #[test]
    fn a_pod_that_ends_well_because_it_is_deleted_has_not_succeeded() {
        let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"restartPolicy": "OnFailure"}});
        // The pod was deleted, as by a fence, with 30 seconds left to it at 00:00:30.
        for (end, expected) in [
            ("2026-01-01T00:00:29Z", true),
            ("2026-01-01T00:00:31Z", false),
        ] {
            let mut pod = manifest.clone();
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            let ended = json!({"exitCode": 0, "reason": "Completed", "finishedAt": end});
            pod["status"] = json!({"phase": "Succeeded", "containerStatuses": [
                {"name": "c", "state": {"terminated": ended}},
            ]});
            let mut status = pod["status"].clone();
            note(&mut status, &pod, &manifest);
            assert_eq!(says(&status, &manifest), expected, "{end}");
            // The control plane puts the phases together to that of the template, by which it
            // knows what has run to its end once no cluster reports it any more.
            assert_eq!(status["phase"] == "Succeeded", expected, "{end}");
        }
    }
}
