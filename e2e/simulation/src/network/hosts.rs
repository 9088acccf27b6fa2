//! Hosts of the fleet API: which of them has the store that counts, and which do not answer.

use std::collections::BTreeMap;

use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::annotation::FLEET_EPOCH;
use muster_test_apiserver::store::Write;

use crate::faults::Way;
use crate::history::Api;
use crate::oracle::objects;

/// The hosts, by their addresses: [`Api::Fleet`] is that of the first one and [`Api::Standby`] that
/// of the second one, whatever they are now.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    is_promoted: bool,
    /// Hosts that are down, and what happens to requests to them.
    down: BTreeMap<Api, Way>,
    /// How often a host came back, with new connections only.
    returns: BTreeMap<Api, u64>,
}

impl Hosts {
    /// Returns what the server at an address is now, and the address of what is asked for.
    pub(super) fn role(&self, api: &Api) -> Api {
        match api {
            Api::Fleet if self.is_promoted => Api::Standby,
            Api::Standby if self.is_promoted => Api::Fleet,
            api => api.clone(),
        }
    }

    /// Takes note of a write at an address; returns whether it promotes the standby.
    pub(super) fn promotes(&mut self, address: &Api, write: &Write<'_>) -> bool {
        let is_epoch = *address == Api::Standby
            && !self.is_promoted
            && write.resource == "/namespaces"
            && write.event.object.head.name() == CLUSTER_NAMESPACE
            && objects::annotation(&write.event.object.value(), FLEET_EPOCH).is_some();
        self.is_promoted |= is_epoch;
        is_epoch
    }

    /// Lets a host die: from now on nothing reaches it.
    pub(super) fn go(&mut self, address: Api, way: Way) {
        self.down.insert(address, way);
    }

    /// Lets a host come back.
    pub(super) fn come(&mut self, address: &Api) {
        if self.down.remove(address).is_some() {
            *self.returns.entry(address.clone()).or_default() += 1;
        }
    }

    /// Returns the state of a host's own end of a connection that began with the given number.
    pub(super) fn way(&self, address: &Api, connection: u64) -> Way {
        if self.connection(address) != connection {
            return Way::Reset;
        }
        self.down.get(address).copied().unwrap_or(Way::Open)
    }

    /// Returns the number that connections to a host have which begin now.
    pub(super) fn connection(&self, address: &Api) -> u64 {
        self.returns.get(address).copied().unwrap_or_default()
    }
}
