//! Ends conditions of bindings that outlive the controller which writes them, since that was
//! switched off: nothing follows any more what they say.
//!
//! Each is written once after a start, and not whenever it changes: another control plane may run
//! the controller.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::HOSTNAME_PUBLISHED;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::Written;
use crate::movement::{application_failover, eviction};

/// Condition of a controller that is switched off, and what it says from then on.
struct Outlived {
    /// Name of the controller.
    controller: &'static str,
    /// Name of the queue of the bindings that have the condition.
    name: &'static str,
    /// Type of the condition.
    condition: &'static str,
    /// Whether the condition says what does not hold without the controller.
    is_left: fn(&Condition) -> bool,
    /// Status from then on.
    status: &'static str,
    /// Reason from then on.
    reason: &'static str,
    /// Reason of the event.
    event: &'static str,
    /// Message of the condition and the event.
    note: &'static str,
}

/// Reason of the condition of a host name that nothing follows.
const NOT_FOLLOWED: &str = "Off";

/// The controllers whose reports on bindings would outlive them.
static OFF: [Outlived; 3] = [
    Outlived {
        controller: "taintmanager",
        name: "evictions that are off",
        condition: eviction::explain::CONDITION,
        is_left: is_true,
        status: conditions::FALSE,
        reason: "TaintManagerOff",
        event: "TaintManagerOff",
        note: "it does not wait to leave any more: the control plane was started without the controller taintmanager (--controllers, --enable-taint-manager), so that no taint moves it",
    },
    Outlived {
        controller: "applicationFailover",
        name: "application failover that is off",
        condition: application_failover::explain::CONDITION,
        is_left: is_true,
        status: conditions::FALSE,
        reason: "ApplicationFailoverOff",
        event: "ApplicationFailoverOff",
        note: "the application does not wait to leave any more: the control plane was started without the controller applicationFailover (--controllers), so that it stays where it fails",
    },
    Outlived {
        controller: "traffic",
        name: "traffic that is off",
        condition: HOSTNAME_PUBLISHED,
        is_left: leads,
        status: conditions::UNKNOWN,
        reason: NOT_FOLLOWED,
        event: "HostnameNotFollowed",
        note: "nothing follows the host name (--traffic-dns-endpoints, or the controller traffic, is off): a DNSEndpoint that was published for it stays as it is, wherever that leads, until somebody deletes it",
    },
];

/// Returns whether a condition says that something is pending.
fn is_true(condition: &Condition) -> bool {
    condition.status == conditions::TRUE
}

/// Returns whether a condition still says where a host name leads.
fn leads(condition: &Condition) -> bool {
    condition.reason != NOT_FOLLOWED
}

/// Starts to end the reports of the controllers that do not run.
pub(super) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    for outlived in &OFF {
        if !fleet.settings.runs(outlived.controller) {
            outlived.start(fleet, tasks);
        }
    }
}

impl Outlived {
    /// Starts to end the condition, of each binding once.
    fn start(&'static self, fleet: &Arc<Fleet>, tasks: &mut Tasks) {
        Controller::new(fleet, self.name)
            .watches(&fleet.bindings, move |_, change| match change {
                Change::Applied { old: None, new } => self.is_on(new).then(|| BindingKey::of(new)),
                Change::Applied { .. } | Change::Deleted { .. } => None,
            })
            .run(
                tasks,
                1,
                self,
                |fleet, left: &'static Self, key: BindingKey| async move {
                    left.end(&fleet, &key).await
                },
            );
    }

    /// Returns whether a binding still has the condition.
    fn is_on(&self, binding: &AnyBinding) -> bool {
        conditions::get(&binding.status().conditions, self.condition).is_some_and(self.is_left)
    }

    async fn end(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let Some(binding) = fleet.bindings.get(key).filter(|it| self.is_on(it)) else {
            return Ok(Next::Done);
        };
        let now = fleet.clock.now();
        let over = conditions::new(self.condition, self.status, self.reason, self.note, now);
        let Some(list) = conditions::merge(&binding.status().conditions, [over]) else {
            return Ok(Next::Done);
        };
        let patch = conditions::patch(&binding.metadata, &list);
        let client = fleet.status_writer.when_idle().await;
        let step = "write the status of";
        let written = key.merge_status(&client, step, &patch).await?;
        if let Written::Done(_) = written {
            let note = self.note.to_owned();
            fleet.publish(&binding, EventType::Warning, self.event, note);
        }
        Ok(written.next())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, binding, pass};

    #[tokio::test(start_paused = true)]
    async fn what_a_controller_that_is_off_left_is_ended_once_and_what_happened_stays_said() {
        for (controller, status, reason, expected) in [
            (
                "taintmanager",
                "True",
                "WaitingForRate",
                ("False", "TaintManagerOff"),
            ),
            (
                "taintmanager",
                "True",
                "NowhereToGo",
                ("False", "TaintManagerOff"),
            ),
            ("taintmanager", "False", "Evicted", ("False", "Evicted")),
            (
                "applicationFailover",
                "True",
                "WaitingForToleration",
                ("False", "ApplicationFailoverOff"),
            ),
            (
                "applicationFailover",
                "True",
                "NowhereToGo",
                ("False", "ApplicationFailoverOff"),
            ),
            (
                "applicationFailover",
                "False",
                "ApplicationMoved",
                ("False", "ApplicationMoved"),
            ),
            ("traffic", "True", "Published", ("Unknown", "Off")),
            ("traffic", "True", "LastKnown", ("Unknown", "Off")),
        ] {
            let outlived = OFF.iter().find(|it| it.controller == controller).unwrap();
            let mut left = binding();
            let now = Timestamp::UNIX_EPOCH;
            let condition = conditions::new(outlived.condition, status, reason, "it is so", now);
            left["status"]["conditions"] = json!([condition]);
            let mut bench = Bench::new([("resourcebindings", left.clone())]);
            outlived.start(&bench.fleet, &mut bench.tasks);
            bench.follow_for(30).await;
            let said = |bench: &Bench| {
                let binding = bench.binding("web-deployment").unwrap();
                let said = conditions::get(&binding.status().conditions, outlived.condition);
                said.map(|it| (it.status.clone(), it.reason.clone()))
            };
            let pair =
                |(status, reason): (&str, &str)| Some((status.to_owned(), reason.to_owned()));
            assert_eq!(said(&bench), pair(expected), "{controller} {reason}");
            // Another control plane runs the controller.
            bench.api.put("resourcebindings", left);
            pass(30).await;
            assert_eq!(
                said(&bench),
                pair((status, reason)),
                "{controller} {reason}"
            );
        }
    }
}
