//! Decides which Cluster registered a member first, if two have the same `spec.id`.
//!
//! Karmada's agent lists all Clusters to find out, which requires the right to see them. An agent
//! whose rights are limited to its own Cluster cannot. Here the control plane decides, and sets a
//! condition on the Cluster that came later; the agent of that Cluster reads it and applies
//! nothing.
//!
//! The first holder of an id is recorded in an annotation of the Cluster's execution namespace,
//! which agents cannot write, so that no agent can take over another's id while the control plane
//! is down.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::{Condition, Namespace};
use muster_shared::names::condition::UNIQUE_IDENTITY;
use parking_lot::Mutex;

use crate::fleet::sets::take;

/// Claim of a Cluster to be a certain member. Their order is that of their rights to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Whether the execution namespace of the Cluster does not have the id.
    pub unrecorded: bool,
    /// Whether the Cluster already has `UniqueIdentity`=False. Keeps the decision stable across
    /// restarts of the control plane, which lose `since`.
    pub refused: bool,
    /// When we saw it claim the id, by our count; 0 when it did before we began to watch. An old
    /// Cluster that takes another's id on comes later than that one, whatever their ages.
    pub since: u64,
    /// Time at which the Cluster was created.
    pub created: Option<Timestamp>,
    /// Its name.
    pub name: String,
}

/// The annotation of an execution namespace: the id that its Cluster held first, as `spec.id` has
/// it.
pub const RECORD: &str = "clusters.muster.io/id";

/// Returns whether the id of a Cluster is to be written upon its execution namespace: this Cluster
/// is the first to hold the id, and that is not written yet.
pub fn is_to_be_recorded(cluster: &Cluster, claims: &[Claim], namespace: &Namespace) -> bool {
    let id = cluster.spec.id.as_deref().filter(|id| !id.is_empty());
    let first = claims.iter().min();
    id.is_some()
        && first.is_some_and(|first| first.name == cluster.name_any())
        && recorded(namespace) != id
}

/// Returns the id that an execution namespace says its Cluster held first.
pub fn recorded(namespace: &Namespace) -> Option<&str> {
    namespace.annotations().get(RECORD).map(String::as_str)
}

/// Returns the condition about the identity of a Cluster; `None` as long as there was never a
/// doubt.
pub fn judge(cluster: &Cluster, claims: &[Claim], now: Timestamp) -> Option<Condition> {
    let name = cluster.name_any();
    let known = cluster.condition(UNIQUE_IDENTITY);
    let observation = match claims.iter().min() {
        Some(first) if first.name != name => {
            let message = format!(
                "this member (id {:?}) is registered already, under the name {:?}; delete the Cluster that is wrong",
                cluster.spec.id.as_deref().unwrap_or_default(),
                first.name
            );
            conditions::new(UNIQUE_IDENTITY, FALSE, "RegisteredAlready", &message, now)
        }
        _ if known.is_some() => {
            let message = "no other Cluster has this id";
            conditions::new(UNIQUE_IDENTITY, TRUE, "OnlyRegistration", message, now)
        }
        _ => return None,
    };
    conditions::is_update(known, &observation).then_some(observation)
}

/// Who claims which id, and whose id is recorded. A Cluster that could not be read since this
/// process began has no claim here; what it held is known from its execution namespace.
#[derive(Debug, Default)]
pub struct Identities {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: u64,
    holders: HashMap<String, BTreeSet<String>>,
    claims: HashMap<String, (String, u64)>,
    /// The clusters by the ids that are recorded on their execution namespaces.
    recorded: HashMap<String, BTreeSet<String>>,
    records: HashMap<String, String>,
}

