//! Kinds whose objects run to an end, and how their status says that it has come.
//!
//! An object of such a kind that has finished is no state to be kept: wherever it is made again, it
//! runs again. Bare pods are not among them, because their status alone does not say it.

use serde_json::{Value, json};

use crate::names::api_group;

/// End of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish<'a> {
    /// The task has done what it was to do, or certainly will.
    Succeeded,
    /// The task has failed and is not tried again. Holds the time of that, if its status says it.
    Failed(Option<&'a str>),
}

/// Kinds of an API group whose objects run to an end.
struct Tasks {
    group: &'static str,
    kinds: &'static [&'static str],
    /// Words for success, and for a failure that is the end. Success counts before failure.
    succeeded: Words,
    failed: Words,
}

/// Words of a status: values of a field, or types of conditions that are True. A type with `=` has
/// the status behind that.
#[derive(Clone, Copy)]
struct Words(&'static str, &'static [&'static str]);

const CONDITIONS: &str = "/conditions";

const FAILED: Words = Words(CONDITIONS, &["Failed"]);

/// Fields with the time of the end, of kinds whose status is no condition: Workflow of Argo, Job of
/// Volcano, RayJob and SparkApplication.
const ENDS: [&str; 4] = [
    "/finishedAt",
    "/state/lastTransitionTime",
    "/endTime",
    "/terminationTime",
];

/// Condition of the jobs of Kubeflow that run. Putting together those of several clusters keeps it
/// beside the success of one.
const RUNNING: &str = "Running";

/// Kinds by group, in whatever version.
///
/// A Workflow of Argo is over when it is in error, too. The application of Spark is tried again
/// from `FAILING` and `SUBMISSION_FAILED`, the job of Volcano may go on from `Aborted`, and that of
/// Ray is deployed again from `Retrying`.
static TASKS: [Tasks; 10] = [
    // `SuccessCriteriaMet` comes first, and `Complete` when the last pods have ended (KEP-3998).
    Tasks {
        group: "batch",
        kinds: &["Job"],
        succeeded: Words(CONDITIONS, &["Complete", "SuccessCriteriaMet"]),
        failed: FAILED,
    },
    // The aggregated condition of several clusters has the longer name.
    Tasks {
        group: "apps.kruise.io",
        kinds: &["BroadcastJob"],
        succeeded: Words(CONDITIONS, &["Complete", "Completed"]),
        failed: FAILED,
    },
    Tasks {
        group: "argoproj.io",
        kinds: &["Workflow"],
        succeeded: Words("/phase", &["Succeeded"]),
        failed: Words("/phase", &["Failed", "Error"]),
    },
    Tasks {
        group: "batch.volcano.sh",
        kinds: &["Job"],
        succeeded: Words("/state/phase", &["Completed"]),
        failed: Words("/state/phase", &["Failed", "Terminated"]),
    },
    Tasks {
        group: "jobset.x-k8s.io",
        kinds: &["JobSet"],
        succeeded: Words(CONDITIONS, &["Completed"]),
        failed: FAILED,
    },
    Tasks {
        group: "kubeflow.org",
        kinds: &[
            "JAXJob",
            "MPIJob",
            "PaddleJob",
            "PyTorchJob",
            "TFJob",
            "XGBoostJob",
        ],
        succeeded: Words(CONDITIONS, &["Succeeded"]),
        failed: FAILED,
    },
    Tasks {
        group: "ray.io",
        kinds: &["RayJob"],
        succeeded: Words("/jobStatus", &["SUCCEEDED"]),
        failed: Words("/jobDeploymentStatus", &["Complete", "Failed"]),
    },
    Tasks {
        group: "sparkoperator.k8s.io",
        kinds: &["SparkApplication"],
        succeeded: Words("/applicationState/state", &["COMPLETED"]),
        failed: Words("/applicationState/state", &["FAILED"]),
    },
    // The condition is Unknown for as long as it runs, and while it is tried again.
    Tasks {
        group: "tekton.dev",
        kinds: &["PipelineRun", "TaskRun"],
        succeeded: Words(CONDITIONS, &["Succeeded"]),
        failed: Words(CONDITIONS, &["Succeeded=False"]),
    },
    Tasks {
        group: "trainer.kubeflow.org",
        kinds: &["TrainJob"],
        succeeded: Words(CONDITIONS, &["Complete"]),
        failed: FAILED,
    },
];

/// Returns whether objects of a kind run to an end, other than bare pods.
pub fn is_task(api_version: &str, kind: &str) -> bool {
    tasks(api_version, kind).is_some()
}

/// Returns how the task of an object of a kind has ended, as its status says; `None` if it runs, or
/// the kind has no end.
pub fn finish<'a>(api_version: &str, kind: &str, status: &'a Value) -> Option<Finish<'a>> {
    let tasks = tasks(api_version, kind)?;
    if tasks.succeeded.found(status).is_some() {
        Some(Finish::Succeeded)
    } else {
        let said = tasks.failed.found(status)?;
        let at = match said {
            Value::Object(condition) => condition.get("lastTransitionTime"),
            _ => ENDS.iter().find_map(|it| status.pointer(it)),
        };
        Some(Finish::Failed(at.and_then(Value::as_str)))
    }
}

