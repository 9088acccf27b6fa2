//! Follows ClusterTaintPolicies and Clusters, and writes the status of the policies.
//!
//! A change only has everything counted anew after a pause, so that a fleet in trouble costs each
//! policy one write per pause at most, and the last state is always written.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::{ClusterTaintPolicy, ClusterTaintPolicyStatus};
use muster_shared::client::{is_conflict, is_not_found};
use muster_shared::controller::Controller;
use muster_shared::merge;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::decide::{Rules, Sight, status};
use crate::clusters::taint::{is_other_policy, matters};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::served::Served;
use crate::fleet::write::merge_status;

const NAME: &str = "policy status";
/// Time in which changes are gathered before policies are counted.
const GATHER: Duration = Duration::from_secs(1);
/// Shortest pause between two counts, and so between two writes of one status.
const PAUSE: Duration = Duration::from_secs(2);
/// Part of the time that counting may take: a count that takes 100 ms is followed by a pause of
/// 5 s.
const SHARE: u32 = 50;

/// Shortest and longest back-off of a policy whose status cannot be written.
const FAILED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// State of the controller. All of it may be lost.
struct Statuses {
    /// Whether the definition has a status. It may be upgraded a little after this process.
    served: Served,
    /// Policies whose status could not be written, each with a back-off of its own.
    failing: Mutex<HashMap<String, Served>>,
    /// Time before which nothing is counted.
    earliest: Mutex<Option<Instant>>,
}

