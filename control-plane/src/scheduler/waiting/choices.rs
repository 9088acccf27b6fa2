//! Which clusters waiting bindings may go to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::{ClusterAffinity, Placement};

use super::group::{Group, GroupKey};
use crate::scheduler::concern::may_choose;

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
    /// The affinities; nothing else of the placement.
    placement: Placement,
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
    /// The choice of a binding.
    pub fn insert(&mut self, spec: &ResourceBindingSpec) -> ChoiceId {
        let placement = spec.placement.as_deref();
        let affinities = placement.map(|it| (&it.cluster_affinity, &it.cluster_affinities));
        let text: Arc<str> = serde_json::to_string(&affinities)
            .expect("affinities have text keys: invariant of their types")
            .into();
        if let Some(id) = self.numbers.get(&text) {
            return *id;
        }
        let placement = placement.map_or_else(Placement::default, |placement| Placement {
            cluster_affinity: placement.cluster_affinity.clone(),
            cluster_affinities: placement.cluster_affinities.clone(),
            ..Placement::default()
        });
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        match names(&placement) {
            Some(names) => names.into_iter().for_each(|name| {
                self.by_name.entry(name.into()).or_default().insert(id);
            }),
            None => {
                self.selecting.insert(id);
            }
        }
        self.numbers.insert(Arc::clone(&text), id);
        let choice = Choice {
            text,
            placement,
            groups: BTreeMap::new(),
        };
        self.known.insert(id, choice);
        id
    }

    pub fn get_mut(&mut self, id: ChoiceId) -> Option<&mut Choice<K>> {
        self.known.get_mut(&id)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChoiceId, &mut Choice<K>)> {
        self.known.iter_mut().map(|(id, choice)| (*id, choice))
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
        for name in names(&choice.placement).into_iter().flatten() {
            if let Some(ids) = self.by_name.get_mut(name) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }

    /// The choices that a cluster belongs to, sorted, and how many were tried to find them.
    pub fn of(&self, cluster: &Cluster) -> (Vec<ChoiceId>, usize) {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let naming = self.by_name.get(name).into_iter().flatten();
        let mut tried = 0;
        let mut chosen = Vec::new();
        for id in naming.chain(&self.selecting) {
            tried += 1;
            if let Some(choice) = self.known.get(id)
                && may_choose(&choice.placement, cluster)
            {
                chosen.push(*id);
            }
        }
        chosen.sort_unstable();
        (chosen, tried)
    }
}

/// The names of all clusters that can be chosen, where affinities list them and they are not many.
fn names(placement: &Placement) -> Option<BTreeSet<&str>> {
    let affinities: Vec<&ClusterAffinity> = match &placement.cluster_affinity {
        Some(affinity) => vec![affinity],
        None => placement
            .cluster_affinities
            .iter()
            .flat_map(|group| {
                let overflow = group.overflow_affinities.iter();
                std::iter::once(&group.cluster_affinity)
                    .chain(overflow.map(|overflow| &overflow.cluster_affinity))
            })
            .collect(),
    };
    let listed: usize = affinities.iter().map(|it| it.cluster_names.len()).sum();
    let is_open = affinities.iter().any(|it| it.cluster_names.is_empty());
    if affinities.is_empty() || is_open || listed > MOST_NAMES {
        return None;
    }
    let names = affinities.into_iter().flat_map(|it| &it.cluster_names);
    Some(names.map(String::as_str).collect())
}
