//! Safety contract 8: time is local.
//!
//! A cluster that has become silent (`Ready` becomes Unknown) has renewed its lease no later
//! than the grace period ago, whatever time the lease says. A renewal that ends a longer silence
//! may cross with the write that reports it: watches lag. After the promotion of a standby every
//! cluster gets a full grace.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, Cluster};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Actor, Api, Entry, Outcome, Process, World};

const NAME: &str = "silence";

/// The oracle.
#[derive(Debug, Default)]
pub struct Silence {
    /// The signs of life of each cluster: its lease was renewed, or it was registered.
    signs: BTreeMap<String, Signs>,
}

/// The last sign of life of a cluster, and the silence that it ended.
#[derive(Clone, Copy, Debug)]
struct Signs {
    last: Timestamp,
    ended: SignedDuration,
}

impl Signs {
    /// Returns the longest silence that whoever writes now may know of: the one that the last sign
    /// ended, if that sign may not have been seen yet.
    fn silence(self, now: Timestamp, lag: SignedDuration) -> SignedDuration {
        let since = now.duration_since(self.last);
        if since <= lag {
            since.max(self.ended)
        } else {
            since
        }
    }
}

impl Oracle for Silence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        if matches!(entry.world(), Some(World::Promoted)) {
            for (cluster, _) in scene.clusters() {
                self.note(cluster, entry.at);
            }
        }
        let Some(request) = entry.request().filter(|request| request.api == Api::Fleet) else {
            return Vec::new();
        };
        let is_taken = matches!(request.outcome, Outcome::Committed | Outcome::Unchanged);
        if is_taken && request.resource.plural == "leases" {
            if request.namespace.as_deref() == Some("karmada-cluster") && request.after.is_some() {
                self.note(&request.name, entry.at);
            }
            return Vec::new();
        }
        let by_us = matches!(request.actor, Actor::Process(Process::ControlPlane(_)));
        if request.resource.plural != "clusters" || !is_taken {
            return Vec::new();
        }
        let (before, after) = (request.before.as_deref(), request.after.as_deref());
        if before.is_none() {
            self.note(&request.name, entry.at);
        }
        let turned = is_unknown(after) && !is_unknown(before);
        let is_pulled = after.is_some_and(|it| objects::text(it, "/spec/syncMode") != "Push");
        if !by_us || !turned || !is_pulled {
            return Vec::new();
        }
        let Some(signs) = self.signs.get(&request.name) else {
            return Vec::new();
        };
        let silent = signs.silence(entry.at, scene.rules.lag);
        if silent + SignedDuration::from_secs(1) >= scene.rules.grace {
            return Vec::new();
        }
        let message = format!("not heard of after {silent:#} of silence");
        vec![scene.violation(NAME, &request.key(), &message)]
    }
}

impl Silence {
    fn note(&mut self, cluster: &str, now: Timestamp) {
        let former = self.signs.get(cluster);
        let ended = former.map_or(SignedDuration::ZERO, |it| now.duration_since(it.last));
        let signs = Signs { last: now, ended };
        self.signs.insert(cluster.to_owned(), signs);
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
                let lease = lease_key(&Api::Fleet);
                // A clock that is years behind.
                let old = json!({"spec": {"renewTime": "1999-01-01T00:00:00Z"}});
                story.wait(100).write(agent("m1"), &lease, old);
            }
            story.wait(seconds);
            let unknown = cluster("Unknown", &[]);
            story.write(control_plane(), &cluster_key("m1"), unknown);
            story.keeps(is_kept, what);
        }
    }

    #[test]
    fn a_renewal_may_cross_with_the_write_about_the_silence_that_it_ends() {
        for (what, silence, seconds, is_kept) in [
            ("it crossed", 46, 0, true),
            ("it was seen", 46, 30, false),
            ("there was no long silence", 20, 0, false),
        ] {
            let mut story = Story::new(Silence::default());
            let lease = lease_key(&Api::Fleet);
            let renewal = json!({"spec": {"renewTime": "2030-01-01T00:00:00Z"}});
            story.write(agent("m1"), &cluster_key("m1"), cluster("True", &[]));
            story
                .write(agent("m1"), &lease, renewal.clone())
                .wait(silence);
            story.write(agent("m1"), &lease, renewal).wait(seconds);
            let unknown = cluster("Unknown", &[]);
            story.write(control_plane(), &cluster_key("m1"), unknown);
            story.keeps(is_kept, what);
        }
    }
}
