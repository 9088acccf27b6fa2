//! Sieve's perturbations, systematically: of a small plan, each write of each process with a crash
//! before it and after it, and each watch of each process with a stale view, once.
//!
//! The perturbations are those of "Automatic Reliability Testing for Cluster Management
//! Controllers" (Sun and others, OSDI 2022): a crash between two writes, a view that is behind, and
//! events that are never seen. One is added: a process that starts while the list of a kind is
//! empty, whose objects come into sight later.

use crate::faults::{Fault, FaultKind, Moment};
use crate::history::{Actor, Process};
use crate::plan::Plan;
use crate::run::Report;

/// Milliseconds for which a view is behind.
const BEHIND: u64 = 30_000;
/// Milliseconds before a failover is due at which a process is started that sees nothing of a kind,
/// and until it sees it.
const BLIND: (u64, u64) = (25_000, 45_000);

/// Returns all perturbed plans of a plan whose undisturbed run gave a report, each with its name.
pub fn plans(plan: &Plan, report: &Report) -> Vec<(String, Plan)> {
    let crashes = report.decisions.iter().flat_map(|(process, writes)| {
        (1..=*writes).flat_map(move |nth| {
            [Moment::BeforeSending, Moment::AfterCommit].map(|moment| crash(process, nth, moment))
        })
    });
    let views = report.watches.iter().filter_map(|(actor, api, kind)| {
        let Actor::Process(process) = actor else {
            return None;
        };
        let (actor, plural) = (actor.clone(), Some(kind.clone()));
        let lag = FaultKind::Lag {
            actor: actor.clone(),
            api: api.clone(),
            lag: BEHIND,
            plural: plural.clone(),
        };
        let miss = FaultKind::Miss {
            actor,
            api: api.clone(),
            pause: BEHIND,
            plural,
        };
        let title = format!("{process} sees {kind} of {api}");
        Some([
            (format!("{title} {BEHIND} ms late"), lag),
            (format!("{title} with a gap of {BEHIND} ms"), miss),
        ])
    });
    let starts = report.watches.iter().filter_map(|(actor, api, kind)| {
        let Actor::Process(process) = actor else {
            return None;
        };
        // That a member has no nodes is what its agent has to report.
        if kind == "nodes" {
            return None;
        }
        let short = FaultKind::Short {
            actor: actor.clone(),
            api: api.clone(),
            share: 1_000,
            plural: Some(kind.clone()),
        };
        let name = format!("{process} starts without {kind} of {api}");
        Some((name, blind(plan, process, short)))
    });
    let perturbations = crashes.chain(views.flatten());
    let perturbed =
        perturbations.map(|(name, kind)| (name, with(plan, [(0, plan.phases.busy, kind)])));
    perturbed.chain(starts).collect()
}

/// Returns the plan with a process that is killed some time after the first fault began, and that
/// sees nothing of a kind for a while after its start.
fn blind(plan: &Plan, process: &Process, short: FaultKind) -> Plan {
    let begun = plan.faults.first().map_or(0, |fault| fault.from);
    let from = begun + BLIND.0;
    let crash = FaultKind::Crash {
        process: process.clone(),
        nth: 1,
        moment: Moment::BeforeSending,
        of_all: true,
    };
    let faults = [(from, from + BLIND.1, short), (from, from + 15_000, crash)];
    with(plan, faults)
}

fn crash(process: &Process, nth: u64, moment: Moment) -> (String, FaultKind) {
    let when = match moment {
        Moment::BeforeSending => "before",
        Moment::AfterCommit => "after",
    };
    let kind = FaultKind::Crash {
        process: process.clone(),
        nth,
        moment,
        of_all: false,
    };
    (format!("{process} is killed {when} its write {nth}"), kind)
}

/// Returns a plan with further faults, each with its beginning and its end in milliseconds.
fn with(plan: &Plan, faults: impl IntoIterator<Item = (u64, u64, FaultKind)>) -> Plan {
    let mut plan = plan.clone();
    let next = plan.faults.iter().map(|fault| fault.id).max().unwrap_or(0) + 1;
    let faults = (next..).zip(faults);
    plan.faults
        .extend(faults.map(|(id, (from, until, kind))| Fault {
            id,
            from,
            until,
            kind,
        }));
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::history::Api;
    use crate::pairs::Pairs;
    use crate::scenarios;

    #[test]
    fn each_write_and_each_view_is_disturbed_in_each_way_once() {
        let report = Report {
            digest: String::new(),
            entries: 0,
            violations: Vec::new(),
            faults: BTreeMap::new(),
            watches: vec![
                (
                    Actor::Process(Process::ControlPlane(0)),
                    Api::Fleet,
                    "works".to_owned(),
                ),
                (Actor::Workloads, Api::Fleet, "pods".to_owned()),
            ],
            decisions: vec![(Process::ControlPlane(0), 3)],
            pairs: Pairs::default(),
            lasted: 0,
        };
        let plans = plans(&scenarios::one_failover(1), &report);
        assert_eq!(plans.len(), 3 * 2 + 2 + 1);
        let faults = plans.iter().map(|(_, plan)| plan.faults.len());
        assert_eq!(faults.collect::<Vec<_>>(), [2, 2, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(plans[1].0, "control-plane/0 is killed after its write 1");
    }
}
