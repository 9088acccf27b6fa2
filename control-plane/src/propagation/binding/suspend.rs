//! Suspends dispatching to Works that stay and are not rendered: an old copy that is kept or waits
//! for another one, and a copy for which no Work can be made now, because of an override policy or
//! a fence for example. Whoever suspends dispatching to a cluster works on the copy there by hand.
//!
//! Nothing is resumed here: what such a Work says may be what dispatching was suspended for.

use kube::Client;
use kube::api::Api;
use muster_shared::api::work::Work;
use muster_shared::client::Head;
use muster_shared::queue::Next;
use serde_json::json;

use super::error::Error;
use super::plan::{Plan, Wanted, is_rendered};
use super::write::lead;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::fencing;
use crate::fleet::works::{CachedWork, cluster_of};
use crate::fleet::write::{Written, merge};

/// Suspends dispatching to Works of a binding that the plan neither renders nor removes, where the
/// policy says so.
pub(super) async fn suspend_others(
    fleet: &Fleet,
    client: &Client,
    wanted: &Wanted<'_>,
    plan: &Plan<'_>,
) -> Result<Next, Error> {
    let mut next = Next::Done;
    for work in wanted.works {
        let Some(cluster) = cluster_of(work) else {
            continue;
        };
        let is_meant = wanted.spec.dispatching_suspended_in(cluster);
        if !is_meant || work.suspend_dispatching == Some(true) {
            continue;
        }
        let is_going = plan.removes(work) || fleet.deleted_works.is_to_go(work);
        // A Work that is about to be written is written as it has to be. An old copy that has to go
        // first, or a fence, may keep it from that for long.
        let name = work.metadata.name.as_ref();
        let is_held = plan.hold.is_some() || fencing::asked(wanted.spec).is_some();
        let is_written = !is_held && is_rendered(&plan.make, cluster, |it| Some(&it.name) == name);
        if !is_going && !is_written {
            next = next.sooner(suspend(fleet, client, work).await?);
        }
    }
    Ok(next)
}

async fn suspend(fleet: &Fleet, client: &Client, work: &CachedWork) -> Result<Next, Error> {
    lead(fleet)?;
    let namespace = work.metadata.namespace.as_deref().unwrap_or_default();
    let name = work.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({
        "metadata": { "resourceVersion": work.metadata.resource_version },
        "spec": { "suspendDispatching": true },
    });
    let api: Api<Head<Work>> = Api::namespaced(client.clone(), namespace);
    let written = Written::of(merge(&api, name, &patch).await);
    let subject = format!("work {namespace}/{name}");
    let written = written.map_err(ApiError::of("suspend dispatching of", &subject))?;
    Ok(written.next())
}
