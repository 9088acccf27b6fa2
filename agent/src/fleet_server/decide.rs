//! Decides which server of the fleet API may be obeyed. Pure.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use muster_shared::fleet_epoch;
use muster_shared::fleet_id::FleetId;
use muster_shared::fleet_servers::{self, FleetServer};
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::annotation::FLEET_SERVERS;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Record in the member about the fleet that the agent obeys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Remembered {
    /// Highest epoch that the agent has seen.
    pub epoch: u64,
    /// Name of the store that had it, as the list of servers names it.
    pub store: String,
    /// Id of the fleet; empty while it is not known.
    pub fleet: String,
    /// Addresses that the fleet has published.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "readable")]
    pub servers: Vec<FleetServer>,
}

/// Reads the addresses that this version understands, without fields of later versions: the epoch
/// beside them holds whatever they say.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<FleetServer>, D::Error> {
    let fields = ["server", "caData", "caFile", "store"];
    let all = Option::<Vec<Value>>::deserialize(from)?.unwrap_or_default();
    let understood = all.into_iter().filter_map(|mut server| {
        let known = server.as_object_mut()?;
        known.retain(|field, _| fields.contains(&&**field));
        serde_json::from_value(server).ok()
    });
    Ok(understood.collect())
}

impl Remembered {
    /// Returns whether a record of it is needed: a store of the first epoch at the one address of
    /// the kubeconfig is obeyed without.
    pub fn is_needed(&self, configured: &[FleetServer]) -> bool {
        self.epoch > 0 || !self.servers.is_empty() || !configured.is_empty()
    }

    /// Names the store anew where no address names it any more, or none did: it is that of the most
    /// preferred address.
    pub fn name_store(&mut self, candidates: &[Candidate]) {
        let mut stores = candidates.iter().map(|it| &it.server.store);
        if stores.all(|it| *it != self.store)
            && let Some(first) = candidates.first()
        {
            self.store.clone_from(&first.server.store);
        }
    }

    /// Takes in what a store says that is obeyed.
    pub fn learn(&self, candidate: &Candidate, said: &Said) -> Self {
        Self {
            epoch: said.epoch,
            store: candidate.server.store.clone(),
            fleet: said.fleet.clone().unwrap_or_else(|| self.fleet.clone()),
            servers: said.servers.clone().unwrap_or_else(|| self.servers.clone()),
        }
    }
}

/// A server that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Address of the server, and its store.
    pub server: FleetServer,
    /// Whether it is that of the kubeconfig.
    pub is_own: bool,
}

/// Returns the servers to ask, in order of preference: those of the settings and then those that
/// the fleet has published. The server of the kubeconfig is the first unless the settings name it
/// elsewhere.
pub fn candidates(
    own: &str,
    configured: &[FleetServer],
    published: &[FleetServer],
) -> Vec<Candidate> {
    let own = own.trim_end_matches('/');
    let mut servers: Vec<FleetServer> = configured.to_vec();
    for server in published {
        if servers.iter().all(|it| it.address() != server.address()) {
            servers.push(server.clone());
        }
    }
    if servers.iter().all(|it| it.address() != own) {
        // The own server is in the store of the most preferred address, unless the list says
        // otherwise.
        let store = servers.first().map(|it| it.store.clone());
        let first = FleetServer {
            server: own.to_owned(),
            store: store.unwrap_or_default(),
            ..FleetServer::default()
        };
        servers.insert(0, first);
    }
    let candidates = servers.into_iter().map(|server| Candidate {
        is_own: server.address() == own,
        server,
    });
    candidates.collect()
}

/// Statement of a store about itself, on the namespace `karmada-cluster`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Epoch of the store.
    pub epoch: u64,
    /// Id of the fleet, if it is known.
    pub fleet: Option<String>,
    /// All ids of the fleet.
    accepted: BTreeSet<String>,
    /// Addresses of the fleet, where there is a list that can be read.
    pub servers: Option<Vec<FleetServer>>,
    /// Parts that cannot be read.
    pub problems: Vec<String>,
}

