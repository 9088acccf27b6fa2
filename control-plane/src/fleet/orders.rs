//! Question whether a Work could be made for a workload in a cluster, which is answered by the part
//! that makes Works.

use std::fmt;
use std::sync::OnceLock;

use muster_shared::api::binding::ResourceBindingSpec;

/// Returns why no Work could be made for a workload in a cluster, if so.
type Refuse = dyn Fn(&ResourceBindingSpec, &str) -> Option<String> + Send + Sync;

/// The part that makes Works, as those see it who choose clusters.
#[derive(Default)]
pub struct Orders(OnceLock<Box<Refuse>>);

impl Orders {
    /// Has the question answered from now on; only the first answerer counts.
    pub fn answer(
        &self,
        refuse: impl Fn(&ResourceBindingSpec, &str) -> Option<String> + Send + Sync + 'static,
    ) {
        _ = self.0.set(Box::new(refuse));
    }

    /// Returns why no Work could be made for a workload in a cluster; `None` where one could be, or
    /// where this process makes no Works.
    pub fn refuse(&self, spec: &ResourceBindingSpec, cluster: &str) -> Option<String> {
        self.0.get().and_then(|refuse| refuse(spec, cluster))
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").finish_non_exhaustive()
    }
}
