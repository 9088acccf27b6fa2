//! What a kubelet (or the controllers that replace a lost one) does next with a pod. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::pods::{Phase, Record};

/// How long things take on the machines of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a pod's creation to its readiness: image pull, start, first probe.
    pub startup: Duration,
    /// How long the containers of a Job's pod work.
    pub work: Duration,
}

/// The machine under a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// None has been chosen.
    Unassigned,
    /// Its kubelet works.
    Up,
    /// Its kubelet is silent.
    Down,
    /// There is no such node any more.
    Gone,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Nothing,
    /// Nothing for this long.
    Wait(Duration),
    /// Find a node.
    Place,
    /// Report that the containers run and are ready.
    Start,
    /// Report that nothing is known of the containers.
    LoseReadiness,
    /// Report that the containers ended well.
    Finish,
    /// Take the object away.
    Remove,
}

/// Returns the next step for a pod.
pub fn next(pod: &Record, machine: Machine, timing: Timing, now: Timestamp) -> Step {
    let is_task = pod.owner.as_ref().is_some_and(|owner| owner.kind == "Job");
    match (pod.deleting, pod.phase, machine) {
        // Of a silent machine nobody can say that the containers have stopped: the object stays, as
        // on a real partition.
        (true, _, Machine::Down) | (false, Phase::Succeeded | Phase::Failed, Machine::Up) => {
            Step::Nothing
        }
        // A pod of a vanished node is collected whether somebody asked for it or not (pod garbage
        // collector).
        (true, _, _) | (false, _, Machine::Gone) => Step::Remove,
        (false, Phase::Pending, Machine::Unassigned) => Step::Place,
        (false, Phase::Pending, Machine::Up) => {
            after(pod.created, timing.startup, now, Step::Start)
        }
        (false, Phase::Running, Machine::Down) if pod.ready() => Step::LoseReadiness,
        (false, Phase::Running, Machine::Up) if !pod.ready() => Step::Start,
        (false, Phase::Running, Machine::Up) if is_task => after(
            pod.started.unwrap_or(pod.created),
            timing.work,
            now,
            Step::Finish,
        ),
        (false, _, _) => Step::Nothing,
    }
}

fn after(since: Timestamp, time: Duration, now: Timestamp, step: Step) -> Step {
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    let left = time - now.duration_since(since);
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => Step::Wait(left),
        _ => step,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    const TIMING: Timing = Timing {
        startup: Duration::from_secs(3),
        work: Duration::from_secs(10),
    };

    fn pod(phase: Phase, ready: bool, deleting: bool, owner_kind: &str) -> Record {
        let created = Timestamp::UNIX_EPOCH;
        let owner = json!({"apiVersion": "v1", "kind": owner_kind, "name": "o", "uid": "u", "controller": true});
        let empty: Pod =
            serde_json::from_value(json!({"metadata": {"ownerReferences": [owner]}})).unwrap();
        Record {
            phase,
            deleting,
            ready_since: ready.then_some(created),
            ..Record::of(&empty)
        }
    }

    #[test]
    fn a_pod_is_placed_started_and_taken_away() {
        use Machine::{Down, Gone, Unassigned, Up};
        use Phase::{Pending, Running, Succeeded};
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let wait = |seconds| Step::Wait(Duration::from_secs(seconds));
        let new = pod(Pending, false, false, "ReplicaSet");
        let ready = pod(Running, true, false, "ReplicaSet");
        let unready = pod(Running, false, false, "ReplicaSet");
        let leaving = pod(Running, true, true, "ReplicaSet");
        let never_placed = pod(Pending, false, true, "ReplicaSet");
        let of_job = pod(Running, true, false, "Job");
        let done = pod(Succeeded, false, false, "Job");
        for (pod, machine, seconds, step) in [
            (&new, Unassigned, 0, Step::Place),
            (&new, Up, 1, wait(2)),
            (&new, Up, 3, Step::Start),
            (&new, Down, 9, Step::Nothing),
            (&ready, Up, 99, Step::Nothing),
            (&of_job, Up, 4, wait(6)),
            (&of_job, Up, 10, Step::Finish),
            (&done, Up, 99, Step::Nothing),
            (&ready, Down, 9, Step::LoseReadiness),
            (&unready, Down, 9, Step::Nothing),
            (&unready, Up, 9, Step::Start),
            (&leaving, Up, 9, Step::Remove),
            (&leaving, Down, 9, Step::Nothing),
            (&ready, Gone, 9, Step::Remove),
            (&never_placed, Unassigned, 9, Step::Remove),
        ] {
            let found = next(pod, machine, TIMING, at(seconds));
            assert_eq!(found, step, "{pod:?} on {machine:?}");
        }
    }
}
