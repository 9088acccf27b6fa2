//! Ends what bindings say of failing applications where the controller `applicationFailover` was
//! switched off: nothing judges their health, and none of them leaves.

use muster_shared::conditions;

use super::explain::CONDITION;
use crate::fleet::outlived::{Outlived, is_true};

/// Reason of the condition of an application that does not wait to leave any more.
const OFF: &str = "ApplicationFailoverOff";

/// Condition of an application that was to leave.
pub static OUTLIVED: Outlived = Outlived {
    name: "application failover that is off",
    condition: CONDITION,
    is_left: is_true,
    status: conditions::FALSE,
    reason: OFF,
    event: OFF,
    note: "the application does not wait to leave any more: the control plane was started without the controller applicationFailover (--controllers), so that it stays where it fails",
};

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, binding, pass};

    #[tokio::test(start_paused = true)]
    async fn an_application_that_was_to_leave_is_not_any_more_and_what_happened_stays_said() {
        for (status, reason, expected) in [
            ("True", "WaitingForToleration", ("False", OFF)),
            ("True", "NowhereToGo", ("False", OFF)),
            ("False", "ApplicationMoved", ("False", "ApplicationMoved")),
        ] {
            let mut bound = binding();
            let now = Timestamp::UNIX_EPOCH;
            let failing = conditions::new(CONDITION, status, reason, "it fails in m1", now);
            bound["status"]["conditions"] = json!([failing]);
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
