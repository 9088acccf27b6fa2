//! Snapshot of all clusters for one decision: immutable, cheap to share, with everything parsed
//! that every decision would otherwise parse again.

use std::collections::BTreeSet;
use std::sync::Arc;

use fnv::FnvHashMap;
use muster_shared::api::cluster::{APIEnablement, Cluster};
use muster_shared::conditions;
use muster_shared::names::condition;
use muster_shared::taints::keeps_away;
use muster_shared::watch::{Departed, Doubt, Presence};

use super::capacity::{Capacity, Load};
use super::data::DataPlaces;
use crate::fleet::availability;

/// All clusters at one moment, by name. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    facts: Arc<Vec<Arc<ClusterInfo>>>,
    /// Where each name is among them: looked up for every target of every binding. Names of
    /// clusters are short and given by administrators, so that nobody profits from making them
    /// collide; the standard hasher, which guards against that, takes most of the time of a lookup.
    places: Arc<FnvHashMap<Box<str>, usize>>,
    /// The clusters that were seen leaving.
    departed: Arc<Departed>,
    /// Names of clusters that take nothing which they do not have.
    closed: Arc<BTreeSet<String>>,
    /// Clusters that have the data of workloads.
    data: DataPlaces,
}

impl Snapshot {
    /// Returns the snapshot of these clusters.
    pub fn new(clusters: impl IntoIterator<Item = Arc<Cluster>>) -> Self {
        let mut facts: Vec<Arc<ClusterInfo>> = Vec::new();
        for cluster in clusters {
            let known = facts.last().map(AsRef::as_ref);
            facts.push(Arc::new(ClusterInfo::new(cluster, known, &facts)));
        }
        facts.sort_by(|a, b| a.name().cmp(b.name()));
        facts.dedup_by(|a, b| a.name() == b.name());
        let places = facts.iter().map(|facts| facts.name().into()).zip(0..);
        Self {
            places: Arc::new(places.collect()),
            facts: Arc::new(facts),
            departed: Arc::default(),
            closed: Arc::default(),
            data: DataPlaces::default(),
        }
    }

    /// Returns the same clusters, with what is known of the data of workloads.
    #[must_use]
    pub fn with_data(self, data: DataPlaces) -> Self {
        Self { data, ..self }
    }

    /// Returns where the data of workloads is.
    pub(in crate::scheduler) fn data(&self) -> &DataPlaces {
        &self.data
    }

