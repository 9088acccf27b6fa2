//! Whether an API is fit for a fleet: one with nodes or controllers of workloads would start the
//! templates itself.

use muster_shared::k8s::{Node, PartialObjectMeta, ReplicaSet, ResourceExt as _};

/// Returns what makes an API unfit, if anything does. ReplicaSets may be templates; those that a
/// Deployment controls are not.
pub fn unfit(
    nodes: &[PartialObjectMeta<Node>],
    sets: &[PartialObjectMeta<ReplicaSet>],
) -> Option<String> {
    if let Some(node) = nodes.first() {
        return Some(format!("it has nodes, such as {:?}", node.name_any()));
    }
    let is_made = |set: &&PartialObjectMeta<ReplicaSet>| {
        let mut owners = set.owner_references().iter();
        owners.any(|it| it.kind == "Deployment" && it.controller == Some(true))
    };
    let made = sets.iter().find(is_made)?;
    Some(format!(
        "a controller of Deployments runs there, which made ReplicaSet {:?}",
        made.name_any()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_and_controllers_of_workloads_make_an_api_unfit_and_templates_do_not() {
        let node = || serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        let set = |owners: serde_json::Value| {
            let set = json!({"metadata": {"name": "web-1", "ownerReferences": owners}});
            serde_json::from_value(set).unwrap()
        };
        let owner = |kind: &str, controller: bool| json!([{"apiVersion": "v1", "kind": kind, "name": "web", "uid": "1", "controller": controller}]);
        for (nodes, sets, expected) in [
            (vec![], vec![], None),
            (vec![], vec![set(json!([]))], None),
            (vec![], vec![set(owner("Deployment", false))], None),
            (vec![], vec![set(owner("Application", true))], None),
            (
                vec![],
                vec![set(json!([])), set(owner("Deployment", true))],
                Some("web-1"),
            ),
            (vec![node()], vec![], Some("nodes")),
        ] {
            match (unfit(&nodes, &sets), expected) {
                (Some(why), Some(words)) => assert!(why.contains(words), "{why}"),
                (found, expected) => assert_eq!(found.as_deref(), expected),
            }
        }
    }
}
