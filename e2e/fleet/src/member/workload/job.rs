//! Jobs: pods until so many have ended well.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use muster_shared::clock::calendar;
use muster_shared::k8s::Time;
use serde_json::{Value, json};

use super::{Failed, Name, Owner, World, status};
use crate::member::pods::{Key, Phase};

/// The pods of a Job by how they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    active: usize,
    ready: usize,
    succeeded: usize,
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
    /// It waits until somebody lets it go on.
    Suspended,
}

/// Kubernetes' rule for Jobs without indexes: `completions` pods end well, `parallelism` at a time.
/// No pod fails here.
fn judge(spec: &JobSpec, progress: Progress) -> Verdict {
    let number = |number: Option<i32>| number.map_or(1, |n| usize::try_from(n).unwrap_or(0));
    let (parallelism, completions) = (number(spec.parallelism), number(spec.completions));
    let Some(left) = completions
        .checked_sub(progress.succeeded)
        .filter(|left| *left > 0)
    else {
        return Verdict::Complete;
    };
    if spec.suspend.unwrap_or(false) {
        return Verdict::Suspended;
    }
    let wanted = parallelism.min(left);
    if wanted >= progress.active {
        Verdict::Start(wanted - progress.active)
    } else {
        Verdict::Stop(progress.active - wanted)
    }
}

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<(), Failed> {
    let Some(job) = world.jobs.get(Some(&key.0), &key.1) else {
        return Ok(());
    };
    let Some(spec) = &job.spec else {
        return Ok(());
    };
    let current = status::current(job.status.as_ref());
    if job.metadata.deletion_timestamp.is_some() || finished(&current) {
        return Ok(());
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
        Verdict::Complete | Verdict::Suspended => usize::MAX,
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
    status::write(&api, &key.1, &current, &wanted).await
}

fn finished(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["status"] == "True" && condition["type"] == "Complete")
}

fn progress(world: &World, uid: &str) -> Progress {
    let mut progress = Progress::default();
    for pod in world.pods.owned_by(uid) {
        match pod.phase {
            Phase::Succeeded => progress.succeeded += 1,
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

    #[test]
    fn a_job_goes_on_until_enough_pods_ended_well_and_can_wait() {
        let five = json!({"completions": 5, "parallelism": 2});
        let waits = json!({"completions": 1, "suspend": true});
        for (spec, active, succeeded, expected) in [
            (&five, 0, 0, Verdict::Start(2)),
            (&five, 1, 4, Verdict::Start(0)),
            (&five, 2, 4, Verdict::Stop(1)),
            (&five, 0, 5, Verdict::Complete),
            (&waits, 0, 0, Verdict::Suspended),
        ] {
            let mut spec = spec.clone();
            spec["template"] = json!({});
            let spec = serde_json::from_value(spec).unwrap();
            let progress = Progress {
                active,
                succeeded,
                ready: 0,
            };
            assert_eq!(judge(&spec, progress), expected, "{progress:?}");
        }
    }
}
