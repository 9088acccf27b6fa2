//! Thresholds for changes of `Ready`: a changed observation is reported after it has lasted for a
//! time.

use std::time::Duration;

use tokio::time::Instant;

/// Status of a `Ready` condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The member's API server answers and is healthy.
    True,
    /// The member's API server does not answer, or is not healthy.
    False,
    /// The agent has stopped reporting, which the control plane writes, or cannot ask.
    Unknown,
}

impl Readiness {
    /// Reads a condition's status; whatever Kubernetes does not define counts as unknown.
    pub fn of(status: &str) -> Self {
        match status {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    fn is_true(self) -> bool {
        self == Self::True
    }
}

/// Time for which a change must last before it is reported.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// For a change to ready (`--cluster-success-threshold`).
    pub success: Duration,
    /// For a change to anything else (`--cluster-failure-threshold`).
    pub failure: Duration,
}

/// The last observation, and the time since when it has been the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    status: Readiness,
    /// `None`: longer than any threshold.
    since: Option<Instant>,
}

impl Memory {
    /// Makes the memory of a process that starts: the status in the API stands for the observations
    /// of its predecessor.
    ///
    /// Karmada starts without memory and reports its first observation at once, so one failed probe
    /// right after a restart taints the cluster (defect K5).
    pub fn resuming(stored: Readiness) -> Self {
        Self {
            status: stored,
            since: None,
        }
    }
}

/// Decision after an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Report the observation.
    Report,
    /// Keep the present condition, including reason and message.
    Hold,
}

/// Judges one observation against the memory (which it updates) and the status that the API holds.
///
/// A change is held until it has been observed for its threshold without interruption, also one
/// between the two states that are not ready: Karmada reports that at once. Without memory, or
/// without a condition in the API, there is nothing to hold on to.
pub fn debounce(
    memory: &mut Option<Memory>,
    stored: Option<Readiness>,
    observed: Readiness,
    thresholds: Thresholds,
    now: Instant,
) -> Verdict {
    let Some(known) = memory else {
        *memory = Some(Memory {
            status: observed,
            since: None,
        });
        return Verdict::Report;
    };
    let Some(stored) = stored else {
        return Verdict::Report;
    };
    if known.status != observed {
        *known = Memory {
            status: observed,
            since: Some(now),
        };
    }
    let threshold = if observed.is_true() {
        thresholds.success
    } else {
        thresholds.failure
    };
    let young = known
        .since
        .is_some_and(|since| now.duration_since(since) < threshold);
    if stored != observed && young {
        Verdict::Hold
    } else {
        Verdict::Report
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Input {
        success_threshold_seconds: f64,
        failure_threshold_seconds: f64,
        initial_stored: String,
        steps: Vec<Step>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Step {
        at: f64,
        observed: String,
        set_stored: Option<String>,
        #[serde(default)]
        restart: bool,
    }

    #[derive(Serialize)]
    struct Output {
        reported: Vec<String>,
        held: Vec<bool>,
    }

    fn replay(input: &Input) -> Output {
        let start = Instant::now();
        let thresholds = Thresholds {
            success: Duration::from_secs_f64(input.success_threshold_seconds),
            failure: Duration::from_secs_f64(input.failure_threshold_seconds),
        };
        let (mut memory, mut stored) = (None, input.initial_stored.clone());
        let mut output = Output {
            reported: Vec::new(),
            held: Vec::new(),
        };
        for step in &input.steps {
            if step.restart {
                memory = None;
            }
            if let Some(status) = &step.set_stored {
                stored.clone_from(status);
            }
            let observed = Readiness::of(&step.observed);
            // Karmada reports changes between the two states that are not ready at once: to it
            // they are one.
            let known = (!stored.is_empty()).then(|| Readiness::of(&stored));
            let known = known.map(|known| {
                let is_change = known.is_true() != observed.is_true();
                if is_change { known } else { observed }
            });
            let now = start + Duration::from_secs_f64(step.at);
            let verdict = debounce(&mut memory, known, observed, thresholds, now);
            if verdict == Verdict::Report {
                stored.clone_from(&step.observed);
            }
            output.reported.push(stored.clone());
            output.held.push(verdict == Verdict::Hold);
        }
        output
    }

    #[test]
    fn the_reference_vectors_hold() {
        let tests = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
        muster_vectors::replay("cluster_condition_debounce", tests, &[], |case| {
            let input = serde_json::from_value(case.input.clone()).unwrap();
            muster_vectors::same(&case.output, &serde_json::to_value(replay(&input)).unwrap())
        })
        .unwrap();
    }

    #[test]
    fn a_restarted_process_waits_like_one_that_never_stopped() {
        let second = Duration::from_secs(1);
        let thresholds = Thresholds {
            success: 10 * second,
            failure: 30 * second,
        };
        let start = Instant::now();
        for (stored, observed, wait) in [
            (Readiness::True, Readiness::False, 30),
            (Readiness::False, Readiness::True, 10),
            (Readiness::Unknown, Readiness::True, 10),
        ] {
            let mut memory = Some(Memory::resuming(stored));
            let mut at = |seconds: u32| {
                debounce(
                    &mut memory,
                    Some(stored),
                    observed,
                    thresholds,
                    start + second * seconds,
                )
            };
            assert_eq!(at(0), Verdict::Hold, "{stored:?} to {observed:?}");
            assert_eq!(at(wait - 1), Verdict::Hold, "{stored:?} to {observed:?}");
            assert_eq!(at(wait), Verdict::Report, "{stored:?} to {observed:?}");
        }
    }

    #[test]
    fn refusals_and_failures_that_alternate_do_not_alternate_in_the_condition() {
        let second = Duration::from_secs(1);
        let thresholds = Thresholds {
            success: 10 * second,
            failure: 30 * second,
        };
        let (start, stored) = (Instant::now(), Some(Readiness::False));
        let mut memory = Some(Memory::resuming(Readiness::False));
        let mut at = |seconds: u32, observed| {
            let now = start + second * seconds;
            debounce(&mut memory, stored, observed, thresholds, now)
        };
        for seconds in (0..60).step_by(20) {
            assert_eq!(at(seconds, Readiness::Unknown), Verdict::Hold);
            assert_eq!(at(seconds + 10, Readiness::False), Verdict::Report);
        }
        assert_eq!(at(60, Readiness::Unknown), Verdict::Hold);
        assert_eq!(at(90, Readiness::Unknown), Verdict::Report, "it has lasted");
    }

    #[test]
    fn a_restarted_process_confirms_what_the_api_says_at_once() {
        let thresholds = Thresholds {
            success: Duration::from_secs(30),
            failure: Duration::from_secs(30),
        };
        for status in [Readiness::True, Readiness::False] {
            let mut memory = Some(Memory::resuming(status));
            let verdict = debounce(
                &mut memory,
                Some(status),
                status,
                thresholds,
                Instant::now(),
            );
            assert_eq!(verdict, Verdict::Report);
        }
    }
}
