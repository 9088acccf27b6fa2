//! Losses of the host, and witnesses.

use serde_json::json;

use super::{Found, apply, crash, cut_off, fault, phases};
use crate::faults::{Fault, FaultKind};
use crate::generate::PEERS;
use crate::history::Process;
use crate::plan::Plan;
use crate::scenarios::quiet;

/// Returns plans in which the host is lost, or witnesses are asked.
pub(super) fn all() -> [Found; 4] {
    let found = |name, oracle, plan| Found { name, oracle, plan };
    [
        found("former", "progress", back_before_the_promotion()),
        found("epoch", "hosts", agent_that_is_started_anew()),
        found("unknown", "hosts", written_after_the_snapshot()),
        found("quorum", "witnesses", one_that_lies()),
    ]
}

/// Returns a loss of the host from second 60 until another one. The snapshot is that of second 30.
fn loss(until: u64, promotion: u64) -> Fault {
    let kind = FaultKind::HostLoss {
        snapshot: 30_000,
        promotion: (promotion - 60) * 1_000,
        grace: "30s".to_owned(),
        silent: true,
    };
    fault(200, 60, until, kind)
}

/// Returns a plan in which the former host is back before the standby is promoted: the agents find
/// the promoted store although the former one answers.
fn back_before_the_promotion() -> Plan {
    Plan {
        faults: vec![loss(75, 90)],
        phases: phases(180, 600),
        ..quiet(1, 2, 1)
    }
}

/// Returns a plan in which an agent is started anew while it reaches the former host alone: it does
/// not obey that one.
fn agent_that_is_started_anew() -> Plan {
    Plan {
        faults: vec![
            loss(150, 100),
            crash(1, 200, Process::Agent("m1".to_owned())),
            cut_off(2, 195, 290, "m1"),
        ],
        phases: phases(300, 400),
        ..quiet(1, 2, 1)
    }
}

/// Returns a plan in which a workload is written after the snapshot: it runs on.
fn written_after_the_snapshot() -> Plan {
    let plan = quiet(1, 2, 2);
    let is_late = |it: &serde_json::Value| it["metadata"]["name"] == "web-2";
    let (late, objects): (Vec<_>, Vec<_>) = plan.objects.into_iter().partition(is_late);
    let steps = (1..).zip(late).map(|(id, object)| apply(id, 40, object));
    Plan {
        steps: steps.collect(),
        faults: vec![loss(200, 100)],
        objects,
        phases: phases(240, 400),
        ..quiet(1, 2, 0)
    }
}

/// Returns a plan in which two of three members are cut off from the host, and the third one lies
/// about what it reaches: nothing is believed of it alone.
fn one_that_lies() -> Plan {
    let lie = FaultKind::Lie {
        member: "m2".to_owned(),
        reaches: false,
    };
    let mut plan = quiet(1, 3, 1);
    for object in &mut plan.objects {
        if let Some(conditions) = object.pointer_mut("/spec/matchConditions") {
            *conditions = json!([
                { "conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"] },
                { "conditionType": "SeenByPeers", "operator": "In", "statusValues": ["False"] },
            ]);
        }
    }
    plan.flags.push(format!("{PEERS}2"));
    Plan {
        faults: vec![
            fault(1, 90, 400, lie),
            cut_off(2, 100, 400, "m1"),
            cut_off(3, 100, 400, "m3"),
        ],
        phases: phases(420, 300),
        ..plan
    }
}
