//! Webhooks and policies as they are configured: parsed when they change, with what they are about.

pub mod client;
pub mod hooks;
pub mod matching;
pub mod policies;
pub mod review;

use std::sync::Arc;

use parking_lot::RwLock;

use crate::store::{Collection, Store};
use hooks::Hook;
use policies::Policies;

/// The webhooks and policies of a server.
#[derive(Debug)]
pub struct Admission {
    /// Policies with their bindings.
    pub policies: Policies,
    /// Webhooks that may change objects.
    pub mutating: Configurations,
    /// Webhooks that may only refuse.
    pub validating: Configurations,
}

/// Configurations of one kind, parsed as of a version.
#[derive(Debug)]
pub struct Configurations {
    collection: Arc<Collection>,
    parsed: RwLock<(u64, Arc<[Hook]>)>,
}

impl Configurations {
    fn new(store: &Store, plural: &str) -> Self {
        Self {
            collection: store.collection(&format!("admissionregistration.k8s.io/{plural}")),
            parsed: RwLock::new((0, Arc::new([]))),
        }
    }

    /// Returns the webhooks as of now. Where there never was a configuration, it returns `None` and
    /// compares no further.
    pub fn hooks(&self) -> Option<Arc<[Hook]>> {
        let latest = self.collection.latest_version();
        if latest == 0 {
            return None;
        }
        let parsed = self.parsed.read();
        let (version, mut hooks) = (parsed.0, Arc::clone(&parsed.1));
        drop(parsed);
        if version != latest {
            hooks = hooks::read(&self.collection);
            let mut parsed = self.parsed.write();
            *parsed = (latest, Arc::clone(&hooks));
        }
        (!hooks.is_empty()).then_some(hooks)
    }
}

impl Admission {
    /// Returns the webhooks and policies whose configurations are in the store.
    pub fn new(store: &Store) -> Self {
        Self {
            policies: Policies::new(store),
            mutating: Configurations::new(store, "mutatingwebhookconfigurations"),
            validating: Configurations::new(store, "validatingwebhookconfigurations"),
        }
    }
}
