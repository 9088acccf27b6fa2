//! Safety contract 8: time is local.
//!
//! A cluster that is not heard of any more (`Ready` becomes Unknown) has renewed its lease no later
//! than the grace period ago, whatever time the lease says.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, Cluster};
use super::scene::Scene;
use super::{End, Oracle, Violation};
use crate::history::{Actor, Api, Entry, Outcome, Process};

const NAME: &str = "silence";

/// The oracle.
#[derive(Debug, Default)]
pub struct Silence {
    /// When each cluster gave the last sign of life: its lease was renewed, or it was registered.
    last: BTreeMap<String, Timestamp>,
}

impl Oracle for Silence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let Some(request) = entry.request().filter(|request| request.api == Api::Fleet) else {
            return Vec::new();
        };
        let is_taken = matches!(request.outcome, Outcome::Committed | Outcome::Unchanged);
        if is_taken && request.resource.plural == "leases" {
            if request.namespace.as_deref() == Some("karmada-cluster") && request.after.is_some() {
                self.last.insert(request.name.clone(), entry.at);
            }
            return Vec::new();
        }
        let by_us = matches!(request.actor, Actor::Process(Process::ControlPlane(_)));
        if request.resource.plural != "clusters" || !is_taken {
            return Vec::new();
        }
        let (before, after) = (request.before.as_deref(), request.after.as_deref());
        if before.is_none() {
            self.last.insert(request.name.clone(), entry.at);
        }
        let turned = is_unknown(after) && !is_unknown(before);
        let is_pulled = after.is_some_and(|it| objects::text(it, "/spec/syncMode") != "Push");
        if !by_us || !turned || !is_pulled {
            return Vec::new();
        }
        let Some(last) = self.last.get(&request.name) else {
            return Vec::new();
        };
        let silent = entry.at.duration_since(*last);
        if silent + SignedDuration::from_secs(1) >= scene.rules.grace {
            return Vec::new();
        }
        let message = format!("not heard of after {silent:#} of silence");
        vec![scene.violation(NAME, &request.key(), &message)]
    }

    fn end(&mut self, _: &End, _: &Scene) -> Vec<Violation> {
        Vec::new()
    }
}

fn is_unknown(cluster: Option<&Value>) -> bool {
    cluster.is_some_and(|cluster| Cluster(cluster).ready() == Some("Unknown"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_cluster_is_silent_after_the_grace_period_and_not_before() {
        for (what, renewed, seconds, is_kept) in [
            ("long silent", true, 41, true),
            ("heard of just now", true, 20, false),
            ("never heard of", false, 41, true),
            ("just registered", false, 20, false),
        ] {
            let mut story = Story::new(Silence::default());
            story.write(agent("m1"), &cluster_key("m1"), cluster("True", &[]));
            if renewed {
                let lease = objects::key(
                    &Api::Fleet,
                    "coordination.k8s.io",
                    "leases",
                    "karmada-cluster",
                    "m1",
                );
                // A clock that is years behind.
                let old = json!({"spec": {"renewTime": "1999-01-01T00:00:00Z"}});
                story.wait(100).write(agent("m1"), &lease, old);
            }
            story.wait(seconds);
            let unknown = cluster("Unknown", &[]);
            story.write(control_plane(), &cluster_key("m1"), unknown);
            let told = story.told();
            assert_eq!(told.is_empty(), is_kept, "{what}: {told:?}");
        }
    }
}
