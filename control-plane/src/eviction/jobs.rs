//! Asks whether a Job has completed as far as its template says.

use std::fmt;
use std::sync::Arc;

use super::any_binding::AnyBinding;
use crate::fleet::Fleet;
use crate::fleet::completion::{has_completed_by_template, is_job};

type Ask = dyn Fn(&AnyBinding) -> Option<bool> + Send + Sync;

/// The question. Cheap to clone.
///
/// The report of a cluster says it first. It is gone once the cluster's Works are, as when the
/// cluster is taken out of the fleet; a Job that left then would run a second time.
#[derive(Clone)]
pub struct Jobs(Arc<Ask>);

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

impl Jobs {
    /// Jobs of which a function knows.
    pub fn new(ask: impl Fn(&AnyBinding) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// No template says anything.
    pub fn unknown() -> Self {
        Self::new(|_| Some(false))
    }

    /// The Jobs of the fleet.
    pub fn of(fleet: &Arc<Fleet>) -> Self {
        let fleet = Arc::downgrade(fleet);
        Self::new(move |binding| {
            let fleet = fleet.upgrade()?;
            has_completed_by_template(&fleet, &binding.spec().resource)
        })
    }

    /// Whether a workload is a Job that has completed in each of its clusters; `None`: that cannot
    /// be read yet.
    pub fn has_completed(&self, binding: &AnyBinding) -> Option<bool> {
        if is_job(&binding.spec().resource) {
            (self.0)(binding)
        } else {
            Some(false)
        }
    }
}
