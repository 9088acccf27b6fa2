//! Follows ClusterTaintPolicies and Clusters, and writes the status of the policies.
//!
//! A change only has everything counted anew after a pause, so that a fleet in trouble costs each
//! policy one write per pause at most, and the last state is always written.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::{ClusterTaintPolicy, ClusterTaintPolicyStatus};
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::names::condition;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::decide::{Sight, is_followed, status};
use crate::clusters::taint::{is_other_policy, matters};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::memory::Backoff;
use crate::fleet::served::Served;

const NAME: &str = "taint policy status";
/// Time in which changes are gathered before policies are counted.
const GATHER: Duration = Duration::from_secs(1);
/// Shortest pause between two counts, and so between two writes of one status.
const PAUSE: Duration = Duration::from_secs(2);
/// Part of the time that counting may take: a count that takes 100 ms is followed by a pause of
/// 5 s.
const SHARE: u32 = 50;

/// Shortest and longest back-off of a policy whose status cannot be written.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_mins(5);

/// State of the controller. All of it may be lost.
struct Statuses {
    /// Whether the definition has a status. It may be upgraded a little after this process.
    served: Served,
    /// Policies whose status could not be written.
    failing: Backoff<String>,
    /// Time before which nothing is counted.
    earliest: Mutex<Option<Instant>>,
    /// Statuses that were written last, where no policy is followed.
    said: Mutex<HashMap<String, Said>>,
}

/// Status that was written of a policy which is not followed.
struct Said {
    /// Generation of the policy.
    generation: Option<i64>,
    /// Reason of the condition `Effective`.
    reason: String,
}

impl Said {
    fn of(policy: &ClusterTaintPolicy, status: &ClusterTaintPolicyStatus) -> Self {
        Self {
            generation: policy.metadata.generation,
            reason: effective(status).unwrap_or_default().to_owned(),
        }
    }

    /// Returns whether another control plane has written another reason since, of the same
    /// generation. It may follow the policy, and would write that again after each write of this
    /// one.
    fn is_contradicted(&self, policy: &ClusterTaintPolicy) -> bool {
        let stored = policy.status.as_ref().and_then(effective);
        self.generation == policy.metadata.generation
            && stored.is_some_and(|reason| reason != self.reason)
    }
}

/// Returns the reason of the condition `Effective`.
fn effective(status: &ClusterTaintPolicyStatus) -> Option<&str> {
    let reported = conditions::get(&status.conditions, condition::EFFECTIVE);
    reported.map(|it| it.reason.as_str())
}

/// Starts the controller. Without the controller of taints it says that the policies are not
/// followed.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let statuses = Arc::new(Statuses {
        served: Served::default(),
        failing: Backoff::between(FIRST, LONGEST),
        earliest: Mutex::default(),
        said: Mutex::default(),
    });
    Controller::new(fleet, NAME)
        .gathers(GATHER, &fleet.clusters, |_, change| {
            change.differs(matters).then_some(())
        })
        .gathers(GATHER, &fleet.taint_policies, |_, change| {
            let Change::Applied { old, new } = change else {
                return None;
            };
            let is_update = old
                .as_ref()
                .is_none_or(|old| is_other_policy(old, new) || old.status != new.status);
            is_update.then_some(())
        })
        .run(tasks, 1, statuses, |fleet, statuses, ()| async move {
            Ok::<_, Infallible>(statuses.update(&fleet).await)
        });
}

impl Statuses {
    async fn update(&self, fleet: &Fleet) -> Next {
        if let Some(wait) = self.wait() {
            return Next::After(wait);
        }
        let client = fleet.status_writer.when_idle().await;
        let api: Api<ClusterTaintPolicy> = Api::all(client);
        let mut counting = Duration::ZERO;
        let mut next = Next::Done;
        let began = Instant::now();
        let mut clusters: Vec<Arc<Cluster>> = fleet.clusters.list();
        clusters.sort_by_cached_key(|cluster| cluster.name_any());
        let clusters: Vec<Sight<'_>> = clusters.iter().map(|it| Sight::of(it)).collect();
        counting += began.elapsed();
        let policies = fleet.taint_policies.list();
        let is_there = |name: &String| {
            let mut names = policies.iter().map(|it| &it.metadata.name);
            names.any(|it| it.as_ref() == Some(name))
        };
        self.failing.retain(is_there);
        self.said.lock().retain(|name, _| is_there(name));
        let follows = is_followed(&fleet.settings);
        for policy in policies {
            // Another process may lead by now, or the API may take no status.
            if !fleet.leadership.is_current() || self.served.wait().is_some() {
                break;
            }
            // Policies that are going away keep what they say.
            if policy.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let name = policy.name_any();
            let is_contradicted = |it: &Said| it.is_contradicted(&policy);
            if self.said.lock().get(&name).is_some_and(is_contradicted) {
                continue;
            }
            let began = Instant::now();
            let wanted = status(&policy, &clusters, &fleet.settings, fleet.clock.now());
            counting += began.elapsed();
            let other = self.write(&api, &policy, &wanted).await;
            if !follows && other == Next::Done {
                let said = Said::of(&policy, &wanted);
                self.said.lock().insert(name, said);
            }
            next = next.sooner(other);
            // Counting thousands of clusters keeps no other task waiting.
            tokio::task::yield_now().await;
        }
        let earliest = Instant::now() + (counting * SHARE).max(PAUSE);
        *self.earliest.lock() = Some(earliest);
        self.served.wait().map_or(next, Next::After)
    }

