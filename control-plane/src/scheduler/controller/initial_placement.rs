//! First placement of a binding, computed when it is created.
//!
//! A binding that is created with its clusters costs one write less than one that is placed
//! afterwards, and always has a target. The decision is the same, by the same [`pass`]; the
//! scheduler reports it.

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::events::EventType;

use super::events::success_note;
use super::live::LiveSnapshot;
use crate::fleet::Fleet;
use crate::scheduler::core::Options;
use crate::scheduler::core::outcome::{Placed, Subject, pass};

/// Places bindings that do not exist yet.
#[derive(Debug)]
pub struct InitialPlacement {
    snapshot: LiveSnapshot,
    options: Options,
}

impl InitialPlacement {
    /// Follows the clusters; `None` when this process does not schedule.
    pub fn follow(fleet: &Fleet) -> Option<Self> {
        fleet.settings.runs("scheduler").then(|| Self {
            snapshot: LiveSnapshot::follow(fleet),
            options: Options::of(&fleet.settings),
        })
    }

    /// Returns where a new binding goes. `None` leaves it to the scheduler: it is somebody else's
    /// to place, nothing fits, or its placement has ordered groups, of which the status has to say
    /// which one is in use.
    pub fn of(&self, fleet: &Fleet, spec: &ResourceBindingSpec) -> Option<Placed> {
        let placement = spec.placement.as_ref()?;
        let is_ours = fleet.settings.schedules(spec.scheduler_name.as_deref())
            && !spec.scheduling_suspended();
        if !is_ours || !placement.cluster_affinities.is_empty() {
            return None;
        }
        let status = ResourceBindingStatus::default();
        let subject = Subject {
            generation: 0,
            applied_placement: None,
            spec,
            status: &status,
        };
        let now = fleet.clock.now();
        let outcome = pass(&subject, &self.snapshot.get(), &self.options, now);
        outcome
            .placed
            .filter(|placed| outcome.failure.is_none() && !placed.clusters.is_empty())
    }

    /// Says where a binding was placed when it was created.
    pub fn report(fleet: &Fleet, binding: &AnyBinding) {
        let note = success_note(&binding.spec.clusters);
        fleet.events.publish_about(
            binding.reference(),
            EventType::Normal,
            "ScheduleBindingSucceed",
            note,
        );
    }
}
