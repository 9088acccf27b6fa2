//! Shows how a drain goes, until nothing is left that can leave.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Config;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::calendar;
use muster_shared::taints::is_drain;

use super::progress::{End, Progress, count};
use crate::kubectl::follow::{self, Look, Snapshot, Stopped, Waiting};

impl From<Stopped> for End {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::TimedOut => Self::TimedOut,
            Stopped::Interrupted => Self::Interrupted,
        }
    }
}

/// Shows the progress until nothing is left that can leave.
pub(super) async fn follow(
    config: &Config,
    names: &[String],
    waiting: Waiting,
    is_resumed: bool,
) -> anyhow::Result<(Progress, End)> {
    let mut seen = BTreeSet::new();
    let look = |fleet: Snapshot<'_, Cluster>| {
        let known: HashMap<String, Arc<Cluster>> = names
            .iter()
            .filter_map(|name| Some((name.clone(), fleet.objects.get(None, name)?)))
            .collect();
        let now = calendar();
        let stopped = fleet.standing.of(known.values().map(Arc::as_ref), now);
        let progress = Progress {
            is_resumed,
            nothing_moves: stopped.reasons,
            ..count(&fleet.bindings, &known, &mut seen, now)
        };
        let is_drained = known
            .values()
            .all(|cluster| cluster.spec.taints.iter().any(is_drain));
        let end = if is_drained {
            progress.is_done().then_some(End::Done)
        } else {
            Some(End::Undrained)
        };
        Look {
            line: progress.line(waiting.is_terminal),
            nothing_moves: progress.nothing_moves.clone(),
            progress,
            end,
        }
    };
    follow::follow(config, waiting, look).await
}
