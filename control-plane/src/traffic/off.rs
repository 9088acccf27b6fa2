//! Says of host names that were published that nothing follows them any more, where
//! `--traffic-dns-endpoints` was switched off.

use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::HOSTNAME_PUBLISHED;

use crate::fleet::outlived::Outlived;

/// Reason of the condition of a name that nothing follows.
const OFF: &str = "Off";

/// Condition of a name that was published.
pub static OUTLIVED: Outlived = Outlived {
    name: "traffic that is off",
    condition: HOSTNAME_PUBLISHED,
    is_left: says_more,
    status: conditions::UNKNOWN,
    reason: OFF,
    event: "HostnameNotFollowed",
    note: "nothing follows the host name (--traffic-dns-endpoints, or the controller traffic, is off): a DNSEndpoint that was published for it stays as it is, wherever that leads, until somebody deletes it",
};

/// Returns whether a condition still says where a host name leads.
fn says_more(reported: &Condition) -> bool {
    reported.reason != OFF
}
