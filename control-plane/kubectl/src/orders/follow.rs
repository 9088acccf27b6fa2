//! Shows how a drain goes, until nothing is left that can leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Config;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::taints::is_drain;
use muster_shared::watch::Presence;

use super::drain::hindered;
use super::progress::{End, Progress, count};
use crate::follow::{self, Check, Snapshot, Stopped, Waiting};
use crate::running::Running;

/// Time after which the list that was read first is certainly not older than the drain.
const STALE: Duration = Duration::from_secs(10);

/// Shows the progress until nothing is left that can leave. `running` are the settings by which the
/// command began.
pub(super) async fn follow(
    config: &Config,
    names: &[String],
    waiting: Waiting,
    is_resumed: bool,
    running: &Running,
) -> anyhow::Result<(Progress, Result<End, Stopped>)> {
    let (mut seen, mut tainted) = (BTreeSet::new(), BTreeSet::new());
    let check = |fleet: Snapshot<'_, Cluster>| {
        let seen_now = |name: &String| (name.clone(), fleet.objects.presence(None, name));
        let clusters: BTreeMap<String, Presence<Arc<Cluster>>> =
            names.iter().map(seen_now).collect();
        let known = clusters.values().filter_map(|it| match it {
            Presence::There(cluster) => Some(cluster.as_ref()),
            Presence::Gone | Presence::Unknown(_) => None,
        });
        let known: Vec<&Cluster> = known.collect();
        let now = calendar();
        let mut nothing_moves = fleet.movement.of(known.iter().copied(), now).reasons;
        nothing_moves.extend(hindered(known, running));
        nothing_moves.extend(clusters.iter().filter_map(unseen));
        let progress = Progress {
            is_resumed,
            nothing_moves,
            ..count(&fleet.bindings, &clusters, fleet.deleted, &mut seen, now)
        };
        let end = end(&clusters, &mut tainted, fleet.waited, progress.is_done());
        Check {
            line: progress.line(waiting.is_terminal),
            nothing_moves: progress.nothing_moves.clone(),
            progress,
            end,
        }
    };
    follow::follow(config, waiting, check).await
}

/// Returns why nothing can be said of a cluster.
fn unseen((name, presence): (&String, &Presence<Arc<Cluster>>)) -> Option<String> {
    match presence {
        Presence::Unknown(doubt) => {
            Some(format!("cluster {name} is not seen: {}", doubt.describe()))
        }
        Presence::There(_) | Presence::Gone => None,
    }
}

/// Returns how the drain ended. `tainted` are the clusters whose taint has been seen: the first
/// list may be older than the drain, for a moment, and nothing has to leave a cluster without the
/// taint.
fn end(
    clusters: &BTreeMap<String, Presence<Arc<Cluster>>>,
    tainted: &mut BTreeSet<String>,
    waited: Duration,
    is_done: bool,
) -> Option<End> {
    for (name, presence) in clusters {
        match presence {
            Presence::Gone => return Some(End::Removed),
            Presence::There(cluster) if cluster.spec.taints.iter().any(is_drain) => {
                tainted.insert(name.clone());
            }
            Presence::There(_) if tainted.contains(name) || waited >= STALE => {
                return Some(End::Undrained);
            }
            Presence::There(_) | Presence::Unknown(_) => {}
        }
    }
    let are_all_seen = clusters.keys().all(|name| tainted.contains(name));
    (is_done && are_all_seen).then_some(End::Done)
}

#[cfg(test)]
mod tests {
    use muster_shared::watch::Doubt;
    use serde_json::json;

    use super::*;
    use crate::fixtures::member;

    fn cluster(is_drained: bool) -> Presence<Arc<Cluster>> {
        let taint = json!({"key": "failover.muster.io/drain", "effect": "NoExecute"});
        let taints: Vec<_> = is_drained.then_some(taint).into_iter().collect();
        let cluster = member("m1", &json!({"spec": {"taints": taints}}));
        Presence::There(Arc::new(cluster))
    }

    #[test]
    fn a_drain_has_been_ended_when_its_taint_was_seen_and_is_not_there_any_more() {
        let now = Duration::ZERO;
        let (on, off) = (|at| (cluster(true), at), |at| (cluster(false), at));
        let unseen = || (Presence::Unknown(Doubt::Vanished), STALE);
        let gone = (Presence::Gone, now);
        for (what, looks, expected) in [
            ("drained", vec![on(now)], Some(End::Done)),
            ("an old list", vec![off(now)], None),
            ("then the taint", vec![off(now), on(STALE)], Some(End::Done)),
            ("never seen", vec![unseen()], None),
            (
                "untainted",
                vec![off(now), off(STALE)],
                Some(End::Undrained),
            ),
            ("ended", vec![on(now), off(now)], Some(End::Undrained)),
            ("not seen again", vec![on(now), unseen()], Some(End::Done)),
            ("removed", vec![on(now), gone], Some(End::Removed)),
        ] {
            let mut tainted = BTreeSet::new();
            let check = |(presence, waited)| {
                let clusters = BTreeMap::from([("m1".to_owned(), presence)]);
                let ends = [false, true].map(|it| end(&clusters, &mut tainted, waited, it));
                assert_ne!(ends[0], Some(End::Done), "{what}");
                ends[1]
            };
            let ends: Vec<_> = looks.into_iter().map(check).collect();
            assert_eq!(ends.last(), Some(&expected), "{what}");
        }
    }

    #[test]
    fn a_cluster_that_is_not_seen_is_reported() {
        let doubt = Presence::Unknown(Doubt::Unreadable { deleting: false });
        assert_eq!(
            unseen((&"m1".to_owned(), &doubt)).as_deref(),
            Some("cluster m1 is not seen: the API has it, but it cannot be read")
        );
        assert_eq!(unseen((&"m1".to_owned(), &cluster(true))), None);
    }
}