/// Returns the part of a status by which [`finish`] knows the end of a task; `None` if it has not
/// ended.
pub fn brief(api_version: &str, kind: &str, status: &Value) -> Option<Value> {
    let tasks = tasks(api_version, kind)?;
    let words = [tasks.succeeded, tasks.failed];
    let (Words(at, _), said) = words
        .into_iter()
        .find_map(|words| Some((words, words.found(status)?)))?;
    let said = match at {
        CONDITIONS => json!([said]),
        _ => said.clone(),
    };
    let fields = at.trim_start_matches('/').rsplit('/');
    Some(fields.fold(said, |it, field| json!({ field: it })))
}

fn tasks(api_version: &str, kind: &str) -> Option<&'static Tasks> {
    let group = api_group(api_version);
    TASKS
        .iter()
        .find(|it| it.group == group && it.kinds.contains(&kind))
}

impl Words {
    /// Returns what says one of the words: the value of the field, or the condition.
    fn found(self, status: &Value) -> Option<&Value> {
        let Self(at, words) = self;
        let said = status.pointer(at)?;
        if at != CONDITIONS {
            return said
                .as_str()
                .is_some_and(|it| words.contains(&it))
                .then_some(said);
        }
        let conditions = said.as_array()?;
        let says = |condition: &Value, word: &str| {
            let (kind, status) = word.split_once('=').unwrap_or((word, "True"));
            condition["type"] == kind && condition["status"] == status
        };
        let of = |words: &[&str]| {
            let mut conditions = conditions.iter();
            conditions.find(|it| words.iter().any(|word| says(it, word)))
        };
        of(words).filter(|_| of(&[RUNNING]).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(all: &[(&str, &str)]) -> Value {
        let all = all.iter();
        let all = all.map(|(kind, status)| json!({ "type": kind, "status": status }));
        json!({ "conditions": all.collect::<Vec<_>>() })
    }

    #[test]
    fn a_task_has_ended_as_the_controller_of_its_kind_says() {
        let is = |kind: &str| conditions(&[(kind, "True")]);
        let (yes, no, open) = (Some(true), Some(false), None);
        let succeeded = conditions(&[
            ("Created", "True"),
            ("Running", "False"),
            ("Succeeded", "True"),
        ]);
        let of_two_clusters = conditions(&[("Running", "True"), ("Succeeded", "True")]);
        let not_yet = |kind: &str| conditions(&[(kind, "Unknown")]);
        let denied = |kind: &str| conditions(&[(kind, "False")]);
        let phase = |phase: &str| json!({ "phase": phase });
        let state = |state: &str| json!({ "applicationState": { "state": state } });
        let phase_of = |phase: &str| json!({ "state": { "phase": phase } });
        let ray = |job: &str, all: &str| json!({ "jobStatus": job, "jobDeploymentStatus": all });
        let job_set = "jobset.x-k8s.io/v1alpha2 JobSet";
        let spark = "sparkoperator.k8s.io/v1beta2 SparkApplication";
        let volcano = "batch.volcano.sh/v1alpha1 Job";
        let workflow = "argoproj.io/v1alpha1 Workflow";
        for (kind, status, expected) in [
            ("batch/v1 Job", is("Complete"), yes),
            ("batch/v1 Job", is("SuccessCriteriaMet"), yes),
            ("batch/v1 Job", is("Failed"), no),
            ("batch/v1 Job", is("FailureTarget"), open),
            ("batch/v1 Job", not_yet("Complete"), open),
            ("batch/v1 CronJob", is("Complete"), open),
            ("apps.kruise.io/v1alpha1 BroadcastJob", is("Complete"), yes),
            ("apps.kruise.io/v1beta1 BroadcastJob", is("Failed"), no),
            (workflow, phase("Succeeded"), yes),
            (workflow, phase("Error"), no),
            (workflow, phase("Running"), open),
            ("argoproj.io/v1alpha1 Rollout", phase("Succeeded"), open),
            (volcano, phase_of("Completed"), yes),
            (volcano, phase_of("Terminated"), no),
            (volcano, phase_of("Aborted"), open),
            (volcano, is("Complete"), open),
            (job_set, is("Completed"), yes),
            (job_set, is("Failed"), no),
            (job_set, is("StartupPolicyCompleted"), open),
            ("kubeflow.org/v1 TFJob", succeeded.clone(), yes),
            ("kubeflow.org/v1 XGBoostJob", succeeded.clone(), yes),
            ("kubeflow.org/v1 PyTorchJob", is("Failed"), no),
            ("kubeflow.org/v2beta1 MPIJob", succeeded, yes),
            ("kubeflow.org/v2beta1 MPIJob", of_two_clusters, open),
            ("kubeflow.org/v1 Notebook", is("Succeeded"), open),
            ("ray.io/v1 RayJob", ray("SUCCEEDED", "Running"), yes),
            ("ray.io/v1 RayJob", ray("STOPPED", "Complete"), no),
            ("ray.io/v1 RayJob", ray("FAILED", "Failed"), no),
            ("ray.io/v1 RayJob", ray("FAILED", "Retrying"), open),
            ("ray.io/v1 RayCluster", ray("SUCCEEDED", "Complete"), open),
            (spark, state("COMPLETED"), yes),
            (spark, state("FAILED"), no),
            (spark, state("SUCCEEDING"), open),
            (spark, state("SUBMISSION_FAILED"), open),
            ("tekton.dev/v1 PipelineRun", is("Succeeded"), yes),
            ("tekton.dev/v1 TaskRun", not_yet("Succeeded"), open),
            ("tekton.dev/v1 TaskRun", denied("Succeeded"), no),
            ("kubeflow.org/v1 TFJob", denied("Succeeded"), open),
            (
                "trainer.kubeflow.org/v1alpha1 TrainJob",
                is("Complete"),
                yes,
            ),
            ("v1 Pod", phase("Succeeded"), open),
            ("apps/v1 Deployment", is("Complete"), open),
        ] {
            let (version, kind) = kind.split_once(' ').unwrap();
            let found = finish(version, kind, &status);
            let has_succeeded = found.map(|it| it == Finish::Succeeded);
            assert_eq!(has_succeeded, expected, "{version} {kind}: {status}");
            let brief = brief(version, kind, &status);
            assert_eq!(brief.is_some(), expected.is_some(), "{kind}: {status}");
            if let Some(brief) = brief {
                assert_eq!(finish(version, kind, &brief), found, "{kind}: {brief}");
            }
        }
    }

    #[test]
    fn a_task_that_has_failed_says_when_as_far_as_its_status_does() {
        let at = "2026-01-01T00:00:30Z";
        let condition = json!([{ "type": "Failed", "status": "True", "lastTransitionTime": at }]);
        let failed = json!({ "phase": "Failed", "lastTransitionTime": at });
        let spark = |end: Option<&str>| json!({ "applicationState": { "state": "FAILED" }, "terminationTime": end });
        for (kind, status, expected) in [
            ("batch/v1 Job", json!({ "conditions": condition }), Some(at)),
            ("batch/v1 Job", conditions(&[("Failed", "True")]), None),
            (
                "argoproj.io/v1alpha1 Workflow",
                json!({ "phase": "Error", "finishedAt": at }),
                Some(at),
            ),
            (
                "argoproj.io/v1alpha1 Workflow",
                json!({ "phase": "Failed" }),
                None,
            ),
            (
                "batch.volcano.sh/v1alpha1 Job",
                json!({ "state": failed }),
                Some(at),
            ),
            (
                "ray.io/v1 RayJob",
                json!({ "jobDeploymentStatus": "Failed", "endTime": at }),
                Some(at),
            ),
            (
                "sparkoperator.k8s.io/v1beta2 SparkApplication",
                spark(Some(at)),
                Some(at),
            ),
            (
                "sparkoperator.k8s.io/v1beta2 SparkApplication",
                spark(None),
                None,
            ),
        ] {
            let (version, kind) = kind.split_once(' ').unwrap();
            let found = finish(version, kind, &status);
            assert_eq!(found, Some(Finish::Failed(expected)), "{kind}: {status}");
        }
    }

    #[test]
    fn the_brief_form_of_a_status_holds_no_more_than_its_end() {
        let workflow = json!({ "phase": "Succeeded", "nodes": { "a": { "phase": "Failed" } } });
        let status = conditions(&[("Suspended", "False"), ("Failed", "True")]);
        let spark = json!({ "applicationState": { "state": "FAILED", "errorMessage": "oom" } });
        for (version, kind, status, expected) in [
            (
                "argoproj.io/v1alpha1",
                "Workflow",
                workflow,
                json!({ "phase": "Succeeded" }),
            ),
            (
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                status,
                conditions(&[("Failed", "True")]),
            ),
            (
                "sparkoperator.k8s.io/v1beta2",
                "SparkApplication",
                spark,
                json!({ "applicationState": { "state": "FAILED" } }),
            ),
        ] {
            assert_eq!(brief(version, kind, &status), Some(expected), "{kind}");
        }
    }
}