impl Said {
    /// Reads what the namespace says; `None` for one that is missing, as in a store that no control
    /// plane has seen yet.
    pub fn of(namespace: Option<&ObjectMeta>) -> Self {
        let Some(namespace) = namespace else {
            return Self::default();
        };
        let mut problems = Vec::new();
        let epoch = fleet_epoch::of(namespace).unwrap_or_else(|problem| {
            problems.push(problem);
            0
        });
        let (fleet, accepted) = match FleetId::of(Some(namespace), None) {
            FleetId::Known { id, accepted, .. } => (Some(id), accepted),
            FleetId::Unknown(_) => (None, BTreeSet::new()),
        };
        let published = namespace.annotations.as_ref();
        let published = published.and_then(|it| it.get(FLEET_SERVERS));
        let servers = published.and_then(|text| match fleet_servers::read(text) {
            Ok(servers) => Some(servers),
            Err(problem) => {
                problems.push(problem);
                None
            }
        });
        Self {
            epoch,
            fleet,
            accepted,
            servers,
            problems,
        }
    }
}

/// Returns whether a store takes the place of the one that the agent obeys and that answers: it is
/// of the same fleet, and was promoted since.
pub fn takes_over(remembered: &Remembered, said: &Said) -> bool {
    said.epoch > remembered.epoch && said.accepted.contains(&remembered.fleet)
}

/// Conclusion about a server that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server serves the store that the agent obeys.
    Same,
    /// The server serves a store that the agent obeys from now on, and did not obey before.
    New,
    /// The server is not obeyed, for this reason.
    Refused(Refusal),
}

/// Reason why a server is not obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The store of the server is older than one that the agent has seen.
    #[error(
        "its store has epoch {epoch}, and this agent has seen epoch {seen} of the fleet: a standby was promoted. Nothing is \
         applied or reported there. Stop what is left of the former host; where this store is the one to go on with, run \
         `kubectl muster promote --epoch {}` against it", seen.saturating_add(1)
    )]
    Older {
        /// Epoch of the server's store.
        epoch: u64,
        /// Highest epoch that the agent has seen.
        seen: u64,
    },
    /// The server serves another store of the same epoch.
    #[error(
        "its store {store:?} has epoch {epoch} as store {obeyed:?} has, which this agent obeys: it is a standby that was not \
         promoted. If store {obeyed:?} is lost, run `kubectl muster promote` against it"
    )]
    Standby {
        /// Name of the server's store.
        store: String,
        /// Name of the store that the agent obeys.
        obeyed: String,
        /// Epoch of both.
        epoch: u64,
    },
    /// The server serves another fleet, or does not say which one.
    #[error(
        "it is not the API of this fleet: the id of its fleet is {found:?}, and that of this one {known:?} (annotation \
         fleet.muster.io/id of namespace karmada-cluster)"
    )]
    OtherFleet {
        /// Id of the server's fleet; empty if it says none.
        found: String,
        /// Id of the fleet that the agent obeys.
        known: String,
    },
}

/// Judges a server by what it says and by what the agent remembers.
///
/// The server of the kubeconfig may lead to another fleet, because an operator has changed it. Any
/// other has to be of the fleet that is known.
pub fn judge(remembered: &Remembered, candidate: &Candidate, said: &Said) -> Verdict {
    let known = &remembered.fleet;
    if !known.is_empty() && !said.accepted.contains(known) {
        match &said.fleet {
            // Epochs of two fleets cannot be compared.
            Some(_) if candidate.is_own && said.epoch != remembered.epoch => return Verdict::New,
            // An operator may publish another id, and a namespace may be read before any.
            _ if candidate.is_own => {}
            found => {
                return Verdict::Refused(Refusal::OtherFleet {
                    found: found.clone().unwrap_or_default(),
                    known: known.clone(),
                });
            }
        }
    }
    let store = &candidate.server.store;
    match said.epoch.cmp(&remembered.epoch) {
        Ordering::Greater => Verdict::New,
        Ordering::Less => Verdict::Refused(Refusal::Older {
            epoch: said.epoch,
            seen: remembered.epoch,
        }),
        Ordering::Equal if *store == remembered.store => Verdict::Same,
        Ordering::Equal => Verdict::Refused(Refusal::Standby {
            store: store.clone(),
            obeyed: remembered.store.clone(),
            epoch: said.epoch,
        }),
    }
}

#[cfg(test)]
mod tests;
