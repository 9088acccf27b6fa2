//! Safety contract 6: last known good.
//!
//! A report of an agent never replaces what was known by nothing: version, kinds, number of nodes
//! and room stay, unless the member has no nodes any more. The nodes that there are give no room
//! when none of them is ready. A list that lacks all nodes is that of a member without nodes.

use serde_json::Value;

use super::objects;
use super::scene::Scene;
use super::troubles::Troubles;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Request};

const NAME: &str = "last-good";

/// The oracle.
#[derive(Debug, Default)]
pub struct LastGood {
    troubles: Troubles,
}

impl Oracle for LastGood {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        self.troubles.note(entry);
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        let is_report = request.resource.plural == "clusters"
            && request.api == Api::Fleet
            && matches!(request.actor, Actor::Process(_));
        if !is_report {
            return Vec::new();
        }
        let member = Api::Member(request.name.clone());
        let is_short = self.troubles.lacks(&request.actor, &member, scene.now);
        let lost = lost(scene, request, is_short).into_iter();
        lost.map(|what| scene.violation(NAME, &request.key(), &what))
            .collect()
    }
}

fn lost(scene: &Scene, request: &Request, is_short: bool) -> Vec<String> {
    let (Some(before), Some(after)) = (request.before.as_deref(), request.after.as_deref()) else {
        return Vec::new();
    };
    let member = Api::Member(request.name.clone());
    let nodes = || scene.all(&member, "", "nodes").map(|(_, node)| node);
    let is_ready =
        |node: &Value| objects::condition(node, "Ready").is_some_and(|it| it["status"] == "True");
    let mut reported = Vec::new();
    for (what, pointer, needs_nodes) in [
        ("the version", "/status/kubernetesVersion", false),
        ("the kinds", "/status/apiEnablements", false),
        ("the number of nodes", "/status/nodeSummary/totalNum", true),
        ("the room", "/status/resourceSummary/allocatable", true),
    ] {
        let was = before.pointer(pointer).is_some_and(says_something);
        let is = after.pointer(pointer).is_some_and(says_something);
        let is_owed = match what {
            _ if needs_nodes && is_short => false,
            "the room" => nodes().any(is_ready),
            _ => !needs_nodes || nodes().next().is_some(),
        };
        if was && !is && is_owed {
            reported.push(format!("{what} was replaced by nothing"));
        }
    }
    let groups = |cluster: &'_ Value| {
        let groups = objects::items(cluster, "/status/apiEnablements");
        groups
            .map(|group| objects::text(group, "/groupVersion").to_owned())
            .collect::<Vec<_>>()
    };
    let left = groups(after);
    for group in ["v1", "apps/v1", "batch/v1"] {
        if groups(before).iter().any(|it| it == group) && !left.iter().any(|it| it == group) {
            reported.push(format!("the kinds of {group} are left out of the report"));
        }
    }
    reported
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(|amount| amount != "0"),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::World;

    #[test]
    fn what_was_known_is_not_replaced_by_nothing() {
        let no_version = json!({"kubernetesVersion": ""});
        let no_kinds = json!({"apiEnablements": []});
        let few_kinds = json!({"apiEnablements": [{"groupVersion": "v1"}]});
        let no_room = json!({"resourceSummary": {"allocatable": {"cpu": "0", "pods": "0"}}});
        let less_room = json!({"resourceSummary": {"allocatable": {"cpu": "1", "pods": "0"}}});
        let no_nodes = json!({"nodeSummary": {"totalNum": 0}, "resourceSummary": null});
        for (what, status, ready, is_kept) in [
            ("the same", json!({}), Some("True"), true),
            ("no version", no_version, Some("True"), false),
            ("no kinds", no_kinds, Some("True"), false),
            ("few kinds", few_kinds, Some("True"), false),
            ("no room", no_room.clone(), Some("True"), false),
            ("no room on failed nodes", no_room, Some("Unknown"), true),
            ("less room", less_room, Some("True"), true),
            ("no nodes", no_nodes.clone(), Some("True"), false),
            ("no nodes in truth", no_nodes, None, true),
        ] {
            let mut story = Story::new(LastGood::default());
            let member = Api::Member("m1".to_owned());
            if let Some(ready) = ready {
                let node = objects::key(&member, "", "nodes", "", "n1");
                let conditions = json!([{"type": "Ready", "status": ready}]);
                let state = json!({"status": {"conditions": conditions}});
                story.write(Actor::Workloads, &node, state);
            }
            let known = json!({"status": {
                "kubernetesVersion": "v1.33.1",
                "apiEnablements": [{"groupVersion": "v1"}, {"groupVersion": "apps/v1"}],
                "nodeSummary": {"totalNum": 1},
                "resourceSummary": {"allocatable": {"cpu": "4", "pods": "110"}},
            }});
            story.write(agent("m1"), &cluster_key("m1"), known);
            let patch = json!({ "status": status });
            story.patch(agent("m1"), &cluster_key("m1"), &patch);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn a_list_that_lacks_all_nodes_is_one_of_no_nodes() {
        for (server, is_kept) in [("m1", true), ("m2", false)] {
            let mut story = Story::new(LastGood::default());
            let member = Api::Member("m1".to_owned());
            let first = objects::key(&member, "", "nodes", "", "n1");
            story.write(Actor::Workloads, &first, json!({}));
            let known = json!({"status": {"nodeSummary": {"totalNum": 1}}});
            story.write(agent("m1"), &cluster_key("m1"), known);
            let detail = json!({
                "kind": "short", "actor": agent("m1"), "api": {"member": server}, "share": 900,
            });
            story.world(World::FaultBegins {
                id: 1,
                kind: "short".to_owned(),
                detail,
            });
            let nobody = json!({"status": {"nodeSummary": {"totalNum": 0}}});
            story.patch(agent("m1"), &cluster_key("m1"), &nobody);
            story.keeps(is_kept, server);
        }
    }
}