    /// Returns the same clusters, of which one takes nothing that it does not have.
    #[must_use]
    pub fn closing(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.closed).insert(name.to_owned());
        self
    }

    /// Returns whether a cluster takes nothing that it does not have.
    pub(in crate::scheduler) fn is_closed(&self, name: &str) -> bool {
        !self.closed.is_empty() && self.closed.contains(name)
    }

    /// Puts a cluster in, in place of an earlier state of it. Whoever shares the earlier snapshot
    /// keeps that.
    pub fn put(&mut self, cluster: Arc<Cluster>) {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let known = self.position(name);
        let earlier = known.map(|position| self.facts[position].as_ref());
        let facts = Arc::new(ClusterInfo::new(cluster, earlier, &self.facts));
        if self.departed.is_gone(None, facts.name()) {
            Arc::make_mut(&mut self.departed).forget(None, facts.name());
        }
        if let Some(position) = known {
            Arc::make_mut(&mut self.facts)[position] = facts;
            return;
        }
        let before = |other: &Arc<ClusterInfo>| other.name() < facts.name();
        let position = self.facts.partition_point(before);
        let places = Arc::make_mut(&mut self.places);
        let later = places.values_mut().filter(|place| **place >= position);
        later.for_each(|place| *place += 1);
        places.insert(facts.name().into(), position);
        Arc::make_mut(&mut self.facts).insert(position, facts);
    }

    /// Takes the room of some pods off a cluster, until it is put in anew.
    pub fn occupy(&mut self, name: &str, load: &Load) {
        let Some(position) = self.position(name) else {
            return;
        };
        let facts = Arc::make_mut(&mut Arc::make_mut(&mut self.facts)[position]);
        if let Some(capacity) = &mut facts.capacity {
            capacity.take(load);
        }
    }

    /// Takes a cluster out that was seen leaving the fleet.
    pub fn depart(&mut self, name: &str) {
        self.remove(name);
        Arc::make_mut(&mut self.departed).insert(None, name);
    }

    /// Takes a cluster out of which nobody knows whether it left.
    pub fn remove(&mut self, name: &str) {
        if let Some(position) = self.position(name) {
            Arc::make_mut(&mut self.facts).remove(position);
            let places = Arc::make_mut(&mut self.places);
            places.remove(name);
            let later = places.values_mut().filter(|place| **place > position);
            later.for_each(|place| *place -= 1);
        }
    }

    /// Returns how many clusters there are, those being deleted included.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Returns whether there is no cluster at all.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Returns the clusters by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ClusterInfo> {
        self.facts.iter().map(AsRef::as_ref)
    }

    /// Returns the cluster of this name.
    pub fn get(&self, name: &str) -> Option<&ClusterInfo> {
        self.position(name)
            .map(|position| self.facts[position].as_ref())
    }

    /// Returns whether the cluster of this name is there, left, or is unknown.
    pub fn presence(&self, name: &str) -> Presence<&ClusterInfo> {
        match self.get(name) {
            Some(facts) => Presence::There(facts),
            None if self.departed.is_gone(None, name) => Presence::Gone,
            None => Presence::Unknown(Doubt::Unseen),
        }
    }

    /// Returns where the cluster of this name is.
    pub(in crate::scheduler) fn position(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }
}

/// One cluster, parsed.
#[derive(Debug, Clone)]
pub struct ClusterInfo {
    /// The object as it was read.
    cluster: Arc<Cluster>,
    kinds: Arc<Kinds>,
    capacity: Option<Capacity>,
    repels: bool,
    deleting: bool,
    reads_works: bool,
}

impl ClusterInfo {
    /// Parses a cluster. `earlier` is an earlier state of it, or a cluster that may be like it;
    /// what it has in common with that or with one of the `others` is shared.
    fn new(cluster: Arc<Cluster>, earlier: Option<&Self>, others: &[Arc<Self>]) -> Self {
        let mut capacity = Capacity::of(&cluster);
        if let Some(capacity) = &mut capacity {
            let others = others.iter().filter_map(|other| other.capacity.as_ref());
            let kin = others.chain(earlier.and_then(|earlier| earlier.capacity.as_ref()));
            capacity.share(kin);
        }
        let kinds = match earlier {
            Some(earlier) if earlier.cluster.enablements() == cluster.enablements() => {
                Arc::clone(&earlier.kinds)
            }
            _ => {
                let kinds = Kinds::of(cluster.enablements());
                let same = others.iter().find(|other| *other.kinds == kinds);
                same.map_or_else(|| Arc::new(kinds), |other| Arc::clone(&other.kinds))
            }
        };
        Self {
            repels: cluster.spec.taints.iter().any(keeps_away),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            reads_works: availability::reads_works(&cluster),
            kinds,
            capacity,
            cluster,
        }
    }

    /// Returns the object as it was read.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns whether the cluster has reported, and is not ready as far as the control plane
    /// knows.
    pub(in crate::scheduler) fn has_fallen_silent(&self) -> bool {
        let ready = self.cluster.condition_status(condition::READY);
        ready.is_some_and(|ready| ready != conditions::TRUE)
    }

    /// Returns whether the agent of the cluster reads its Works, or does not say.
    pub(in crate::scheduler) fn reads_works(&self) -> bool {
        self.reads_works
    }