/// Starts the controller. Without the controller of taints, what policies do is not known here.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    if !fleet.settings.runs("clustertaintpolicy") {
        return;
    }
    let statuses = Arc::new(Statuses {
        served: Served::default(),
        failing: Mutex::default(),
        earliest: Mutex::default(),
    });
    Controller::new(fleet, NAME)
        .gathers(GATHER, &fleet.clusters, |_, change| {
            let is_news = match change {
                Change::Applied { old, new } => old.as_ref().is_none_or(|old| matters(old, new)),
                Change::Deleted { .. } => true,
            };
            is_news.then_some(())
        })
        .gathers(GATHER, &fleet.taint_policies, |_, change| {
            let Change::Applied { old, new } = change else {
                return None;
            };
            let is_news = old
                .as_ref()
                .is_none_or(|old| is_other_policy(old, new) || old.status != new.status);
            is_news.then_some(())
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
        let client = fleet.status_writer.turn().await;
        let api: Api<ClusterTaintPolicy> = Api::all(client);
        let mut counting = Duration::ZERO;
        let mut next = Next::Done;
        let began = Instant::now();
        let mut clusters: Vec<Arc<Cluster>> = fleet.clusters.list();
        clusters.sort_by_cached_key(|cluster| cluster.name_any());
        let clusters: Vec<Sight<'_>> = clusters.iter().map(|it| Sight::of(it)).collect();
        counting += began.elapsed();
        let policies = fleet.taint_policies.list();
        self.forget_all_but(&policies);
        for policy in policies {
            // Another process may lead by now, or the API may take no status.
            if !fleet.leadership.is_current() || self.served.wait().is_some() {
                break;
            }
            // Policies that are going away keep what they say.
            if policy.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let began = Instant::now();
            let rules = Rules::of(&fleet.settings);
            let wanted = status(&policy, &clusters, rules, fleet.clock.now());
            counting += began.elapsed();
            let other = self.write(&api, &policy, &wanted).await;
            next = sooner(next, other);
            // Counting thousands of clusters keeps no other task waiting.
            tokio::task::yield_now().await;
        }
        let earliest = Instant::now() + (counting * SHARE).max(PAUSE);
        *self.earliest.lock() = Some(earliest);
        self.served.wait().map_or(next, Next::After)
    }

    fn forget_all_but(&self, policies: &[Arc<ClusterTaintPolicy>]) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            let names: HashSet<String> = policies.iter().map(|it| it.name_any()).collect();
            failing.retain(|name, _| names.contains(name));
        }
    }

    /// Writes the status of a policy that can be written. One that cannot keeps no other.
    async fn write(
        &self,
        api: &Api<ClusterTaintPolicy>,
        policy: &ClusterTaintPolicy,
        wanted: &ClusterTaintPolicyStatus,
    ) -> Next {
        let name = policy.name_any();
        let wait = self.failing.lock().get(&name).and_then(Served::wait);
        if let Some(wait) = wait {
            return Next::After(wait);
        }
        let error = match self.try_to_write(api, policy, wanted).await {
            Ok(next) => {
                self.failing.lock().remove(&name);
                return next;
            }
            Err(error) => error,
        };
        let mut failing = self.failing.lock();
        let (first, longest) = FAILED;
        let failed = failing
            .entry(name)
            .or_insert_with(|| Served::retrying(first, longest));
        if failed.refuse() {
            tracing::warn!(%error, "a policy keeps an old status");
        }
        failed.wait().map_or(Next::Done, Next::After)
    }

    fn wait(&self) -> Option<Duration> {
        let earliest = *self.earliest.lock();
        let pause = earliest.map(|it| it.saturating_duration_since(Instant::now()));
        let pause = pause.filter(|pause| !pause.is_zero());
        self.served.wait().max(pause)
    }

    async fn try_to_write(
        &self,
        api: &Api<ClusterTaintPolicy>,
        policy: &ClusterTaintPolicy,
        wanted: &ClusterTaintPolicyStatus,
    ) -> Result<Next, ApiError> {
        let Some(difference) = merge::difference(&json!(policy.status), &json!(wanted)) else {
            return Ok(Next::Done);
        };
        let name = policy.name_any();
        let title = format!("ClusterTaintPolicy {name}");
        let patch = json!({
            "metadata": { "resourceVersion": policy.resource_version() },
            "status": difference,
        });
        match merge_status(api, &name, &patch).await {
            Ok(written) if is_kept(written.status.as_ref(), wanted) => {
                if self.served.accept() {
                    tracing::info!("the fleet API takes the status of ClusterTaintPolicies");
                }
                Ok(Next::Done)
            }
            Ok(_) => Ok(self.refused("drops it")),
            Err(error) if is_conflict(&error) => Ok(Next::Again),
            // The answer names the policy whether the policy or its subresource is missing.
            Err(error) if is_not_found(&error) => {
                let there = api.get_metadata_opt(&name).await;
                let there = there.map_err(ApiError::of("read", &title))?;
                Ok(there.map_or(Next::Done, |_| self.refused("does not serve it")))
            }
            Err(kube::Error::Api(answer)) if answer.code == 405 => {
                Ok(self.refused("does not serve it"))
            }
            Err(error) => Err(ApiError::of("write the status of", &title)(error)),
        }
    }

    /// Notes that the API takes no status, and says so once.
    fn refused(&self, what: &str) -> Next {
        if self.served.refuse() {
            tracing::warn!(
                "ClusterTaintPolicies get no status, because the fleet API {what}: apply the definitions of this version. What is \
                 wrong with a policy is told by events all the same"
            );
        }
        self.served.wait().map_or(Next::Done, Next::After)
    }
}

/// Returns whether the API stored a status, rather than dropping fields that its definition lacks.
fn is_kept(stored: Option<&ClusterTaintPolicyStatus>, wanted: &ClusterTaintPolicyStatus) -> bool {
    stored.is_some_and(|it| {
        it.observed_generation == wanted.observed_generation
            && it.conditions.len() >= wanted.conditions.len()
    })
}

/// Returns the earlier of two times to come again. After a conflict the pause between two counts is
/// long enough for the cache.
fn sooner(one: Next, other: Next) -> Next {
    let wait = |next| match next {
        Next::Done | Next::Waits => None,
        Next::After(wait) => Some(wait),
        Next::Again => Some(PAUSE),
    };
    let waits = [wait(one), wait(other)];
    let soonest = waits.into_iter().flatten().min();
    soonest.map_or(Next::Done, Next::After)
}
