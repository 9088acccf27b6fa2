//! Join of a member that the control plane manages: its Cluster exists already, and its API server
//! must be that of the Cluster.
//!
//! The credentials of such a member are given by an operator, who may mix two members up. Nothing
//! is applied to an API server whose identity is not that of the Cluster.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::events::Events;
use muster_shared::k8s::{Api, Client, ResourceExt};
use muster_shared::queue::jittered;
use muster_shared::watch::Informer;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::identity::{identity, is_itself, refuse_a_taken_name, twin};
use super::{JoinState, advance, step_back};
use crate::health::Health;
use crate::health::probe::Observation;
use crate::health::recent::Recent;
use crate::write;

/// Pause between two checks of the identity of the member.
const AGAIN: Duration = Duration::from_secs(30);
/// Time until the next attempt while the member does not answer or its identity is disputed.
const SOON: Duration = Duration::from_secs(5);

/// Recognises a member that the control plane manages.
pub struct Recognition {
    /// The fleet API.
    pub fleet: Client,
    /// The member's API.
    pub member: Client,
    /// Whether both connections lead to one address.
    pub same_server: bool,
    /// Name of the Cluster.
    pub cluster: String,
    /// Cache of the Cluster.
    pub clusters: Informer<Cluster>,
    /// Publishes events about the Cluster.
    pub events: Events,
    /// Sender of the state, for the tasks that wait for it.
    pub join_state: watch::Sender<JoinState>,
    /// Health of the member. Until the member is recognised, the probe does not run, and the reason
    /// is published here instead.
    pub probed: watch::Sender<Option<Health>>,
}

/// Relation between a Cluster and an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Relation {
    /// The API server is that of the Cluster.
    Same,
    /// The Cluster has no id yet, and gets this one.
    New,
    /// The API server must not be written to, for this reason.
    Other(String),
}

/// Compares the id of a Cluster with that of an API server. `fleet` is the id of the fleet API if
/// that is known.
fn compare(cluster: &Cluster, id: &str, fleet: Option<&str>, same_server: bool) -> Relation {
    if is_itself(id, fleet, same_server) {
        return Relation::Other(
            "spec.apiEndpoint and the credentials lead to the fleet API itself: templates would be started where they are stored"
                .to_owned(),
        );
    }
    if let Some(problem) = twin(cluster) {
        return Relation::Other(problem);
    }
    match cluster.spec.id.as_deref().unwrap_or_default() {
        "" => Relation::New,
        known if known == id => Relation::Same,
        known => Relation::Other(format!(
            "spec.id is {known:?}, and the API server that spec.apiEndpoint and the credentials lead to has the id {id:?}: it is another cluster"
        )),
    }
}

impl Recognition {
    /// Follows the identity until shutdown.
    pub async fn run(self, shutdown: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let wake = Arc::clone(&changed);
        self.clusters.on_change(move |_| wake.notify_one());
        // Without this, an unreachable member would never be reported.
        advance(&self.join_state, JoinState::Registered);
        let follows = async {
            self.clusters.synced().await;
            let (mut reported, mut fleet) = (String::new(), None);
            loop {
                let Some(pause) = self.check(&mut reported, &mut fleet).await else {
                    // The probe and the watches of a member go on until they are started anew.
                    shutdown.cancel();
                    break;
                };
                tokio::select! {
                    () = tokio::time::sleep(jittered(pause)) => {}
                    () = changed.notified() => {}
                }
            }
        };
        shutdown.run_until_cancelled(follows).await;
    }

