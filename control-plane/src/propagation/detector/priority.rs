//! Values of the priority classes that policies name.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::policy::{PriorityClassSource, PropagationSpec};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Informer, Selection};

use super::controller::Detector;
use crate::fleet::Fleet;
use crate::fleet::policy::Policy;
use crate::settings::PRIORITY_BASED_SCHEDULING;

/// Priority that a policy requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Value of the priority class; `None` if the policy names none.
    Known(Option<i32>),
    /// The priority classes have not been listed.
    Unlisted,
    /// There is no class of this name, or its source is not `KubePriorityClass`.
    Missing(String),
}

/// All priority classes of the fleet API.
pub(super) struct Classes(Informer<PriorityClass>);

impl Classes {
    /// Returns the priority classes, which have still to be followed; `None` where priorities are
    /// off.
    pub(super) fn of(fleet: &Fleet) -> Option<Self> {
        let api = Api::all(fleet.watch_client.clone());
        fleet
            .settings
            .gate(&PRIORITY_BASED_SCHEDULING)
            .then(|| Self(Informer::new(api, Selection::everything())))
    }

    /// Returns whether there is a priority class of this name, or might be.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(None, name).is_some() || !self.0.is_synced()
    }

    /// Returns the priority that a policy asks for.
    pub(super) fn priority(&self, spec: &PropagationSpec) -> Priority {
        let Some(wanted) = &spec.schedule_priority else {
            return Priority::Known(None);
        };
        let name = &wanted.priority_class_name;
        if wanted.priority_class_source != PriorityClassSource::KubePriorityClass {
            return Priority::Missing(name.clone());
        }
        match self.0.get(None, name) {
            Some(class) => Priority::Known(Some(class.value)),
            None if self.0.is_synced() => Priority::Missing(name.clone()),
            None => Priority::Unlisted,
        }
    }
}

/// Starts following the classes. A class that comes, goes or changes concerns the policies that
/// name it.
pub(super) fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    let Some(Classes(classes)) = &detector.classes else {
        return;
    };
    let to = Arc::clone(detector);
    classes.on_change(move |change| {
        if !change.differs(|old, new| old.value != new.value) {
            return;
        }
        for policy in to.fleet.policies.iter().map(Policy) {
            let wanted = policy.spec().schedule_priority.as_ref();
            if wanted.is_some_and(|it| it.priority_class_name == change.object().name_any()) {
                to.policies.add(policy.key());
            }
        }
    });
    tasks.spawn(
        "priority classes",
        classes.clone().run(detector.fleet.shutdown.clone()),
    );
}
