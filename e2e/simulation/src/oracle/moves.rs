//! What a write of a binding does to the places of its workload.

use serde_json::Value;

use super::objects::{self, Binding, LAST_EVICTION, Task};
use crate::history::{Entry, Request};

/// A cluster that a write of a binding gave up, wholly or in part.
#[derive(Clone, Debug)]
pub struct Move<'a> {
    /// The cluster.
    pub cluster: &'a str,
    /// What became of it.
    pub what: What<'a>,
}

/// What became of a place.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// The cluster is no target any more; a task keeps the copy.
    Evicted(Task<'a>),
    /// The cluster is no target any more, and the record of evictions says why; nothing keeps the
    /// copy.
    Purged,
    /// The cluster is no target any more, and nothing keeps the copy.
    Dropped,
    /// A task is over, and the cluster is no target.
    Ended(Task<'a>),
}

/// Returns the binding before and after an entry that wrote one.
pub fn of_binding(entry: &Entry) -> Option<(&Request, Binding<'_>, Binding<'_>)> {
    let request = entry.commit()?;
    let is_binding = request.resource.group == objects::WORK
        && ["resourcebindings", "clusterresourcebindings"]
            .contains(&request.resource.plural.as_str());
    let (before, after) = (request.before.as_deref()?, request.after.as_deref()?);
    is_binding.then_some((request, Binding(before), Binding(after)))
}

/// Returns the places that a write gave up.
pub fn between<'a>(before: Binding<'a>, after: Binding<'a>) -> Vec<Move<'a>> {
    let targets = after.clusters();
    let mut moves = Vec::new();
    for cluster in before.clusters().into_keys() {
        if targets.contains_key(cluster) {
            continue;
        }
        let what = match after.task(cluster) {
            Some(task) => What::Evicted(task),
            None => of_record(before, after, cluster).unwrap_or(What::Dropped),
        };
        moves.push(Move { cluster, what });
    }
    for task in before.tasks() {
        let cluster = task.from();
        if after.task(cluster).is_none() && !targets.contains_key(cluster) {
            let what = What::Ended(task);
            moves.push(Move { cluster, what });
        }
    }
    moves
}

/// Returns what became of a cluster, by the record of an eviction that the write brought.
fn of_record<'a>(before: Binding<'_>, after: Binding<'_>, cluster: &str) -> Option<What<'a>> {
    let record = |binding: Binding<'_>| {
        let text = objects::annotation(binding.0, LAST_EVICTION)?;
        serde_json::from_str::<Value>(text).ok()
    };
    let new = record(after).filter(|new| record(before).as_ref() != Some(new))?;
    (new["from"] == cluster).then_some(What::Purged)
}