    /// Checks once; returns the pause before the next check. Returns `None` if the member was
    /// recognised before and is not any more: its tasks have to be started anew.
    async fn check(&self, reported: &mut String, fleet: &mut Option<String>) -> Option<Duration> {
        let Some(cluster) = self.clusters.get(None, &self.cluster) else {
            return Some(SOON);
        };
        let id = match identity(&self.member).await {
            Ok(id) => id,
            Err(error) => {
                let problem = error.to_string();
                self.publish(match error.refusal() {
                    Some(code) => Observation::Refused { code },
                    None => Observation::Unreachable {
                        cause: problem.clone(),
                    },
                });
                // The probe reports a member that was recognised once.
                if *self.join_state.borrow() < JoinState::Member {
                    let note = format!("The member cannot be identified: {problem}");
                    self.report(&cluster, reported, "MemberNotIdentified", note);
                }
                return Some(SOON);
            }
        };
        if fleet.is_none() {
            *fleet = identity(&self.fleet).await.ok();
        }
        match compare(&cluster, &id, fleet.as_deref(), self.same_server) {
            Relation::Same => {
                advance(&self.join_state, JoinState::Member);
                reported.clear();
                Some(AGAIN)
            }
            Relation::New => {
                if let Some(problem) = self.adopt(&cluster, &id).await {
                    let note = format!("Nothing is applied to the member: {problem}");
                    self.report(&cluster, reported, "MemberNotRecognised", note);
                }
                Some(SOON)
            }
            Relation::Other(problem) => {
                let was_member = *self.join_state.borrow() == JoinState::Member;
                step_back(&self.join_state);
                let note = format!("Nothing is applied to the member: {problem}");
                self.publish(Observation::Unreachable { cause: problem });
                self.report(&cluster, reported, "MemberNotRecognised", note);
                (!was_member).then_some(SOON)
            }
        }
    }

    /// Publishes an event about the Cluster, and a log line, unless it was reported last.
    fn report(&self, cluster: &Cluster, reported: &mut String, reason: &str, note: String) {
        if *reported != note {
            tracing::warn!(cluster = self.cluster, reason, "{note}");
            reported.clone_from(&note);
            self.events.warn(cluster, reason, note);
        }
    }

    /// Publishes why the member was not recognised, unless the probe says how it is.
    fn publish(&self, observation: Observation) {
        if *self.join_state.borrow() < JoinState::Member {
            self.probed.send_replace(Some(Health {
                recent: Recent::default(),
                observation,
                at: Instant::now(),
            }));
        }
    }

    /// Writes the id of the member into the Cluster, unless another Cluster has it; the next check
    /// sees the result. Returns why it was not written.
    async fn adopt(&self, cluster: &Cluster, id: &str) -> Option<String> {
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        if let Err(error) = refuse_a_taken_name(&api, &self.cluster, id).await {
            return Some(error.to_string());
        }
        let patch = json!({
            "metadata": { "resourceVersion": cluster.resource_version() },
            "spec": { "id": id },
        });
        let written = write::merge(&api, &self.cluster, None, &patch).await;
        written.err().map(|error| {
            let error = client::brief(&error);
            format!("its id cannot be written into the Cluster: {error}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_server_of_the_cluster_is_written_to() {
        let cluster = |id: &str, unique: &str| {
            serde_json::from_value::<Cluster>(json!({
                "metadata": { "name": "m1" },
                "spec": { "syncMode": "Push", "id": id },
                "status": { "conditions": [{
                    "type": "UniqueIdentity", "status": unique, "reason": "r", "message": "registered as m0",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            }))
            .unwrap()
        };
        let ours = || cluster("a", "True");
        let (new, mixed_up) = (cluster("", "True"), cluster("b", "True"));
        let second = cluster("a", "False");
        let (same, itself) = (|| Ok(Relation::Same), || Err("fleet API itself"));
        let f = Some("f");
        for (what, cluster, fleet, same_server, expected) in [
            ("same", ours(), f, false, same()),
            ("new", new, f, false, Ok(Relation::New)),
            ("mixed up", mixed_up, f, false, Err("another cluster")),
            ("second", second, None, false, Err("registered as m0")),
            ("the fleet API", ours(), Some("a"), false, itself()),
            ("its address", ours(), None, true, itself()),
            ("its address, other id", ours(), f, true, same()),
        ] {
            let found = compare(&cluster, "a", fleet, same_server);
            match (expected, found) {
                (Ok(expected), found) => assert_eq!(found, expected, "{what}"),
                (Err(part), Relation::Other(problem)) => {
                    assert!(problem.contains(part), "{what}: {problem}");
                }
                (Err(_), found) => panic!("{what}: {found:?}"),
            }
        }
    }
}
