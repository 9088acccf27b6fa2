//! Questions that one part asks and another one answers, which lies above it: whether a Work could
//! be made for a workload in a cluster, and whether a workload needs an object.

use std::fmt;
use std::sync::OnceLock;

use muster_shared::api::binding::ResourceBindingSpec;

use super::template::{Template, TemplateKey};

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

/// Part that knows what workloads need.
pub trait Needed: Send + Sync {
    /// Returns whether a workload needs a template.
    fn has(&self, key: &TemplateKey, template: &Template) -> bool;

    /// Returns whether it is not known yet of a workload in a namespace what it needs.
    fn is_open(&self, namespace: &str) -> bool;
}

/// The part that knows what workloads need, as those see it who remove objects.
#[derive(Default)]
pub struct Needs(OnceLock<Box<dyn Needed>>);

impl Needs {
    /// Has the questions answered from now on; only the first answerer counts.
    pub fn answer(&self, needed: impl Needed + 'static) {
        _ = self.0.set(Box::new(needed));
    }

    /// Returns whether a workload needs a template; it does not where this process distributes no
    /// dependencies.
    pub fn has(&self, key: &TemplateKey, template: &Template) -> bool {
        self.0.get().is_some_and(|it| it.has(key, template))
    }

    /// Returns whether it is not known yet of a workload in a namespace what it needs.
    pub fn is_open(&self, namespace: &str) -> bool {
        self.0.get().is_some_and(|it| it.is_open(namespace))
    }
}

impl fmt::Debug for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needs").finish_non_exhaustive()
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").finish_non_exhaustive()
    }
}
