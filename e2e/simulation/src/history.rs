//! The history of a simulation: what happened, in order, with the time of each.
//!
//! A history is appended to and never edited. It holds the requests that change an API, whatever
//! came of them, and the truth of the world that no API object has: which process ran, which
//! network was cut, what a person did. Each entry has one line of canonical JSON, whose keys are in
//! order because the fields of the types are in that order here, and the digest of a history is
//! that of its lines, so that two runs of a seed can be compared.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::Timestamp;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened, in order.
#[derive(Clone)]
pub struct History {
    entries: Vec<Entry>,
    digest: Context,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Virtual time.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// A request to change an API.
    Request(Request),
    /// An event that no API shows.
    World(World),
}

/// A request to change an API. Requests that only read are no part of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Who asked.
    pub actor: Actor,
    /// The object after; none if there is none any more. The same as `before` unless the outcome
    /// is [`Outcome::Committed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Arc<Value>>,
    /// Whether the caller got the answer. A request that the network lost was answered to nobody.
    #[serde(skip_serializing_if = "is_true")]
    pub answered: bool,
    /// The API server that was asked.
    pub api: Api,
    /// The object before; none if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Arc<Value>>,
    /// Name of the object. Of a collection that was deleted, each object has its own entry.
    pub name: String,
    /// Namespace of the object; none for objects of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// The kind of object.
    pub resource: Resource,
    /// What was asked.
    pub verb: Verb,
}

/// An API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Api {
    /// The fleet API.
    Fleet,
    /// The API of a member cluster, by the name of its Cluster.
    Member(String),
    /// The fleet API of another host, which is not the one to obey: the standby before its
    /// promotion, and the former host after it.
    Standby,
}

/// Who makes requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Actor {
    /// A process of the product.
    Process(Process),
    /// A person, or a program that acts for one.
    Person(String),
    /// What an API server, its built-in controllers included, does by itself: garbage collection,
    /// the removal of namespaces.
    Server,
    /// What runs a cluster's workloads: the kubelets and the workload controllers.
    Workloads,
    /// What sets the world up before its first moment, and restores stores.
    Setup,
}

/// A process of the product.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Process {
    /// A replica of the control plane.
    ControlPlane(u8),
    /// The agent of a member cluster.
    Agent(String),
}

/// What is asked of an API, in the words of Kubernetes' audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH of any type, server-side apply included.
    Patch,
    /// DELETE of one object, or of one of a collection.
    Delete,
}

/// A kind of object as it is in paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// API group; empty for core.
    pub group: String,
    /// Plural name.
    pub plural: String,
    /// Subresource; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The state of the API changed.
    Committed,
    /// The request was accepted and the state is as before: a dry run, or a write without a change.
    Unchanged,
    /// The API refused.
    Refused(u16),
    /// The request never reached the API.
    Lost,
}

/// An event of the world: the truth that no API object has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum World {
    /// A fault begins.
    FaultBegins {
        /// What it is exactly.
        detail: Value,
        /// The number of the fault in the plan.
        id: u64,
        /// Its kind, for tables: `partition`, `lag`, `refuse`.
        kind: String,
    },
    /// A fault ends.
    FaultEnds {
        /// The number of the fault.
        id: u64,
    },
    /// A process started.
    Started(Process),
    /// A process ended: killed, or asked to stop.
    Stopped {
        /// Whether it was killed, so that it could not finish anything.
        killed: bool,
        /// Which one.
        process: Process,
    },
    /// The agent of a cluster and the fleet API cannot reach each other from now on.
    CutOff(String),
    /// They can again.
    Healed(String),
    /// A cluster's own API or its nodes are down: what runs there is not served to anybody.
    Down(String),
    /// The cluster is up again.
    Up(String),
    /// A person does something; the requests follow as entries of their own.
    Step {
        /// The number of the step in the plan.
        id: u64,
        /// The step, as in the plan.
        step: Value,
    },
    /// The standby was promoted: from now on its store is that of the fleet API.
    Promoted,
    /// A part of the simulation begins.
    Phase(Phase),
    /// A remark for who reads the history.
    Mark(String),
}

/// The parts of a simulation, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The world is set up; nothing is checked.
    Setup,
    /// People act and faults happen.
    Busy,
    /// No faults and no steps of people any more. The fleet converges.
    Calm,
    /// The fleet must have converged: from now on it writes nothing but leases.
    Rest,
    /// Each process was started anew: it accepts the state as it is and writes nothing but leases.
    Fresh,
}

/// What an object is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The API server.
    pub api: Api,
    /// API group; empty for core.
    pub group: String,
    /// Plural name.
    pub plural: String,
    /// Namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Default for History {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            digest: Context::new(&SHA256),
        }
    }
}

