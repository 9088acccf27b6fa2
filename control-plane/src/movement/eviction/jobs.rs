//! Asks whether a Job has completed in a cluster.

use std::fmt;
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;

use crate::fleet::Fleet;
use crate::fleet::completion::{has_completed_by_template, is_task};
use crate::movement::eviction::inputs;

/// Whether the template of a Job says that it has completed; `None`: it cannot be read.
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

    /// Makes Jobs of which no template says that they have completed.
    pub fn unknown() -> Self {
        Self::new(|_| Some(false))
    }

    /// Makes the Jobs that the templates of the fleet tell of.
    pub fn of(fleet: &Arc<Fleet>) -> Self {
        let fleet = Arc::downgrade(fleet);
        Self::new(move |binding| {
            let fleet = fleet.upgrade()?;
            has_completed_by_template(&fleet, &binding.spec.resource)
        })
    }

    /// Returns whether a workload is a Job that has completed in a cluster; `None` means that it
    /// cannot be read yet. A cluster that reports something else runs the Job anew, whatever its
    /// template says.
    pub fn has_completed(&self, binding: &AnyBinding, cluster: &str) -> Option<bool> {
        if !is_task(&binding.spec.resource) {
            Some(false)
        } else if inputs::has_report_of(binding, cluster) {
            Some(inputs::has_completed(binding, cluster))
        } else {
            (self.0)(binding)
        }
    }
}
