//! Jobs: pods until so many have ended well.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use muster_shared::clock::calendar;
use muster_shared::k8s::Time;
use muster_shared::queue::Next;
use serde_json::{Value, json};

use super::{Failed, Name, Owner, World, status};
use crate::member::pods::{Key, Phase};

/// The pods of a Job by how they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    active: usize,
    ready: usize,
    succeeded: usize,
    failed: usize,
}

/// What becomes of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on with so many more pods.
    Start(usize),
    /// It goes on; so many pods are too many.
    Stop(usize),
    /// It has done its work.
    Complete,
    /// Its pods failed too often.
    Failed,
    /// It waits until somebody lets it go on.
    Suspended,
}

/// Kubernetes' rule for Jobs without indexes: `completions` pods end well, `parallelism` at a time;
/// without `completions` the first that ends well ends the work, and no new ones start.
fn judge(spec: &JobSpec, progress: Progress) -> Verdict {
    let number =
        |number: Option<i32>, default| number.map_or(default, |n| usize::try_from(n).unwrap_or(0));
    let parallelism = number(spec.parallelism, 1);
    let completions = spec
        .completions
        .map(|completions| usize::try_from(completions).unwrap_or(0));
    let done = match completions {
        Some(completions) => progress.succeeded >= completions,
        None => progress.succeeded > 0 && progress.active == 0,
    };
    if done {
        return Verdict::Complete;
    }
    if progress.failed > number(spec.backoff_limit, 6) {
        return Verdict::Failed;
    }
    if spec.suspend.unwrap_or(false) {
        return Verdict::Suspended;
    }
    let wanted = match completions {
        Some(completions) => parallelism.min(completions - progress.succeeded),
        None if progress.succeeded > 0 => progress.active.min(parallelism),
        None => parallelism,
    };
    if wanted >= progress.active {
        Verdict::Start(wanted - progress.active)
    } else {
        Verdict::Stop(progress.active - wanted)
    }
}

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<Next, Failed> {
    let Some(job) = world.jobs.get(Some(&key.0), &key.1) else {
        return Ok(Next::Done);
    };
    let Some(spec) = &job.spec else {
        return Ok(Next::Done);
    };
    let current = status::current(job.status.as_ref());
    if job.metadata.deletion_timestamp.is_some() || finished(&current) {
        return Ok(Next::Done);
    }
    let uid = job.uid().unwrap_or_default();
    let verdict = judge(spec, progress(world, &uid));
    let surplus = match verdict {
        Verdict::Start(missing) => {
            let owner = Owner::of(&*job);
            for _ in 0..missing {
                let template = spec.template.clone();
                world
                    .create_pod(&owner, Name::Beginning(&job.name_any()), template, None)
                    .await?;
            }
            0
        }
        Verdict::Stop(surplus) => surplus,
        Verdict::Complete | Verdict::Failed | Verdict::Suspended => usize::MAX,
    };
    for pod in world
        .pods
        .owned_by(&uid)
        .iter()
        .filter(|pod| pod.active())
        .take(surplus)
    {
        world.delete_pod(pod).await?;
    }
    let wanted = report(&current, verdict, progress(world, &uid));
    let api: Api<Job> = Api::namespaced(world.client.clone(), &key.0);
    status::write(&api, &key.1, &current, &wanted).await?;
    Ok(Next::Done)
}

fn finished(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| {
        condition["status"] == "True"
            && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })
}

fn progress(world: &World, uid: &str) -> Progress {
    let mut progress = Progress::default();
    for pod in world.pods.owned_by(uid) {
        match pod.phase {
            Phase::Succeeded => progress.succeeded += 1,
            Phase::Failed => progress.failed += 1,
            _ if pod.active() => {
                progress.active += 1;
                progress.ready += usize::from(pod.ready());
            }
            _ => {}
        }
    }
    progress
}

fn report(current: &Value, verdict: Verdict, progress: Progress) -> Value {
    let now = json!(Time(calendar()));
    let mut status = json!({
        "active": status::count(progress.active),
        "ready": progress.ready,
        "succeeded": status::count(progress.succeeded),
        "failed": status::count(progress.failed),
        "terminating": 0,
        "uncountedTerminatedPods": {},
    });
    let suspended = verdict == Verdict::Suspended;
    status["startTime"] = match current["startTime"].is_null() {
        _ if suspended => Value::Null,
        true => now.clone(),
        false => current["startTime"].clone(),
    };
    let condition = |kind, reason, message| status::condition(current, kind, true, reason, message);
    let conditions = match verdict {
        Verdict::Complete => {
            status["completionTime"] = now;
            let message = "Reached expected number of succeeded pods";
            vec![
                condition("SuccessCriteriaMet", "CompletionsReached", message),
                condition("Complete", "CompletionsReached", message),
            ]
        }
        Verdict::Failed => {
            let message = "Job has reached the specified backoff limit";
            vec![
                condition("FailureTarget", "BackoffLimitExceeded", message),
                condition("Failed", "BackoffLimitExceeded", message),
            ]
        }
        Verdict::Suspended => vec![condition("Suspended", "JobSuspended", "Job suspended")],
        Verdict::Start(_) | Verdict::Stop(_) => Vec::new(),
    };
    if !conditions.is_empty() {
        // Conditions of Jobs have a probe time where those of Deployments have an update time.
        let rename = |mut condition: Value| {
            if let Some(members) = condition.as_object_mut()
                && let Some(time) = members.remove("lastUpdateTime")
            {
                members.insert("lastProbeTime".to_owned(), time);
            }
            condition
        };
        status["conditions"] = conditions.into_iter().map(rename).collect();
    } else if !current["conditions"].is_null() {
        status["conditions"] = Value::Null;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(spec: Value, active: usize, succeeded: usize, failed: usize) -> Verdict {
        let mut spec = spec;
        spec["template"] = json!({});
        let spec = serde_json::from_value(spec).unwrap();
        judge(
            &spec,
            Progress {
                active,
                succeeded,
                failed,
                ready: 0,
            },
        )
    }

    #[test]
    fn a_job_goes_on_until_enough_pods_ended_well() {
        let five = json!({"completions": 5, "parallelism": 2});
        assert_eq!(after(five.clone(), 0, 0, 0), Verdict::Start(2));
        assert_eq!(after(five.clone(), 1, 4, 0), Verdict::Start(0));
        assert_eq!(after(five.clone(), 2, 4, 0), Verdict::Stop(1));
        assert_eq!(after(five, 0, 5, 0), Verdict::Complete);
    }

    #[test]
    fn without_completions_the_first_success_ends_the_work() {
        let pool = json!({"parallelism": 3});
        assert_eq!(after(pool.clone(), 0, 0, 0), Verdict::Start(3));
        assert_eq!(after(pool.clone(), 2, 1, 0), Verdict::Start(0));
        assert_eq!(after(pool, 0, 1, 0), Verdict::Complete);
    }

    #[test]
    fn a_job_gives_up_and_can_wait() {
        assert_eq!(
            after(json!({"completions": 1, "backoffLimit": 0}), 0, 0, 1),
            Verdict::Failed
        );
        assert_eq!(
            after(json!({"completions": 1, "suspend": true}), 0, 0, 0),
            Verdict::Suspended
        );
    }
}