    /// Returns whether the cluster is being deleted: it takes nothing and keeps nothing.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Returns the region, if there is one.
    pub fn region(&self) -> &[String] {
        present(self.cluster.spec.region.as_ref())
    }

    /// Returns the provider, if there is one.
    pub fn provider(&self) -> &[String] {
        present(self.cluster.spec.provider.as_ref())
    }

    /// Returns the zones; the deprecated single zone counts where the list is empty.
    pub fn zones(&self) -> &[String] {
        if self.cluster.spec.zones.is_empty() {
            present(self.cluster.spec.zone.as_ref())
        } else {
            &self.cluster.spec.zones
        }
    }

    /// Returns the value of a label, if it has one that is not empty.
    pub fn label(&self, key: &str) -> &[String] {
        let labels = self.cluster.metadata.labels.as_ref();
        present(labels.and_then(|labels| labels.get(key)))
    }

    /// Returns what the cluster has room for; `None` when it has reported nothing yet.
    pub fn capacity(&self) -> Option<&Capacity> {
        self.capacity.as_ref()
    }

    /// Returns whether the cluster has taints that keep work away from it, unless they are
    /// tolerated.
    pub(in crate::scheduler) fn repels(&self) -> bool {
        self.repels
    }

    /// Returns the kinds that the cluster serves; clusters that serve the same share them.
    pub(in crate::scheduler) fn kinds(&self) -> &Arc<Kinds> {
        &self.kinds
    }
}

/// Returns the value as a list, empty when there is none.
fn present(value: Option<&String>) -> &[String] {
    value
        .filter(|value| !value.is_empty())
        .map_or(&[], std::slice::from_ref)
}

/// Kinds, as group version and kind, sorted.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::scheduler) struct Kinds(Box<[(Box<str>, Box<str>)]>);

impl Kinds {
    fn of(enablements: &[APIEnablement]) -> Self {
        let kinds = enablements.iter().flat_map(|group| {
            let version = group.group_version.as_str();
            let kinds = group
                .resources
                .iter()
                .map(|resource| resource.kind.as_str());
            kinds.map(move |kind| (version.into(), kind.into()))
        });
        let mut kinds: Vec<(Box<str>, Box<str>)> = kinds.collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self(kinds.into())
    }

    /// Returns whether the kind is among them.
    pub fn contains(&self, version: &str, kind: &str) -> bool {
        let found = self
            .0
            .binary_search_by(|(v, k)| (&**v, &**k).cmp(&(version, kind)));
        found.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterInfo;
    use crate::scheduler::tests::fixtures::{cluster, decoded, snapshot};

    #[test]
    fn each_cluster_is_found_by_its_name_in_whatever_order_they_come_and_go() {
        let mut clusters = snapshot(&[cluster("m3", 3), cluster("m5", 5)]);
        for (name, comes, expected) in [
            ("m4", true, &["m3", "m4", "m5"][..]),
            ("m1", true, &["m1", "m3", "m4", "m5"]),
            ("m3", false, &["m1", "m4", "m5"]),
            ("m6", true, &["m1", "m4", "m5", "m6"]),
            ("m1", false, &["m4", "m5", "m6"]),
        ] {
            if comes {
                clusters.put(decoded(&cluster(name, 1)).into());
            } else {
                clusters.remove(name);
            }
            let listed: Vec<&str> = clusters.iter().map(ClusterInfo::name).collect();
            assert_eq!(listed, expected, "{name}");
            for name in expected {
                let found = clusters.get(name).map(ClusterInfo::name);
                assert_eq!(found, Some(*name));
            }
        }
    }
}

#[cfg(test)]
mod closed {
    use super::*;

    #[test]
    fn to_close_one_cluster_more_copies_nothing_of_those_that_are_closed() {
        let closed = Snapshot::new([]).closing("m1");
        let before = Arc::as_ptr(&closed.closed);
        assert_eq!(Arc::as_ptr(&closed.closing("m2").closed), before);
    }
}
