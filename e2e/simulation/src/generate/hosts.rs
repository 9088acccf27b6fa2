//! The loss of the host of the fleet API.

use crate::faults::{Fault, FaultKind, Moment};
use crate::history::{Actor, Api, Process};
use crate::people::Dice as _;
use crate::plan::Plan;
use crate::random::Random;

/// Beginning of the numbers of the loss of the host and of what goes with it.
const HOSTS: u64 = 200;

/// Returns the loss of the host, and links that fail between agents or hosts and the host that does
/// not count: the standby before its promotion and the former host after it.
pub(super) fn lose(random: &mut Random, plan: &Plan) -> Vec<Fault> {
    let busy = plan.phases.busy;
    let from = random.between(busy / 8, busy / 2);
    let loss = FaultKind::HostLoss {
        snapshot: random.between(1_000, 180_000),
        promotion: random.between(2_000, 120_000),
        grace: (*random.one(&["30s", "2m", "10m"])).to_owned(),
        silent: random.percent(60),
    };
    let until = from + random.between(1_000, busy - from);
    let mut kinds = vec![(from, until, loss)];
    let replica = u8::try_from(random.below(u64::from(plan.replicas))).unwrap_or_default();
    let site = &random.one(&plan.sites).name;
    let apart = |process, silent| FaultKind::Partition {
        actor: Actor::Process(process),
        api: Api::Standby,
        silent,
    };
    for (percent, process) in [
        (30, Process::Agent(site.clone())),
        (30, Process::ControlPlane(replica)),
    ] {
        if random.percent(percent) {
            let from = random.between(from, busy);
            let until = from + random.between(5_000, 200_000);
            kinds.push((from, until, apart(process, random.percent(60))));
        }
    }
    if random.percent(50) {
        let crash = FaultKind::Crash {
            process: Process::ControlPlane(plan.replicas + replica),
            nth: random.between(1, 30),
            moment: *random.one(&[Moment::BeforeSending, Moment::AfterCommit]),
            of_all: random.percent(30),
        };
        kinds.push((from, busy, crash));
    }
    let faults = (HOSTS..).zip(kinds);
    let faults = faults.map(|(id, (from, until, kind))| Fault {
        id,
        from,
        until,
        kind,
    });
    faults.collect()
}
