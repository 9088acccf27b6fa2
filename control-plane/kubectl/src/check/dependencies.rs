//! Checks whether what workloads refer to is placed where they are, as the control plane reports.

use muster_control_plane::propagation::binding::references;
use muster_shared::check::{Category, listed};
use muster_shared::conditions;

use super::facts::Facts;
use crate::table::Workload;

const NAME: &str = "dependencies";
/// Workloads that the line names.
const NAMED: usize = 3;
const HINT: &str = "Set propagateDeps: true in their policies: what they refer to then goes where they go, but for what lies in no namespace, which needs a policy of its own.\n\
                    kubectl muster status tells what each lacks, and where.";

pub(super) fn check(category: &mut Category, facts: &Facts) {
    let bindings = match &facts.bindings {
        Ok(bindings) => bindings,
        Err(refusal) => return category.unknown(NAME, "bindings", refusal),
    };
    let lacking = bindings.iter().filter(|it| {
        let reported = it.status.as_ref().map(|it| it.conditions.as_slice());
        conditions::is_true(reported.unwrap_or_default(), references::CONDITION)
    });
    let names: Vec<String> = lacking
        .map(|it| Workload::of(&it.spec).to_string())
        .collect();
    if names.is_empty() {
        category.ok(NAME, "no workload is known to lack what it refers to");
    } else {
        let reported = match names.len() {
            1 => "1 workload is placed where something that it refers to is not".to_owned(),
            all => format!("{all} workloads are placed where something that they refer to is not"),
        };
        let message = format!("{reported}: {}", listed(&names, NAMED));
        category.warning(NAME, message, HINT);
    }
}
