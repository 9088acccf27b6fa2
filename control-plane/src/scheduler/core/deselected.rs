//! Clusters that an edit of the policy has taken from a binding, as an annotation of the binding
//! keeps them: their copies may be preserved, unlike those of a workload that moved.
//!
//! The result and the list are one write. Whoever removes the copies comes later, and does not know
//! such a cluster from one whose labels changed by themselves.

use std::collections::BTreeSet;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::k8s::ResourceExt;
use muster_shared::names::annotation::DESELECTED;
use muster_shared::names::eviction::REASON_NO_CLUSTER_FIT;
use serde_json::{Value, json};

use super::outcome::Placed;

/// Number of clusters that the annotation names at most: all annotations of an object hold 256 KiB.
const MOST: usize = 1000;

/// Returns the names of the clusters that edits of the policy have taken from a binding.
pub fn deselected(binding: &AnyBinding) -> impl Iterator<Item = &str> {
    let text = binding.annotations().get(DESELECTED);
    let names = text.into_iter().flat_map(|text| text.split(','));
    names.filter(|name| !name.is_empty())
}

/// Returns the annotation as it is to be written with a new result; `None` where it stays as it is.
/// It names no cluster that has an eviction task, which a move leaves, and none that is chosen
/// again. A copy that stays because no cluster fitted after the edit is no move: the edit took it.
pub fn written(binding: &AnyBinding, placed: &Placed) -> Option<Value> {
    let spec = &binding.spec;
    let applied = binding.applied_placement();
    let is_edited =
        applied.is_some_and(|it| it != placed.applied_placement) && spec.is_preserved_on_deletion();
    let tasks = placed
        .tasks
        .as_ref()
        .unwrap_or(&spec.graceful_eviction_tasks);
    let moves = tasks.iter().filter(|it| it.reason != REASON_NO_CLUSTER_FIT);
    let is_left = |name: &str| moves.clone().any(|task| task.from_cluster == name);
    let targets = spec.clusters.iter().map(|target| target.name.as_str());
    let taken = targets.filter(|it| is_edited && !is_left(it));
    changed(binding, taken, &placed.clusters)
}

/// Returns the annotation as it is to be written with a move of the workload to other clusters,
/// which are chosen again thereby; `None` where it stays as it is.
pub fn after_move(binding: &AnyBinding, chosen: &[TargetCluster]) -> Option<Value> {
    changed(binding, std::iter::empty(), chosen)
}

/// Returns the annotation with the clusters that were `taken` now, and without those that are
/// `chosen`; `None` where it stays as it is.
fn changed<'a>(
    binding: &'a AnyBinding,
    taken: impl Iterator<Item = &'a str>,
    chosen: &[TargetCluster],
) -> Option<Value> {
    let is_chosen = |name: &str| chosen.iter().any(|target| target.name == name);
    let before: BTreeSet<&str> = deselected(binding).collect();
    let known = before.iter().copied();
    let now: BTreeSet<&str> = known.chain(taken).filter(|it| !is_chosen(it)).collect();
    if now == before {
        return None;
    }
    let names: Vec<&str> = now.into_iter().take(MOST).collect();
    Some(match names.as_slice() {
        [] => Value::Null,
        names => json!(names.join(",")),
    })
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::APPLIED_PLACEMENT;

    use super::*;

    #[test]
    fn what_an_edit_takes_away_is_noted_until_it_is_chosen_again_and_what_moves_is_not() {
        let moves = "PlacementChanged";
        for (what, held, applied, preserves, leaving, chosen, expected) in [
            ("an edit", "", "{}", true, "", "m2", "m1"),
            ("another edit", "m0", "{}", true, "", "m2", "m0,m1"),
            ("noted before", "m1", "{}", true, "", "m2", ""),
            ("nothing is preserved", "", "{}", false, "", "m2", ""),
            ("clusters changed", "", "null", true, "", "m2", ""),
            ("left by a task", "", "{}", true, moves, "m2", ""),
            ("none fits", "", "{}", true, REASON_NO_CLUSTER_FIT, "", "m1"),
            ("it stays", "", "{}", true, "", "m1", ""),
            ("chosen again", "m2", "null", true, "", "m2", "null"),
        ] {
            let task = json!([{"fromCluster": "m1", "reason": leaving, "producer": ""}]);
            let chosen = Some(chosen).filter(|it| !it.is_empty());
            let chosen: Vec<_> = chosen.iter().map(|it| json!({"name": it})).collect();
            let mut binding: AnyBinding = serde_json::from_value(json!({
                "metadata": {"annotations": {APPLIED_PLACEMENT: applied}},
                "spec": {
                    "resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "web"},
                    "clusters": [{"name": "m1"}],
                    "preserveResourcesOnDeletion": preserves,
                },
            }))
            .unwrap();
            if !held.is_empty() {
                let annotations = binding.metadata.annotations.get_or_insert_default();
                annotations.insert(DESELECTED.to_owned(), held.to_owned());
            }
            let placed = Placed {
                clusters: serde_json::from_value(json!(chosen)).unwrap(),
                applied_placement: "null".to_owned(),
                tasks: (!leaving.is_empty()).then(|| serde_json::from_value(task).unwrap()),
            };
            let expected = match expected {
                "" => None,
                "null" => Some(Value::Null),
                names => Some(json!(names)),
            };
            assert_eq!(written(&binding, &placed), expected, "{what}");
        }
    }
}
