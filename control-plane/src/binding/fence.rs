//! Fencing: holds new Works back while a copy elsewhere may run.
//!
//! Every path that makes a copy ends here: evictions, application failover, new schedules,
//! rebalancing, and edits of policies and bindings.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::{self, CLUSTER_NAMESPACE};
use tokio::time::Instant;

use super::controller::cluster_of;
use super::error::Error;
use super::hold;
use super::render::Scope;
use super::write::listed;
use crate::fencing::{self, Verdict};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, BindingKind};
use crate::fleet::works::CachedWork;

/// Reason of the condition `RemovalPending` while a copy may run.
const FENCED: &str = "WaitingForFence";
/// Pause before it is looked again, if nothing is heard earlier.
const LOOK: Duration = Duration::from_secs(5);
/// Time for which a cluster that is ready may take to remove its copy before anybody is told.
const UNTOLD: Duration = Duration::from_secs(15);

/// A copy that may run, and holds new ones back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is waited for.
    message: String,
    /// Whether people are told.
    is_told: bool,
    /// When to look again.
    pub pause: Duration,
}

/// The first copy outside the targets that may run. `removed` says whether the Works outside the
/// targets have been deleted.
pub async fn held<B: BindingKind>(
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    binding: &B,
    scope: &Scope,
    works: &[Arc<CachedWork>],
    removed: bool,
) -> Result<Option<Held>, Error> {
    let spec = binding.spec();
    let Some(after) = fencing::asked(spec).filter(|_| !scope.targets.is_empty()) else {
        return Ok(None);
    };
    let is_target = |cluster: &str| scope.targets.iter().any(|target| target.name == cluster);
    let has_work = |cluster: &str| works.iter().any(|work| cluster_of(work) == Some(cluster));
    if scope.targets.iter().any(|target| !has_work(&target.name)) {
        // A Work that was made a moment ago may not be in the cache yet.
        let id = binding.permanent_id().unwrap_or_default();
        let all = listed(fleet, key, B::ID_LABEL, id).await?;
        let clusters = all
            .iter()
            .filter_map(|work| names::cluster_of_execution_namespace(&work.namespace));
        let mut unseen = clusters.filter(|cluster| !has_work(cluster));
        if unseen.any(|cluster| !is_target(cluster)) {
            return Ok(Some(Held {
                message: String::new(),
                is_told: false,
                pause: Duration::from_millis(500),
            }));
        }
    }
    for work in works {
        let Some(cluster) = cluster_of(work).filter(|cluster| !is_target(cluster)) else {
            continue;
        };
        let goes = removed && !scope.expected.contains(cluster)
            || work.metadata.deletion_timestamp.is_some();
        if let Some(held) = judge(fleet, client, cluster, work, after, goes).await? {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// Judges the copy of a Work; `goes` says whether the Work has been deleted.
async fn judge(
    fleet: &Fleet,
    client: &Client,
    cluster: &str,
    work: &CachedWork,
    after: Duration,
    goes: bool,
) -> Result<Option<Held>, Error> {
    let now = Instant::now();
    let (verdict, sign) = fencing::of_work(fleet, cluster, Some(work), after, now);
    let is_ready = super::controller::is_heard(fleet, cluster);
    let (why, pause) = match verdict {
        Verdict::Stopped if goes => {
            // The Work was deleted before the lease is read. An agent that returns renews the lease
            // before it reads its Works, so that one of the two sees the other.
            let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
            let lease = leases.get_metadata_opt(cluster).await;
            let lease = lease.map_err(ApiError::of("read the lease of", &cluster))?;
            let version = lease.and_then(|lease| lease.metadata.resource_version);
            if version == sign.and_then(|sign| sign.version) {
                return Ok(None);
            }
            (
                "its lease is renewed again".to_owned(),
                Duration::from_millis(500),
            )
        }
        Verdict::Stopped => ("its Work there is kept".to_owned(), LOOK),
        Verdict::Waits { until, time } => {
            let why = format!(
                "or until {} s have passed since the last renewal of its lease, when it is stopped",
                time.as_secs()
            );
            (why, until.saturating_duration_since(now).min(LOOK))
        }
        Verdict::Unfenced(why) => (why.to_string(), LOOK),
    };
    let deleted = work.metadata.deletion_timestamp.as_ref();
    let waits = deleted.map(|at| fleet.clock.now().duration_since(at.0));
    let is_long = waits.is_some_and(|waits| waits.unsigned_abs() >= UNTOLD);
    Ok(Some(Held {
        message: format!(
            "its copy in {cluster} may still run, and two copies must not (failover.cluster.fencing): \
             no other is made until that one is removed; {why}"
        ),
        is_told: !is_ready || is_long,
        pause: pause.max(Duration::from_millis(100)),
    }))
}

impl Held {
    /// The condition while the copy holds new ones back; nothing where none has to be told.
    pub fn condition(&self, now: Timestamp) -> Option<Condition> {
        let (kind, message) = (hold::CONDITION, &self.message);
        self.is_told
            .then(|| conditions::new(kind, conditions::TRUE, FENCED, message, now))
    }
}
