//! What one server consists of.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::admission_config::Admission;
use crate::audit::Audit;
use crate::auth::authorize::Access;
use crate::auth::identity::Authority;
use crate::auth::tokens::Known;
use crate::faults::Faults;
use crate::registry::documents::Kept;
use crate::registry::{Registry, Resource};
use crate::store::{Object, Store};
use crate::wire::clock::Clock;

/// Something that happened to an object, for the controllers inside the server.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Group of the resource.
    pub group: String,
    /// Plural of the resource.
    pub plural: String,
    /// The object, in its last state if it is gone.
    pub object: Arc<Object>,
    /// Whether it is gone.
    pub gone: bool,
}

/// The state of one API server.
#[derive(Debug)]
pub struct Server {
    /// A name for logs and certificates.
    pub name: String,
    /// The objects.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// What discovery says of it.
    pub documents: Kept,
    /// Certificates and tokens.
    pub authority: Arc<Authority>,
    /// Webhooks.
    pub admission: Admission,
    /// Who may do what.
    pub access: Access,
    /// Failures on demand.
    pub faults: Faults,
    /// Writes that were asked for.
    pub audit: Audit,
    /// Wall clock.
    pub clock: Clock,
    /// The last cluster address given to a service.
    pub addresses: Mutex<u32>,
    /// Whether lists are streamed to watches that ask for it.
    pub watch_list: bool,
    /// Whether protobuf is written for those who prefer it.
    pub protobuf: bool,
    /// Whether a write concerns controllers.
    pub concerns_controllers: fn(&Resource, &Object) -> bool,
    /// Where the controllers get changes.
    pub notices: mpsc::UnboundedSender<Notice>,
}

impl Server {
    /// Returns what tokens are recognised by.
    pub fn known(&self) -> Known<'_> {
        Known {
            authority: &self.authority,
            store: &self.store,
            now: self.clock.now(),
        }
    }

    /// Notifies the controllers of a write that may concern them.
    pub fn written(&self, resource: &Resource, object: &Arc<Object>) {
        if (self.concerns_controllers)(resource, object) {
            self.notify(resource, object, false);
        }
    }

    /// Notifies the controllers that an object is gone.
    pub fn removed(&self, resource: &Resource, object: &Arc<Object>) {
        self.notify(resource, object, true);
    }

    fn notify(&self, resource: &Resource, object: &Arc<Object>, gone: bool) {
        // Without controllers nobody listens.
        let _ = self.notices.send(Notice {
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            object: Arc::clone(object),
            gone,
        });
    }
}
