//! The pauses in force.

use muster_control_plane::pause::Pause;
use muster_shared::api::cluster::Cluster;

use super::Snapshot;

/// The pauses in force.
pub(super) struct Pauses<'a> {
    fleet: Option<Pause>,
    own: Vec<(&'a str, Pause)>,
}

impl<'a> Pauses<'a> {
    pub fn of(snapshot: &Snapshot, clusters: &'a [Cluster]) -> Self {
        let record = snapshot.pause.as_ref().ok().and_then(Option::as_ref);
        let holds = |it: &Pause| it.holds(snapshot.now);
        let own = clusters.iter().filter_map(|it| {
            let name = it.metadata.name.as_deref()?;
            Some((name, Pause::of_cluster(it).filter(holds)?))
        });
        Self {
            fleet: record.map(Pause::of_fleet).filter(holds),
            own: own.collect(),
        }
    }

    /// Whether nothing may leave a cluster.
    pub fn holds(&self, cluster: &str) -> bool {
        self.fleet.is_some() || self.own.iter().any(|(name, _)| *name == cluster)
    }

    /// The pauses in words.
    pub fn told(&self) -> Vec<String> {
        let own = self.own.iter().map(|(_, pause)| pause);
        let all = self.fleet.iter().chain(own);
        all.map(ToString::to_string).collect()
    }
}
