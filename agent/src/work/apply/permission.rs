//! Asks whether a fenced Work may be applied, and confirms that its objects are stopped when the
//! member is cut off.

use std::time::Duration;

use muster_shared::api::work::Work;
use muster_shared::fencing::Times;
use muster_shared::k8s::{Condition, ResourceExt};
use tokio::time::Instant;

use super::{Applier, Error};
use crate::work::CachedWork;
use crate::work::fencing::Permission;
use crate::work::fencing::orders::{self, Fenced};
use crate::work::manifests::conditions_of;

impl Applier {
    /// Returns whether a Work may be applied. Nothing fenced is while the member counts as cut off;
    /// afterwards the Work is read first, because the control plane may have withdrawn it and
    /// placed the workload elsewhere, or have taken the role of its data away. One that has changed
    /// is checked again as it is now, and whatever the cache shows that the read has not found is
    /// read for, because it may be older.
    pub(super) async fn may_start(&self, cached: &CachedWork, work: &Work) -> Result<bool, Error> {
        let (Some(fencer), Some(after)) = (&self.fencer, stops_after(work)) else {
            return Ok(true);
        };
        match fencer.permission(cached, after) {
            Permission::Granted => return Ok(true),
            Permission::Refused => return Ok(false),
            Permission::Verify => {}
        }
        let asked = Instant::now();
        let fresh = self.store.works.verify(&cached.name_any()).await?;
        let is_wanted = fresh.is_some_and(|fresh| {
            fresh.wish() == cached.wish() && fresh.metadata.deletion_timestamp.is_none()
        });
        if is_wanted {
            fencer.verify(cached, asked);
        }
        Ok(is_wanted)
    }

    /// Returns whether a Work may still be applied as [`may_start`](Self::may_start) permitted: its
    /// other objects may have taken long. `after` is the time after which it stops.
    pub(super) fn may_go_on(&self, cached: &CachedWork, after: Option<Duration>) -> bool {
        let fenced = self.fencer.as_ref().zip(after);
        fenced.is_none_or(|(fencer, after)| fencer.permission(cached, after) == Permission::Granted)
    }

    /// Returns the condition that reports to the control plane whether the objects of a Work are
    /// stopped when the member is cut off.
    pub(super) async fn confirm(&self, fenced: &Fenced) -> Condition {
        let now = self.clock.now();
        let Some(record) = &self.fencer else {
            let why = "the cluster has sync mode Push: no agent in it could stop the objects";
            return orders::refusal("PushMode", why, now);
        };
        match record.arm(fenced).await {
            Ok(()) => orders::confirmation(fenced.longest, now),
            Err((reason, why)) => {
                tracing::warn!(reason, why, "does not fence");
                orders::refusal(reason, &why, now)
            }
        }
    }
}

/// Returns the time without a renewal of the lease after which objects of a Work are stopped;
/// `None` for one without fencing. A Work that has lost its orders is fenced for as long as its
/// agent confirms it: the objects have them still.
pub(super) fn stops_after(work: &Work) -> Option<Duration> {
    let confirmed = Times::confirmed(conditions_of(work));
    let confirmed = confirmed.map(|it| Duration::from_secs(it.after.into()));
    let wanted = Fenced::of(work).map(|it| it.after());
    wanted.into_iter().chain(confirmed).min()
}
