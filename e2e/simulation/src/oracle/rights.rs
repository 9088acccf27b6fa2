//! Safety contract 11: an agent writes what is its own cluster's and nothing else.
//!
//! In the fleet API: the report of its Cluster, status and finalizers of its Works, its lease, its
//! Secrets, events about its Cluster and in its namespace, and signing requests. Of the members:
//! its own.

use serde_json::{Value, json};

use super::objects;
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Process, Request};

const NAME: &str = "rights";

/// The oracle.
#[derive(Debug, Default)]
pub struct Rights;

impl Oracle for Rights {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        let Actor::Process(Process::Agent(own)) = &request.actor else {
            return Vec::new();
        };
        let problem = match &request.api {
            Api::Member(member) if member == own => None,
            Api::Standby => None,
            Api::Member(member) => Some(format!("the agent of {own} writes in {member}")),
            Api::Fleet => beyond(own, request).map(|what| format!("the agent of {own} {what}")),
        };
        let problem = problem.into_iter();
        problem
            .map(|it| scene.violation(NAME, &request.key(), &it))
            .collect()
    }
}

/// Returns what an agent did beyond its rights.
fn beyond(own: &str, request: &Request) -> Option<&'static str> {
    let space = request.namespace.as_deref().unwrap_or_default();
    let is_of_own = space == format!("{}{own}", objects::EXECUTION);
    let (before, after) = (request.before.as_deref(), request.after.as_deref());
    let is_named = request.name == own;
    match request.resource.plural.as_str() {
        "clusters" if !is_named => Some("writes another Cluster"),
        "clusters" => (before.is_some() && fixed(before) != fixed(after))
            .then_some("changes more of its Cluster than the report"),
        "works" if !is_of_own => Some("writes Works of others"),
        "works" => match (before, after) {
            (Some(before), None) if objects::is_deleting(before) => None,
            (Some(before), Some(after)) if ordered(before) == ordered(after) => None,
            _ => Some("changes more of a Work than status and finalizers"),
        },
        "leases" if space == "karmada-cluster" && is_named => None,
        // The election among the agents of one member.
        "leases" if space == "karmada-system" && request.name == format!("karmada-agent-{own}") => {
            None
        }
        "secrets" if space == "karmada-cluster" => {
            let is_own = is_named || request.name == format!("{own}-impersonator");
            (!is_own).then_some("writes credentials of others")
        }
        "events" if is_of_own => None,
        "events" => {
            let about = |it: &Value| {
                [&it["involvedObject"], &it["regarding"]]
                    .iter()
                    .any(|it| it["kind"] == "Cluster" && it["name"] == own)
            };
            let is_own = after.or(before).is_some_and(about);
            (!is_own).then_some("tells of what is not its own")
        }
        "certificatesigningrequests" => None,
        "namespaces" => (before.is_some()).then_some("changes a namespace"),
        _ => Some("writes a kind that is not its own"),
    }
}

/// Returns what an agent leaves alone of its Cluster.
fn fixed(cluster: Option<&Value>) -> Value {
    let Some(cluster) = cluster else {
        return Value::Null;
    };
    let (metadata, spec) = (&cluster["metadata"], &cluster["spec"]);
    json!([
        metadata["labels"],
        metadata["annotations"],
        metadata["finalizers"],
        spec["taints"],
        spec["syncMode"],
    ])
}

/// Returns what an agent leaves alone of a Work.
fn ordered(work: &Value) -> Value {
    let metadata = &work["metadata"];
    json!([work["spec"], metadata["labels"], metadata["annotations"]])
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Key;

    fn key(group: &str, plural: &str, namespace: &str, name: &str) -> Key {
        objects::key(&Api::Fleet, group, plural, namespace, name)
    }

    #[test]
    fn an_agent_writes_what_is_its_own_and_nothing_else() {
        let lease = |name: &str| key("coordination.k8s.io", "leases", "karmada-cluster", name);
        let about = |name: &str| json!({"involvedObject": {"kind": "Cluster", "name": name}});
        let event = || key("", "events", "default", "e");
        let (status, spec) = (json!({"status": {"x": 1}}), json!({"spec": 1}));
        let taints = json!({"spec": {"taints": []}});
        let orders = json!({"spec": {"suspendDispatching": true}});
        for (what, key, patch, is_kept) in [
            ("its report", cluster_key("m1"), &status, true),
            ("another's", cluster_key("m2"), &status, false),
            ("its taints", cluster_key("m1"), &taints, false),
            ("its Work", work_key("m1"), &status, true),
            ("another's Work", work_key("m2"), &status, false),
            ("its orders", work_key("m1"), &orders, false),
            ("its lease", lease("m1"), &spec, true),
            ("another's lease", lease("m2"), &spec, false),
            ("its event", event(), &about("m1"), true),
            ("another's event", event(), &about("m2"), false),
            ("a binding", binding_key("web"), &spec, false),
            ("its member", member_key("m1"), &spec, true),
            ("another member", member_key("m2"), &spec, false),
        ] {
            let mut story = Story::new(Rights);
            for name in ["m1", "m2"] {
                let state = cluster("True", &["a:NoSchedule"]);
                story.write(Actor::Setup, &cluster_key(name), state);
                story.write(Actor::Setup, &work_key(name), work());
            }
            story.patch(agent("m1"), &key, patch);
            story.keeps(is_kept, what);
        }
    }
}
