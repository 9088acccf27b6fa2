//! Follows ClusterTaintPolicies and Clusters, and writes the status of the policies.
//!
//! A change only has everything counted anew after a pause, so that a fleet in trouble costs each
//! policy one write per pause at most, and the last state is always written.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, Patch};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::{ClusterTaintPolicy, ClusterTaintPolicyStatus};
use muster_shared::client::{is_conflict, is_not_found};
use muster_shared::merge;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;
use tokio::time::Instant;

use super::decide::{Sight, status};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::patch_params;
use crate::fleet::served::Served;
use crate::taint::{is_other_policy, matters};

const NAME: &str = "policy status";
/// Time in which changes are gathered before policies are counted.
const GATHER: Duration = Duration::from_secs(1);
/// Shortest pause between two counts, and so between two writes of one status.
const PAUSE: Duration = Duration::from_secs(2);
/// Part of the time that counting may take: a count that takes 100 ms is followed by a pause of
/// 5 s.
const SHARE: u32 = 50;

/// The one key of the queue: policies are counted together, since they see the same clusters.
type All = ();

/// State of the controller. All of it may be lost.
#[derive(Default)]
struct Statuses {
    served: Served,
    /// Time before which nothing is counted.
    earliest: Mutex<Option<Instant>>,
}

/// Starts the controller. Without the controller of taints, what policies do is not known here.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    if !fleet.settings.runs("clustertaintpolicy") {
        return;
    }
    let queue = Queue::<All>::new(NAME);
    fleet.clusters.on_change({
        let queue = queue.clone();
        move |change| {
            let is_news = match change {
                Change::Applied { old, new } => old.as_ref().is_none_or(|old| matters(old, new)),
                Change::Deleted { .. } => true,
            };
            if is_news {
                queue.add_after((), GATHER);
            }
        }
    });
    fleet.taint_policies.on_change({
        let queue = queue.clone();
        move |change| {
            if let Change::Applied { old, new } = change
                && old.as_ref().is_none_or(|old| is_other_policy(old, new))
            {
                queue.add_after((), GATHER);
            }
        }
    });
    let statuses = Arc::new(Statuses::default());
    fleet.work(tasks, NAME, queue, 1, move |fleet, ()| {
        let statuses = Arc::clone(&statuses);
        async move { statuses.update(&fleet).await }
    });
}

impl Statuses {
    async fn update(&self, fleet: &Fleet) -> Result<Next, ApiError> {
        if let Some(wait) = self.wait() {
            return Ok(Next::After(wait));
        }
        let client = fleet.status_writer.turn().await;
        let began = Instant::now();
        let wanted = count(fleet);
        let earliest = Instant::now() + (began.elapsed() * SHARE).max(PAUSE);
        *self.earliest.lock().unwrap_or_else(PoisonError::into_inner) = Some(earliest);
        let api: Api<ClusterTaintPolicy> = Api::all(client);
        let mut next = Next::Done;
        let mut failed = None;
        for (policy, wanted) in wanted {
            // Another process may lead by now, or the API may take no status.
            if !fleet.leadership.is_current() || self.served.wait().is_some() {
                break;
            }
            match self.write(&api, &policy, &wanted).await {
                Ok(Next::Done) => {}
                Ok(other) => next = other,
                // One that cannot be written keeps no other.
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(self.served.wait().map_or(next, Next::After)),
        }
    }

    fn wait(&self) -> Option<Duration> {
        let earliest = *self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = earliest.map(|it| it.saturating_duration_since(Instant::now()));
        let pause = pause.filter(|pause| !pause.is_zero());
        self.served.wait().max(pause)
    }

    async fn write(
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
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": policy.resource_version() },
            "status": difference,
        }));
        match api.patch_status(&name, &patch_params(), &patch).await {
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

/// Whether the API stored a status, rather than dropping fields that its definition lacks.
fn is_kept(stored: Option<&ClusterTaintPolicyStatus>, wanted: &ClusterTaintPolicyStatus) -> bool {
    stored.is_some_and(|it| {
        it.observed_generation == wanted.observed_generation
            && it.conditions.len() >= wanted.conditions.len()
    })
}

/// Every policy with the status that it should have. Policies that are going away keep theirs.
fn count(fleet: &Fleet) -> Vec<(Arc<ClusterTaintPolicy>, ClusterTaintPolicyStatus)> {
    let mut clusters: Vec<Arc<Cluster>> = fleet.clusters.list();
    clusters.sort_by_cached_key(|cluster| cluster.name_any());
    let clusters: Vec<Sight<'_>> = clusters.iter().map(|it| Sight::of(it)).collect();
    let now = fleet.clock.now();
    let policies = fleet.taint_policies.list().into_iter();
    let policies = policies.filter(|policy| policy.metadata.deletion_timestamp.is_none());
    let decided = policies.map(|policy| {
        let wanted = status(&policy, &clusters, now);
        (policy, wanted)
    });
    decided.collect()
}