impl History {
    /// Appends an entry.
    pub fn push(&mut self, entry: Entry) -> &Entry {
        self.digest.update(entry.line().as_bytes());
        self.digest.update(b"\n");
        self.entries.push(entry);
        &self.entries[self.entries.len() - 1]
    }

    /// Returns the entries, the oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the SHA-256 of the lines of all entries, in hexadecimal.
    pub fn digest(&self) -> String {
        let sum = self.digest.clone().finish();
        sum.as_ref().iter().fold(String::new(), |mut text, byte| {
            use fmt::Write;
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("entries", &self.entries.len())
            .field("digest", &self.digest())
            .finish()
    }
}

impl Entry {
    /// Returns the entry as one line of JSON whose keys are in order.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| error.to_string())
    }

    /// Returns the request, if the entry is one.
    pub fn request(&self) -> Option<&Request> {
        match &self.event {
            Event::Request(request) => Some(request),
            Event::World(_) => None,
        }
    }

    /// Returns the request, if the entry is one that changed the state of an API.
    pub fn commit(&self) -> Option<&Request> {
        self.request()
            .filter(|request| request.outcome == Outcome::Committed)
    }

    /// Returns the event of the world, if the entry is one.
    pub fn world(&self) -> Option<&World> {
        match &self.event {
            Event::World(world) => Some(world),
            Event::Request(_) => None,
        }
    }
}

impl Request {
    /// Returns the key by which the object is known.
    pub fn key(&self) -> Key {
        Key {
            api: self.api.clone(),
            group: self.resource.group.clone(),
            plural: self.resource.plural.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone(),
        }
    }
}

impl Resource {
    /// Returns a kind of object.
    pub fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            subresource: String::new(),
        }
    }

    /// Returns a subresource of the kind.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }
}

impl Display for Api {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("fleet"),
            Self::Member(name) => f.write_str(name),
            Self::Standby => f.write_str("standby"),
        }
    }
}

impl Display for Actor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => process.fmt(f),
            Self::Person(name) => f.write_str(name),
            Self::Server => f.write_str("server"),
            Self::Workloads => f.write_str("workloads"),
            Self::Setup => f.write_str("setup"),
        }
    }
}

impl Display for Process {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane(number) => write!(f, "control-plane/{number}"),
            Self::Agent(name) => write!(f, "agent/{name}"),
        }
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.api, self.plural)?;
        for part in [&self.namespace, &self.name] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

// The signature that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_true(value: &bool) -> bool {
    *value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_every_entry_are_declared_in_the_order_of_their_keys() {
        let Event::Request(request) = write(json!({"b": [{"d": 1, "c": null}], "a": 1})).event
        else {
            panic!("a request");
        };
        let agent = || Process::Agent("m1".to_owned());
        let member = || "m1".to_owned();
        let events = [
            Event::Request(Request {
                before: Some(Arc::new(json!({"z": {}, "y": 0.5}))),
                resource: request.resource.clone().subresource("status"),
                outcome: Outcome::Refused(409),
                answered: false,
                api: Api::Member(member()),
                ..request
            }),
            Event::World(World::FaultBegins {
                detail: json!({"share": 1, "actor": "server"}),
                id: 1,
                kind: "garble".to_owned(),
            }),
            Event::World(World::FaultEnds { id: 1 }),
            Event::World(World::Started(agent())),
            Event::World(World::Stopped {
                killed: true,
                process: agent(),
            }),
            Event::World(World::CutOff(member())),
            Event::World(World::Step {
                id: 1,
                step: json!({"id": 1, "at": 5}),
            }),
            Event::World(World::Phase(Phase::Busy)),
        ];
        for event in events {
            let entry = Entry {
                at: Timestamp::UNIX_EPOCH,
                event,
            };
            // A `Value` sorts the keys of its objects.
            let sorted = serde_json::to_value(&entry).expect("JSON").to_string();
            assert_eq!(entry.line(), sorted);
        }
    }

    fn write(after: Value) -> Entry {
        Entry {
            at: "2026-01-01T00:00:00Z".parse().expect("a time"),
            event: Event::Request(Request {
                api: Api::Fleet,
                actor: Actor::Process(Process::ControlPlane(0)),
                verb: Verb::Patch,
                resource: Resource::new("work.karmada.io", "resourcebindings"),
                namespace: Some("default".to_owned()),
                name: "web".to_owned(),
                before: None,
                after: Some(Arc::new(after)),
                outcome: Outcome::Committed,
                answered: true,
            }),
        }
    }
}
