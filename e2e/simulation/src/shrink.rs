//! Shrinks a plan that fails: leaves out faults, steps, objects and members while it still fails.

use serde_json::Value;

use crate::plan::Plan;

/// A part that a plan can do without.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Fault(u64),
    Step(u64),
    Object(usize),
}

/// Returns a plan of as few faults, steps and objects as possible that `fails` as well. Asks it at
/// most `attempts` times.
pub fn shrink(plan: &Plan, attempts: usize, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut parts = parts(plan);
    let mut left = attempts;
    // Delta debugging: ever smaller pieces are left out, as long as the rest fails.
    let mut pieces = 2;
    while !parts.is_empty() && left > 0 {
        let length = parts.len().div_ceil(pieces);
        let mut at = 0;
        let mut is_smaller = false;
        while at < parts.len() && left > 0 {
            let end = (at + length).min(parts.len());
            let mut rest = parts.clone();
            rest.drain(at..end);
            left -= 1;
            if fails(&with(plan, &rest)) {
                parts = rest;
                is_smaller = true;
            } else {
                at = end;
            }
        }
        if length == 1 && !is_smaller {
            break;
        }
        pieces = (pieces * 2).min(parts.len().max(1));
    }
    with(plan, &parts)
}

fn parts(plan: &Plan) -> Vec<Part> {
    let steps = plan.steps.iter().map(|step| Part::Step(step.id));
    let faults = plan.faults.iter().map(|fault| Part::Fault(fault.id));
    let objects = plan.objects.iter().enumerate();
    let objects = objects.filter(|(_, object)| is_optional(object));
    let objects = objects.map(|(at, _)| Part::Object(at));
    steps.chain(faults).chain(objects).collect()
}

/// Returns whether other objects can be created without it.
fn is_optional(object: &Value) -> bool {
    !["Namespace", "CustomResourceDefinition"]
        .contains(&object["kind"].as_str().unwrap_or_default())
}

fn with(plan: &Plan, parts: &[Part]) -> Plan {
    let mut plan = plan.clone();
    plan.steps
        .retain(|step| parts.contains(&Part::Step(step.id)));
    plan.faults
        .retain(|fault| parts.contains(&Part::Fault(fault.id)));
    let objects = std::mem::take(&mut plan.objects).into_iter().enumerate();
    plan.objects = objects
        .filter(|(at, object)| !is_optional(object) || parts.contains(&Part::Object(*at)))
        .map(|(_, object)| object)
        .collect();
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Scale};

    #[test]
    fn what_a_failure_does_not_need_is_left_out() {
        let scale = Scale {
            faults: 30,
            ..Scale::SMALL
        };
        let plan = generate::plan(7, scale);
        let needed = (plan.faults[11].id, plan.steps[3].id);
        let mut asked = 0;
        let small = shrink(&plan, 400, |plan| {
            asked += 1;
            let has_fault = plan.faults.iter().any(|fault| fault.id == needed.0);
            has_fault && plan.steps.iter().any(|step| step.id == needed.1)
        });
        assert_eq!(small.faults.len(), 1);
        assert_eq!(small.steps.len(), 1);
        assert!(small.objects.iter().all(|object| !is_optional(object)));
        assert!(asked < 100, "{asked}");
    }
}
