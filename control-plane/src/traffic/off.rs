//! Says of host names that were published that nothing follows them any more, where
//! `--traffic-dns-endpoints` was switched off.
//!
//! Each is written once after a start, and not whenever it changes: another control plane may
//! follow them.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::names::condition::HOSTNAME_PUBLISHED;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::Written;

/// Reason of the condition of a name that nothing follows.
const OFF: &str = "Off";

/// Starts the controller.
pub fn start_off(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    Controller::new(fleet, "traffic that is off")
        .watches(&fleet.bindings, |_, change| match change {
            Change::Applied { old: None, new } => is_left(new).then(|| BindingKey::of(new)),
            Change::Applied { .. } | Change::Deleted { .. } => None,
        })
        .run(tasks, 1, (), |fleet, (), key: BindingKey| async move {
            report(&fleet, &key).await
        });
}

/// Returns whether a binding still says where a host name leads.
fn is_left(binding: &AnyBinding) -> bool {
    let reported = conditions::get(&binding.status().conditions, HOSTNAME_PUBLISHED);
    reported.is_some_and(|it| it.reason != OFF)
}

async fn report(fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
    let Some(binding) = fleet.bindings.get(key).filter(|it| is_left(it)) else {
        return Ok(Next::Done);
    };
    let note = "nothing follows the host name (--traffic-dns-endpoints, or the controller traffic, is off): a DNSEndpoint that was published for it stays as it is, wherever that leads, until somebody deletes it";
    let now = fleet.clock.now();
    let condition = conditions::new(HOSTNAME_PUBLISHED, conditions::UNKNOWN, OFF, note, now);
    let Some(list) = conditions::merge(&binding.status().conditions, [condition]) else {
        return Ok(Next::Done);
    };
    let patch = conditions::patch(&binding.metadata, &list);
    let client = fleet.status_writer.when_idle().await;
    let step = "write the status of";
    let written = key.merge_status(&client, step, &patch).await?;
    if let Written::Done(_) = written {
        let (kind, reason) = (EventType::Warning, "HostnameNotFollowed");
        fleet.publish(&binding, kind, reason, note.to_owned());
    }
    Ok(written.next())
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
            start_off(&bench.fleet, &mut bench.tasks);
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
