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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{Bench, binding, pass};

    /// Returns a binding whose host name was reported for a reason.
    fn reported(reason: &str) -> Value {
        let (kind, now) = (HOSTNAME_PUBLISHED, Timestamp::UNIX_EPOCH);
        let condition = conditions::new(kind, conditions::TRUE, reason, "leads to m1.", now);
        let mut binding = binding();
        binding["status"]["conditions"] = json!([condition]);
        binding
    }

    /// Returns status and reason of the condition of the binding.
    fn said(bench: &Bench) -> Option<(String, String)> {
        let binding = bench.binding("web-deployment").unwrap();
        let said = conditions::get(&binding.status().conditions, HOSTNAME_PUBLISHED);
        said.map(|it| (it.status.clone(), it.reason.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_was_published_is_said_once_to_be_followed_by_nothing() {
        let all = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
        for (bound, expected) in [
            (binding(), None),
            (reported("Published"), all("Unknown", OFF)),
            (reported("LastKnown"), all("Unknown", OFF)),
        ] {
            let is_reported = expected.is_some();
            let mut bench = Bench::new([("resourcebindings", bound)]);
            OUTLIVED.start(&bench.fleet, &mut bench.tasks);
            bench.follow().await;
            pass(30).await;
            assert_eq!(said(&bench), expected);
            if is_reported {
                // Another control plane follows it.
                bench.api.put("resourcebindings", reported("Published"));
                pass(30).await;
                assert_eq!(said(&bench), all("True", "Published"));
            }
        }
    }
}
