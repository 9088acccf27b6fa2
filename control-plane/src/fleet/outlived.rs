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
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::Written;

/// Condition of a controller that is switched off, and what it says from then on.
#[derive(Debug)]
pub struct Outlived {
    /// Name of the queue of the bindings that have the condition.
    pub name: &'static str,
    /// Type of the condition.
    pub condition: &'static str,
    /// Whether the condition says what does not hold without the controller.
    pub is_left: fn(&Condition) -> bool,
    /// Status from then on.
    pub status: &'static str,
    /// Reason from then on.
    pub reason: &'static str,
    /// Reason of the event.
    pub event: &'static str,
    /// Message of the condition and the event.
    pub note: &'static str,
}

/// Returns whether a condition says that something is pending.
pub fn is_true(condition: &Condition) -> bool {
    condition.status == conditions::TRUE
}

impl Outlived {
    /// Starts to end the condition, of each binding once.
    pub fn start(&'static self, fleet: &Arc<Fleet>, tasks: &mut Tasks) {
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
