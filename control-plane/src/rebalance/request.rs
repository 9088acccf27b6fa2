//! Requests new placements of bindings, at the rate that all evictions share.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::Patch;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::client::{is_conflict, is_not_found};
use muster_shared::k8s::Time;
use muster_shared::watch::{Doubt, Presence};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::decide;
use crate::eviction::execute::may_be_written;
use crate::eviction::pace::{Pace, Payer};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};
use crate::scheduler::controller::LiveSnapshot;
use crate::scheduler::core::{Decision, FitError, Options, Snapshot, schedule};

/// Result of a request to place a workload anew.
pub(super) enum Requested {
    /// The binding says so.
    Yes,
    /// There is no binding.
    NoBinding,
    /// The binding cannot be written now.
    Later,
    /// The rate permits it at this instant; `None`: not while so many clusters have failed.
    AtRate(Option<Instant>),
}

/// What requests are decided by.
pub(super) struct Requests {
    pace: Pace,
    snapshot: LiveSnapshot,
    options: Options,
}

impl Requests {
    /// Requests of a control plane that are paid from a budget which others use as well.
    pub fn new(fleet: &Fleet, pace: Pace) -> Self {
        Self {
            pace,
            snapshot: LiveSnapshot::follow(&fleet.clusters),
            options: Options::of(&fleet.settings),
        }
    }

    /// Asks for a new placement of a binding. `since` is that of [`decide::trigger`]. Without
    /// `may_think` only what needs no placement in thought is answered; all else waits for the
    /// rate.
    pub async fn make<B: BindingKind>(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        since: Timestamp,
        now: Timestamp,
        may_think: bool,
    ) -> Result<Requested, ApiError> {
        let binding = match B::cache(fleet).presence(key.namespace.as_deref(), &key.name) {
            Presence::There(binding) => binding,
            Presence::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. }) => {
                return Ok(Requested::Later);
            }
            Presence::Gone | Presence::Unknown(_) => return Ok(Requested::NoBinding),
        };
        let (spec, status) = (binding.spec(), binding.status());
        let asked = spec.reschedule_triggered_at.as_ref().map(|it| it.0);
        let scheduled = status.last_scheduled_time.as_ref().map(|it| it.0);
        let Some(time) = decide::request(since, asked, scheduled, now) else {
            return Ok(Requested::Yes);
        };
        if !may_think {
            return Ok(Requested::AtRate(None));
        }
        // What would stay where it is need not wait for its turn.
        let is_ours = fleet.settings.schedules(spec.scheduler_name.as_deref());
        let moves = !is_ours || matches!(self.anew(spec, status), Ok(Some(_)));
        self.write(fleet, key, binding.as_ref(), time, moves).await
    }

    /// Where a new placement would put a workload, as [`moved`].
    pub fn anew(
        &self,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
    ) -> Result<Option<Decision>, FitError> {
        moved(spec, status, &self.snapshot.get(), &self.options)
    }

    /// Wakes somebody whenever a turn may come earlier than was said.
    pub fn wakes(&self, listener: &Arc<Notify>) {
        self.pace.wakes(Arc::clone(listener));
    }

    /// Writes a request, which is paid for if it moves something.
    pub async fn write<B: BindingKind>(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &B,
        time: Timestamp,
        moves: bool,
    ) -> Result<Requested, ApiError> {
        if moves && let Err(when) = self.pace.pay(Payer::Rebalances, Instant::now()) {
            return Ok(Requested::AtRate(when));
        }
        let patch = json!({
            "metadata": { "resourceVersion": binding.meta().resource_version },
            "spec": { "rescheduleTriggeredAt": Time(time) },
        });
        let written = B::api(&fleet.client, key)
            .patch(&key.name, &patch_params(), &Patch::Merge(patch))
            .await;
        let Err(error) = written else {
            tracing::info!(binding = %key, "asked for a new placement");
            return Ok(Requested::Yes);
        };
        if moves && !may_be_written(&error) {
            self.pace.refund();
        }
        match error {
            error if is_conflict(&error) => Ok(Requested::Later),
            error if is_not_found(&error) => Ok(Requested::NoBinding),
            error => Err(ApiError::of("ask for a new placement of", key)(error)),
        }
    }
}

/// Returns where a new placement would put a workload that has one; `None` if it would stay.
///
/// # Errors
/// No allowed set of clusters takes the whole workload.
pub(crate) fn moved(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    snapshot: &Snapshot,
    options: &Options,
) -> Result<Option<Decision>, FitError> {
    if spec.clusters.is_empty() || spec.placement.is_none() {
        return Ok(None);
    }
    let (mut asked, mut status) = (spec.clone(), status.clone());
    // The scheduler compares the two.
    asked.reschedule_triggered_at = Some(Time(Timestamp::MAX));
    status.last_scheduled_time = Some(Time(Timestamp::UNIX_EPOCH));
    let decision = schedule(&asked, &status, snapshot, options)?;
    let has = |some: &[TargetCluster], others: &[TargetCluster]| {
        some.iter().all(|it| others.contains(it))
    };
    let (before, after) = (&spec.clusters, &decision.clusters);
    let is_same = has(before, after) && has(after, before);
    Ok((!is_same).then_some(decision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    #[test]
    fn only_what_would_get_other_targets_or_other_replicas_moves() {
        let among = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] } });
        let unplaced = json!(null);
        for (what, placement, targets, expected) in [
            (
                "where it would go",
                &among,
                &[("m1", 2), ("m2", 2)][..],
                false,
            ),
            ("in another order", &among, &[("m2", 2), ("m1", 2)], false),
            ("one too few", &among, &[("m1", 2)], true),
            (
                "one too many",
                &among,
                &[("m1", 2), ("m2", 2), ("m3", 2)],
                true,
            ),
            ("other replicas", &among, &[("m1", 1), ("m2", 2)], true),
            ("nowhere", &among, &[], false),
            ("without a placement", &unplaced, &[("m1", 1)], false),
        ] {
            let spec = placed(deployment(2, placement), targets);
            let clusters = ["m1", "m2", "m3"].map(|name| cluster(name, 10));
            let status = ResourceBindingStatus::default();
            let decision = moved(&spec, &status, &snapshot(&clusters), &Options::default());
            assert_eq!(decision.unwrap().is_some(), expected, "{what}");
        }
    }
}
