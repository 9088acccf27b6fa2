//! Makes the Works of a binding, once neither a fence nor a copy that has to go first holds them
//! back.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::names;
use muster_shared::queue::Next;

use super::controller::Memory;
use super::error::Error;
use super::fence;
use super::hold;
use super::hold_condition::report_hold;
use super::keeping;
use super::plan::{Plan, Wanted};
use super::prepare::Prepared;
use super::render::{Origin, Rendered};
use super::write::{Ensured, ensure};
use crate::fleet::Fleet;
use crate::fleet::copy::is_empty;
use crate::fleet::works::{CachedWork, cluster_of};
use crate::propagation::data::facts::Roles;
use crate::propagation::data::{self, gates};

/// Pause before a binding is reconciled again one of whose Works is going away. The end of the Work
/// is an event, and usually comes earlier.
const LEAVING: Duration = Duration::from_secs(5);
/// Pause before a binding is reconciled again that waits for data, if no change is seen earlier.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Makes the Works of a binding once nothing holds them back. `is_left` says whether all Works have
/// been deleted that the binding does not want any more.
pub(super) async fn deliver(
    fleet: &Fleet,
    client: &Client,
    memory: &Memory,
    binding: &AnyBinding,
    wanted: &Wanted<'_>,
    (Plan { hold, make, .. }, roles): (Plan<'_>, Option<&Roles>),
    is_left: bool,
) -> Result<Next, Error> {
    let key = &wanted.origin.key;
    if let Some(held) = fence::held(fleet, client, wanted, is_left).await? {
        let condition = held.condition(fleet.clock.now());
        report_hold(fleet, client, key, binding, condition).await;
        return Ok(Next::After(held.pause));
    }
    let now = fleet.clock.now();
    let condition = hold::condition(hold.as_ref(), &binding.status().conditions, now);
    let is_reported = report_hold(fleet, client, key, binding, condition).await;
    if let Some(hold) = hold {
        return Ok(Next::After(hold.pause(now, LEAVING)));
    }
    let mut make = make?;
    let data = match &mut make {
        Prepared::Works { rendered, .. } => {
            wait_for_data(fleet, client, binding, wanted, roles, rendered).await?
        }
        // A copy that waited for its data in a cluster that is no target any more waits no longer.
        Prepared::Nothing => {
            wait_for_data(fleet, client, binding, wanted, roles, &mut Vec::new()).await?
        }
        Prepared::Later(_) => Next::Done,
    };
    let kept = &memory.keeping;
    let next = match make {
        Prepared::Nothing => keeping::report(kept, fleet, client, key, binding, None).await,
        Prepared::Later(next) => next,
        Prepared::Works {
            rendered,
            refused,
            keepers,
        } => {
            let due = keeping::report(kept, fleet, client, key, binding, keepers).await;
            let written = write(fleet, client, memory, wanted.origin, binding, &rendered).await;
            let (failed, of) = (refused.len(), rendered.len() + refused.len());
            match refused.into_iter().next() {
                None => written?.sooner(due),
                Some(first) => {
                    written?;
                    let first = Box::new(first);
                    return Err(Error::Some { failed, of, first });
                }
            }
        }
    };
    let next = next.sooner(data);
    // Where the condition was not written, no event may have the binding reconciled again.
    Ok(if is_reported || next != Next::Done {
        next
    } else {
        Next::Again
    })
}

/// Takes out of the Works those that wait for their data, and reports for what they wait, or the
/// role of the object does. Returns when to reconcile again.
async fn wait_for_data(
    fleet: &Fleet,
    client: &Client,
    binding: &AnyBinding,
    wanted: &Wanted<'_>,
    roles: Option<&Roles>,
    rendered: &mut Vec<Rendered>,
) -> Result<Next, Error> {
    let Wanted {
        origin: Origin { key, .. },
        spec,
        works,
        ..
    } = *wanted;
    let mut closed = Vec::new();
    if spec.data_replication.is_some() {
        // Where a share of zero replicas gets no Work, a Work without replicas is a copy like any
        // other: that of a workload which was scaled to zero in its cluster.
        let keeps_empty = fleet.settings.enable_empty_workload_propagation;
        for target in &wanted.scope.targets {
            let cluster = &target.name;
            let is_coming = keeps_empty && target.replicas > 0;
            let is_copy = |it: &CachedWork| !(is_coming && is_empty(spec, it));
            let mut works = works.iter().filter(|it| is_copy(it));
            // A copy that is there goes on, and is kept up to date.
            if works.any(|work| cluster_of(work) == Some(cluster)) {
                continue;
            }
            let found = gates::closed(fleet, client, key, spec, cluster).await?;
            closed.extend(found.map(|mut it| {
                if let Some(why) = wanted.stays {
                    it.why = format!("{}; old copies stay until then: {why}", it.why);
                }
                (cluster.clone(), it)
            }));
        }
    }
    let (now, before) = (fleet.clock.now(), &binding.status().conditions);
    let since = gates::since(before, &closed).unwrap_or(now);
    let waiting = gates::judge(closed, since, now);
    let waits = |cluster: &str| waiting.closed.iter().any(|(name, _)| name == cluster);
    rendered.retain(|it| {
        let cluster = names::cluster_of_execution_namespace(&it.namespace);
        !cluster.is_some_and(waits)
    });
    let role = roles.and_then(|it| it.wait.as_deref());
    let condition = data::condition(role, &waiting, before, now);
    if !report_hold(fleet, client, key, binding, condition).await {
        return Ok(Next::Again);
    }
    let is_waiting = role.is_some() || !waiting.closed.is_empty();
    let pause = gates::pause(waiting.due, now, CHECK_EVERY);
    Ok(if is_waiting {
        Next::After(pause)
    } else {
        Next::Done
    })
}

/// Writes the Works of a binding, and says what keeps it from that.
async fn write(
    fleet: &Fleet,
    client: &Client,
    memory: &Memory,
    origin: &Origin,
    binding: &AnyBinding,
    rendered: &[Rendered],
) -> Result<Next, Error> {
    let (key, resource) = (&origin.key, binding.spec.resource.uid.as_deref());
    let works = rendered
        .iter()
        .map(|work| ensure(fleet, client, &memory.patches, origin, resource, work));
    let outcomes = join_all(works).await;
    let is_late = |outcome: &Result<_, Error>| matches!(outcome, Ok(Ensured::Later));
    let later = if outcomes.iter().any(is_late) {
        let wait = memory.waits.next(key);
        if wait.is_worth_reporting {
            let note = "a cluster has no execution namespace yet, or the cache does not show its work, so that this is tried again";
            fleet.warn(binding, "SyncWorkFailed", note);
        }
        Some(wait.time)
    } else {
        memory.waits.forget(key);
        None
    };
    let wait = outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Ensured::Leaving) => Some(LEAVING),
        Ok(Ensured::Later) => later,
        Ok(Ensured::AsRendered) | Err(_) => None,
    });
    let wait = wait.min();
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    if let Some(Err(first)) = outcomes.into_iter().find(Result::is_err) {
        let error = Error::Some {
            failed,
            of: rendered.len(),
            first: Box::new(first),
        };
        fleet.warn(binding, "SyncWorkFailed", error.to_string());
        return Err(error);
    }
    Ok(wait.map_or(Next::Done, Next::After))
}
