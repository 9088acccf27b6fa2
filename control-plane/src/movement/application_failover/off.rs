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