impl Identities {
    /// Takes note of a Cluster's id; `known_before` for what the first list shows. Gives the others
    /// whose case that changes.
    pub fn note(&self, name: &str, id: Option<&str>, known_before: bool) -> Vec<String> {
        let mut inner = self.inner.lock();
        let id = id.filter(|id| !id.is_empty());
        let before = inner.claims.get(name).map(|(id, _)| id.clone());
        if before.as_deref() == id {
            return Vec::new();
        }
        if let Some(before) = &before {
            inner.claims.remove(name);
            take(&mut inner.holders, before, name);
        }
        if let Some(id) = id {
            if !known_before {
                inner.count += 1;
            }
            let since = if known_before { 0 } else { inner.count };
            inner.claims.insert(name.to_owned(), (id.to_owned(), since));
            let holders = inner.holders.entry(id.to_owned()).or_default();
            holders.insert(name.to_owned());
        }
        inner.others(name, [before.as_deref(), id])
    }

    /// Takes note of the id that is recorded on the execution namespace of a Cluster. Gives the
    /// others whose case that changes.
    pub fn note_record(&self, name: &str, id: Option<&str>) -> Vec<String> {
        let mut inner = self.inner.lock();
        let before = inner.records.get(name).cloned();
        if before.as_deref() == id {
            return Vec::new();
        }
        if let Some(before) = &before {
            inner.records.remove(name);
            take(&mut inner.recorded, before, name);
        }
        if let Some(id) = id {
            inner.records.insert(name.to_owned(), id.to_owned());
            let recorded = inner.recorded.entry(id.to_owned()).or_default();
            recorded.insert(name.to_owned());
        }
        inner.others(name, [before.as_deref(), id])
    }

    /// Takes note that a Cluster has gone, which may never have been read. Gives the others whose
    /// case that changes.
    pub fn note_departure(&self, name: &str) -> Vec<String> {
        let mut others = self.note(name, None, false);
        let inner = self.inner.lock();
        let recorded = inner.records.get(name).map(String::as_str);
        others.extend(inner.others(name, [None, recorded]));
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Returns the Clusters that claim the same id as a Cluster, itself included, with the time
    /// when each claim was seen; and those that claim nothing and on whose execution namespace the
    /// id is recorded.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let inner = self.inner.lock();
        let Some((id, _)) = inner.claims.get(name) else {
            return Vec::new();
        };
        let holders = inner.holders.get(id).into_iter().flatten();
        let recorded = inner.recorded.get(id).into_iter().flatten();
        let unread = recorded.filter(|name| !inner.claims.contains_key(*name));
        let since = |name: &String| inner.claims.get(name).map_or(0, |(_, since)| *since);
        let all: BTreeSet<_> = holders.chain(unread).collect();
        all.into_iter()
            .map(|name| (name.clone(), since(name)))
            .collect()
    }
}

impl Inner {
    /// Returns the other Clusters that claim one of these ids, each once.
    fn others(&self, name: &str, ids: [Option<&str>; 2]) -> Vec<String> {
        let ids = ids.into_iter().flatten();
        let holders = ids.filter_map(|id| self.holders.get(id)).flatten();
        let others: BTreeSet<_> = holders.filter(|it| *it != name).collect();
        others.into_iter().cloned().collect()
    }
}

/// Returns the claim of a Cluster that was first seen with it at `since`, with what its execution
/// namespace records.
pub fn claim(cluster: &Cluster, namespace: Option<&Namespace>, since: u64) -> Claim {
    let refused = cluster.condition(UNIQUE_IDENTITY);
    let (id, name) = (cluster.spec.id.as_deref(), cluster.name_any());
    Claim {
        refused: refused.is_some_and(|condition| condition.status == FALSE),
        created: cluster.creation_timestamp().map(|time| time.0),
        ..unread_claim(&name, id, namespace, since)
    }
}

/// Returns the claim of a Cluster that claimed an id and cannot be read any more. As far as anybody
/// knows, it has not given the id up.
pub fn unread_claim(
    name: &str,
    id: Option<&str>,
    namespace: Option<&Namespace>,
    since: u64,
) -> Claim {
    Claim {
        unrecorded: id.is_none() || namespace.and_then(recorded) != id,
        refused: false,
        since,
        created: Some(Timestamp::MAX),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
