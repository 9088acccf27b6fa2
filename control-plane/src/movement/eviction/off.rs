//! Ends what bindings say of evictions where the controller `taintmanager` was switched off:
//! nothing judges taints, and nothing leaves because of them.

use muster_shared::conditions;

use super::explain::CONDITION;
use crate::fleet::outlived::{Outlived, is_true};

/// Reason of the condition of a workload that does not wait to leave any more.
const OFF: &str = "TaintManagerOff";

/// Condition of a workload that waited to leave.
pub static OUTLIVED: Outlived = Outlived {
    name: "evictions that are off",
    condition: CONDITION,
    is_left: is_true,
    status: conditions::FALSE,
    reason: OFF,
    event: OFF,
    note: "it does not wait to leave any more: the control plane was started without the controller taintmanager (--controllers, --enable-taint-manager), so that no taint moves it",
};

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, binding, pass};

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_waited_to_leave_waits_no_more_and_what_happened_stays_said() {
        for (status, reason, expected) in [
            ("True", "WaitingForRate", ("False", OFF)),
            ("True", "NowhereToGo", ("False", OFF)),
            ("False", "Evicted", ("False", "Evicted")),
        ] {
            let mut bound = binding();
            let now = Timestamp::UNIX_EPOCH;
            let pending = conditions::new(CONDITION, status, reason, "m1 has a taint", now);
            bound["status"]["conditions"] = json!([pending]);
            let mut bench = Bench::new([("resourcebindings", bound)]);
            OUTLIVED.start(&bench.fleet, &mut bench.tasks);
            bench.follow().await;
            pass(30).await;
            let binding = bench.binding("web-deployment").unwrap();
            let said = conditions::get(&binding.status().conditions, CONDITION).unwrap();
            assert_eq!(
                (&*said.status, &*said.reason),
                expected,
                "{status} {reason}"
            );
        }
    }
}