    /// Writes the status of a policy that can be written. One that cannot keeps no other.
    async fn write(
        &self,
        api: &Api<ClusterTaintPolicy>,
        policy: &ClusterTaintPolicy,
        wanted: &ClusterTaintPolicyStatus,
    ) -> Next {
        let name = policy.name_any();
        if let Some(wait) = self.failing.rest(&name) {
            return Next::After(wait);
        }
        let kept = |it: &ClusterTaintPolicyStatus| is_kept(it, wanted);
        let written = self
            .served
            .write(api, policy, wanted, |it| it.status.as_ref(), kept)
            .await;
        match written {
            Ok(next) => {
                self.failing.forget(&name);
                next
            }
            Err(error) => {
                if !self.failing.has(&name) {
                    let title = format!("ClusterTaintPolicy {name}");
                    let error = ApiError::of("write the status of", &title)(error);
                    tracing::warn!(%error, "a policy keeps an old status");
                }
                Next::After(self.failing.next(&name).time)
            }
        }
    }

    fn wait(&self) -> Option<Duration> {
        let earliest = *self.earliest.lock();
        let pause = earliest.map(|it| it.saturating_duration_since(Instant::now()));
        let pause = pause.filter(|pause| !pause.is_zero());
        self.served.wait().max(pause)
    }
}

/// Returns whether the API stored a status, rather than dropping fields that its definition lacks.
fn is_kept(stored: &ClusterTaintPolicyStatus, wanted: &ClusterTaintPolicyStatus) -> bool {
    stored.observed_generation == wanted.observed_generation
        && stored.conditions.len() >= wanted.conditions.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, cluster, pass};
    use crate::settings::Settings;

    #[tokio::test(start_paused = true)]
    async fn a_policy_says_whether_it_is_followed_also_where_none_is() {
        for (flag, expected) in [
            ("--resource-eviction-rate=1", "FailoverOff"),
            ("--controllers=*,-clustertaintpolicy", "ControllerOff"),
            ("--preview-cluster-taint-policies", "NoClusterMatches"),
        ] {
            let failed =
                json!({"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]});
            let policy = json!({
                "metadata": {"name": "failed", "generation": 1},
                "spec": {
                    "matchConditions": [failed],
                    "taintsToAdd": [{"key": "example.com/failed", "effect": "NoExecute"}],
                },
            });
            let objects = [
                ("clusters", cluster("m1")),
                ("clustertaintpolicies", policy),
            ];
            let settings = Settings::of_flags(&[flag.to_owned()]).unwrap();
            let mut bench = Bench::with(settings, objects);
            bench.run(start, 30).await;
            let policy = bench.api.object("clustertaintpolicies", "", "failed");
            let status = &policy.unwrap()["status"];
            assert_eq!(status["conditions"][0]["reason"], expected, "{flag}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_control_plane_that_follows_policies_says_is_overwritten_once_after_an_edit() {
        let policy = |generation: i64| {
            let condition = |kind: &str| {
                json!({
                    "type": kind, "status": "True", "reason": "Tainting", "message": "",
                    "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let conditions = ["Ready", "Effective"].map(condition);
            let failed =
                json!({"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]});
            json!({
                "metadata": {"name": "failed", "generation": generation},
                "spec": {
                    "matchConditions": [failed],
                    "taintsToAdd": [{"key": "example.com/failed", "effect": "NoExecute"}],
                },
                "status": {"observedGeneration": generation, "conditions": conditions},
            })
        };
        let off = "--controllers=*,-clustertaintpolicy".to_owned();
        let settings = Settings::of_flags(&[off]).unwrap();
        let plural = "clustertaintpolicies";
        let objects = [("clusters", cluster("m1")), (plural, policy(1))];
        let mut bench = Bench::with(settings, objects);
        bench.run(start, 30).await;
        for (generation, expected) in [
            (None, "ControllerOff"),
            (Some(1), "Tainting"),
            (Some(2), "ControllerOff"),
            (Some(2), "Tainting"),
        ] {
            if let Some(generation) = generation {
                bench.api.put(plural, policy(generation));
                pass(30).await;
            }
            let policy = bench.api.object(plural, "", "failed").unwrap();
            let said = &policy["status"]["conditions"][1]["reason"];
            assert_eq!(said, expected, "{generation:?}");
        }
    }
}
