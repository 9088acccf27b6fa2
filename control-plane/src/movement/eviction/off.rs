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
