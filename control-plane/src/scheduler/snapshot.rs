//! All clusters as one decision sees them: immutable, cheap to share, with everything parsed that would otherwise
//! be parsed again for every workload.

use std::collections::HashSet;
use std::sync::Arc;

use muster_shared::api::cluster::{APIEnablement, Cluster};

use super::capacity::Capacity;

/// All clusters at one moment, by name. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    facts: Arc<Vec<Arc<Facts>>>,
}

impl Snapshot {
    /// The snapshot of these clusters.
    pub fn new(clusters: impl IntoIterator<Item = Arc<Cluster>>) -> Self {
        let mut apis = ApiSets::default();
        let mut facts: Vec<_> = clusters
            .into_iter()
            .map(|cluster| Arc::new(Facts::new(cluster, &mut apis)))
            .collect();
        facts.sort_by(|a, b| a.name().cmp(b.name()));
        facts.dedup_by(|a, b| a.name() == b.name());
        Self {
            facts: Arc::new(facts),
        }
    }

    /// Puts a cluster in, in place of an earlier state of it. Whoever shares the earlier snapshot keeps that.
    pub fn put(&mut self, cluster: Arc<Cluster>) {
        let mut apis = ApiSets::of(self);
        let facts = Arc::new(Facts::new(cluster, &mut apis));
        match self.position(facts.name()) {
            Ok(position) => Arc::make_mut(&mut self.facts)[position] = facts,
            Err(position) => Arc::make_mut(&mut self.facts).insert(position, facts),
        }
    }

    /// Takes a cluster out.
    pub fn remove(&mut self, name: &str) {
        if let Ok(position) = self.position(name) {
            Arc::make_mut(&mut self.facts).remove(position);
        }
    }

    /// How many clusters there are, those being deleted included.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether there is no cluster at all.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The clusters by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Facts> {
        self.facts.iter().map(AsRef::as_ref)
    }

    /// The cluster of this name.
    pub fn get(&self, name: &str) -> Option<&Facts> {
        self.position(name)
            .ok()
            .map(|position| self.facts[position].as_ref())
    }

    /// Where the cluster of this name is, or would have to be put.
    pub(super) fn position(&self, name: &str) -> Result<usize, usize> {
        self.facts.binary_search_by(|facts| facts.name().cmp(name))
    }
}

/// One cluster, parsed.
#[derive(Debug)]
pub struct Facts {
    /// The object as it was read.
    cluster: Arc<Cluster>,
    apis: Arc<HashSet<Api>>,
    capacity: Option<Capacity>,
}

/// A kind that a cluster serves: group version and kind.
pub(super) type Api = (Box<str>, Box<str>);

impl Facts {
    fn new(cluster: Arc<Cluster>, apis: &mut ApiSets) -> Self {
        let status = cluster.status.as_ref();
        let enablements = status.map_or(&[][..], |status| &status.api_enablements);
        Self {
            apis: apis.share(enablements),
            capacity: Capacity::of(&cluster),
            cluster,
        }
    }

    /// The object as it was read.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether the cluster is being deleted: it takes nothing and keeps nothing.
    pub fn is_deleting(&self) -> bool {
        self.cluster.metadata.deletion_timestamp.is_some()
    }

    /// The region, if there is one.
    pub fn region(&self) -> &[String] {
        present(self.cluster.spec.region.as_ref())
    }

    /// The provider, if there is one.
    pub fn provider(&self) -> &[String] {
        present(self.cluster.spec.provider.as_ref())
    }

    /// The zones; the deprecated single zone counts where the list is empty.
    pub fn zones(&self) -> &[String] {
        if self.cluster.spec.zones.is_empty() {
            present(self.cluster.spec.zone.as_ref())
        } else {
            &self.cluster.spec.zones
        }
    }

    /// What the cluster has room for; `None` when it has reported nothing yet.
    pub fn capacity(&self) -> Option<&Capacity> {
        self.capacity.as_ref()
    }

    /// The kinds that the cluster serves; clusters that serve the same share one set.
    pub(super) fn kinds(&self) -> &HashSet<Api> {
        &self.apis
    }
}

/// The value as a list, empty when there is none.
fn present(value: Option<&String>) -> &[String] {
    value
        .filter(|value| !value.is_empty())
        .map_or(&[], std::slice::from_ref)
}

/// The distinct sets of kinds: a fleet of equal clusters needs one, not one each.
#[derive(Debug, Default)]
struct ApiSets(Vec<Arc<HashSet<Api>>>);

impl ApiSets {
    fn of(snapshot: &Snapshot) -> Self {
        let mut sets: Vec<Arc<HashSet<Api>>> = Vec::new();
        for facts in snapshot.facts.iter() {
            if !sets.iter().any(|set| Arc::ptr_eq(set, &facts.apis)) {
                sets.push(facts.apis.clone());
            }
        }
        Self(sets)
    }

    fn share(&mut self, enablements: &[APIEnablement]) -> Arc<HashSet<Api>> {
        let set: HashSet<Api> = enablements
            .iter()
            .flat_map(|group| {
                group.resources.iter().map(|resource| {
                    (
                        group.group_version.as_str().into(),
                        resource.kind.as_str().into(),
                    )
                })
            })
            .collect();
        if let Some(known) = self.0.iter().find(|known| ***known == set) {
            return known.clone();
        }
        let set = Arc::new(set);
        self.0.push(set.clone());
        set
    }
}
