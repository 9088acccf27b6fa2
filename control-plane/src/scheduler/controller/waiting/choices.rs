//! Which clusters waiting bindings may go to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::Placement;

use super::group::{Group, GroupKey};
use crate::fleet::sets::take;
use crate::scheduler::controller::affected::Choice as Clusters;
use crate::scheduler::core::affinity::affinities;

/// Number of a choice; it is not used again.
pub type ChoiceId = u32;

/// Names of clusters up to which a choice is found by them. Longer lists are tried like selectors.
const MOST_NAMES: usize = 50;

/// The choices of clusters; bindings with equal affinities share one.
#[derive(Debug)]
pub struct Choices<K> {
    next: ChoiceId,
    numbers: HashMap<Arc<str>, ChoiceId>,
    known: BTreeMap<ChoiceId, Choice<K>>,
    /// The choices that list clusters, by the names of these.
    by_name: HashMap<Box<str>, BTreeSet<ChoiceId>>,
    /// All others: each has to be tried.
    selecting: BTreeSet<ChoiceId>,
}

/// One choice of clusters, with the bindings that wait for one of them.
#[derive(Debug)]
pub struct Choice<K> {
    text: Arc<str>,
    clusters: Clusters<'static>,
    /// The names by which it is found, where it is.
    named: Option<Vec<Box<str>>>,
    pub groups: BTreeMap<GroupKey, Group<K>>,
}

impl<K> Default for Choices<K> {
    fn default() -> Self {
        Self {
            next: 0,
            numbers: HashMap::new(),
            known: BTreeMap::new(),
            by_name: HashMap::new(),
            selecting: BTreeSet::new(),
        }
    }
}

impl<K> Choices<K> {
    /// Adds the choice of a binding, and returns its number.
    pub fn insert(&mut self, spec: &ResourceBindingSpec) -> ChoiceId {
        let placement = spec.placement.as_deref();
        let affinities = placement.map(|it| (&it.cluster_affinity, &it.cluster_affinities));
        let text: Arc<str> = serde_json::to_string(&affinities)
            .expect("affinities have text keys: invariant of their types")
            .into();
        if let Some(id) = self.numbers.get(&text) {
            return *id;
        }
        let any = Placement::default();
        let placement = placement.unwrap_or(&any);
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let named = names(placement);
        if named.is_none() {
            self.selecting.insert(id);
        }
        for name in named.iter().flatten() {
            self.by_name.entry(name.clone()).or_default().insert(id);
        }
        self.numbers.insert(Arc::clone(&text), id);
        let choice = Choice {
            text,
            clusters: Clusters::of(placement).into_owned(),
            named,
            groups: BTreeMap::new(),
        };
        self.known.insert(id, choice);
        id
    }

    pub fn get_mut(&mut self, id: ChoiceId) -> Option<&mut Choice<K>> {
        self.known.get_mut(&id)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Forgets a choice with which nobody waits any more.
    pub fn remove_unused(&mut self, id: ChoiceId) {
        if !self.known.get(&id).is_some_and(|it| it.groups.is_empty()) {
            return;
        }
        let Some(choice) = self.known.remove(&id) else {
            return;
        };
        self.numbers.remove(&choice.text);
        self.selecting.remove(&id);
        for name in choice.named.into_iter().flatten() {
            take(&mut self.by_name, &name, &id);
        }
    }

    /// Returns the choices that a cluster belongs to, sorted, and how many were tried to find them.
    pub fn of(&self, cluster: &Cluster) -> (Vec<ChoiceId>, usize) {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let naming = self.by_name.get(name).into_iter().flatten();
        let mut tried = 0;
        let mut chosen = Vec::new();
        for id in naming.chain(&self.selecting) {
            tried += 1;
            if let Some(choice) = self.known.get(id)
                && choice.clusters.has(cluster)
            {
                chosen.push(*id);
            }
        }
        chosen.sort_unstable();
        (chosen, tried)
    }
}

/// Returns the names of all clusters that can be chosen, where affinities list them and they are
/// not many.
fn names(placement: &Placement) -> Option<Vec<Box<str>>> {
    let mut names = BTreeSet::new();
    let mut is_open = true;
    for affinity in affinities(placement) {
        is_open = affinity.cluster_names.is_empty();
        names.extend(affinity.cluster_names.iter().map(String::as_str));
        if is_open || names.len() > MOST_NAMES {
            return None;
        }
    }
    (!is_open).then(|| names.into_iter().map(Box::from).collect())
}
