//! Makes the tasks of Works: watches in the member, applies, and reports of objects.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, Ready, ready};
use muster_interpreter::sources::FAILED;
use muster_shared::api::cluster::{Cluster, ClusterSpec};
use muster_shared::client::{Limits, Profile};
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{Resource, ResourceExt};
use muster_shared::lease::Leadership;
use muster_shared::queue::Next;
use tokio::sync::broadcast;

use super::context::Context;
use super::tasks::Made;
use crate::COMPONENT;
use crate::join::JoinState;
use crate::work::apply::Applier;
use crate::work::member::Member;
use crate::work::object::Objects;
use crate::work::orphans::Search;
use crate::work::report::Reporter;
use crate::work::store::Store;
use crate::work::watch::{Room, Watches};

/// Works whose status is written at the same time.
const REPORTERS: usize = 8;
/// Kinds of Works that can be read again, that no watch has shown yet. With more it takes
/// each for its own.
const READABLE: usize = 1024;
/// Pause of a Work while this agent does not lead.
const WHEN_LED: Next = Next::After(Duration::from_secs(1));

/// Watches the kinds of the Works in the member.
pub(super) fn member_watches(context: &Context) -> Made {
    let watches = Watches {
        waiting: Room::default(),
        store: Arc::clone(&context.store),
        member: context.base.member.client(Profile::Watch, Limits::NONE)?,
        discovery: context.discovery.clone(),
        kinds_changed: Arc::default(),
        readable: broadcast::channel(READABLE).0,
    };
    let shutdown = context.base.shutdown.clone();
    Ok(Box::pin(watches.listen().run(shutdown)))
}

/// Reports the statuses of objects in the status of their Works.
pub(super) fn work_status(context: &Context) -> Made {
    let store = Arc::clone(&context.store);
    let reporter = Reporter::new(store, context.works_api()?, context.events.clone());
    let leadership = context.base.leadership.clone();
    let report = move |name| Arc::clone(&reporter).report(name);
    let work = while_allowed(move || leadership.is_current(), report);
    let (queue, shutdown) = (
        context.store.waits.to_report.clone(),
        context.base.shutdown.clone(),
    );
    Ok(Box::pin(queue.run(REPORTERS, shutdown, work)))
}

/// Applies Works, once all of them are known.
pub(super) fn applier(context: &Context) -> Made {
    let base = &context.base;
    let (join_state, leadership) = (context.join_state.subscribe(), base.leadership.clone());
    let may_act = move || *join_state.borrow() >= JoinState::Member && leadership.is_current();
    let client = base.member_client()?;
    let applier = Applier {
        store: Arc::clone(&context.store),
        api: context.works_api()?,
        clusters: context.clusters.clone(),
        objects: Objects {
            cluster: base.settings.cluster_name.clone(),
            member: Member::new(client, context.discovery.clone(), may_act.clone()),
            drift: Arc::clone(&context.store.drift),
        },
        events: context.events.clone(),
        clock: Arc::clone(&context.clock),
        fencer: context.fencer.clone(),
    };
    let applier = Arc::new(applier);
    let reconcile = move |name| Arc::clone(&applier).reconcile(name);
    let work = while_allowed(may_act, reconcile);
    let (queue, works) = (context.store.waits.to_apply.clone(), context.works.clone());
    let (workers, shutdown) = (base.settings.concurrent_work_syncs, base.shutdown.clone());
    let interpreters = Arc::clone(&context.store.interpreters);
    let (store, leadership) = (Arc::clone(&context.store), base.leadership.clone());
    Ok(Box::pin(async move {
        let known = async {
            works.synced().await;
            interpreters.known().await;
        };
        if shutdown.run_until_cancelled(known).await.is_some() {
            tokio::select! {
                () = queue.run(workers, shutdown, work) => {}
                () = note_others(leadership, store) => {}
            }
        }
    }))
}

/// Notes each time that another agent may lead instead of this one. Never returns.
async fn note_others(leadership: Leadership, store: Arc<Store>) {
    let mut leads = leadership.leads();
    loop {
        if !leadership.is_current() {
            store.works.stand_by();
        }
        // The sender lives in `leadership`: waiting cannot fail.
        let _ = leads.changed().await;
    }
}

/// Makes a reconciliation that waits while this agent may not act for the member.
fn while_allowed<F, E>(
    may_act: impl Fn() -> bool,
    reconcile: impl Fn(String) -> F,
) -> impl Fn(String) -> Either<F, Ready<Result<Next, E>>>
where
    F: Future<Output = Result<Next, E>>,
{
    move |name| {
        if may_act() {
            Either::Left(reconcile(name))
        } else {
            Either::Right(ready(Ok(WHEN_LED)))
        }
    }
}

/// Stops fenced workloads while the member is cut off.
pub(super) fn fencing(context: &Context) -> Made {
    let base = &context.base;
    let shutdown = base.shutdown.clone();
    let Some(fencer) = context.fencer.clone() else {
        return Ok(Box::pin(async move { shutdown.cancelled().await }));
    };
    let client = base.member.client(Profile::Write, Limits::NONE)?;
    let (events, delivery) = Events::new(client, COMPONENT, shutdown.clone());
    Ok(Box::pin(async move {
        tokio::join!(delivery, fencer.run(events, shutdown));
    }))
}

/// Searches for objects without a Work after a promotion.
pub(super) fn orphans(context: &Context) -> Made {
    let search = Search {
        store: Arc::clone(&context.store),
        member: context.base.member_client()?,
        discovery: context.discovery.clone(),
        fleet: context.fleet_id.clone(),
        obeyed: context.obeyed.subscribe(),
        found: context.orphans.clone(),
    };
    Ok(Box::pin(search.run(context.base.shutdown.clone())))
}

/// Retries Works at once: all of them when the id of the fleet changes, because it marks every
/// object, and those that failed meanwhile when an API answers again, because their back-off may
/// have grown to a minute.
pub(super) fn retries(context: &Context) -> BoxFuture<'static, ()> {
    let (works, returned) = (context.works.clone(), Arc::clone(&context.returned));
    let waits = context.store.waits.clone();
    let mut fleet_id = context.fleet_id.clone();
    let shutdown = context.base.shutdown.clone();
    Box::pin(async move {
        let retries = async {
            loop {
                let is_marked_anew = tokio::select! {
                    () = fleet_id.changed() => true,
                    () = returned.notified() => false,
                };
                for work in works.list() {
                    if is_marked_anew || work.is_pending() {
                        waits.to_apply.add(work.name_any());
                    }
                    if !is_marked_anew {
                        waits.to_report.add(work.name_any());
                    }
                }
            }
        };
        shutdown.run_until_cancelled(retries).await;
    })
}

/// Sets the agent ready once all Works are known, and which interpreters the fleet has: nothing is
/// applied or reported before.
pub(super) fn readiness(context: &Context) -> BoxFuture<'static, ()> {
    let (works, health) = (context.works.clone(), context.base.health.clone());
    let (interpreters, feeds) = (
        Arc::clone(&context.store.interpreters),
        context.feeds.clone(),
    );
    let shutdown = context.base.shutdown.clone();
    Box::pin(async move {
        let unknown = || {
            let (customizations, webhooks) = feeds.as_ref()?;
            let trouble = customizations.informer().trouble();
            trouble.or_else(|| webhooks.informer().trouble())
        };
        let explains = async {
            loop {
                if let Some(trouble) = works.trouble().or_else(&unknown) {
                    health.ready("works", Err(trouble));
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let known = async {
            works.synced().await;
            interpreters.known().await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = known => health.ready("works", Ok(())),
            () = explains => {}
        }
        shutdown.cancelled().await;
    })
}

/// Follows the customizations and interpreter webhooks of the fleet API. Where the agent may not
/// read them, or one of them fails, an event on the Cluster says so: an agent may write events
/// about its Cluster and its Works alone. One that has never read them interprets nothing, because
/// the built-in rules may call healthy what the fleet's do not.
pub(super) fn interpreters(context: &Context) -> BoxFuture<'static, ()> {
    let shutdown = context.base.shutdown.clone();
    let Some((customizations, webhooks)) = context.feeds.clone() else {
        return Box::pin(async move { shutdown.cancelled().await });
    };
    let (events, clusters) = (context.events.clone(), context.clusters.clone());
    let name = context.base.settings.cluster_name.clone();
    let report = move |reason: &str, note: String| {
        tracing::warn!(reason, note, "interpreters of the fleet");
        let cluster = clusters.get(None, &name);
        let about = cluster.map_or_else(
            || Cluster::new(&name, ClusterSpec::default()).object_ref(&()),
            |cluster| cluster.object_ref(&()),
        );
        events.publish_about(about, EventType::Warning, reason, note);
    };
    let failed = report.clone();
    let interpreters = Arc::clone(&context.store.interpreters);
    interpreters.on_failure(move |failure| failed(FAILED, failure.note.clone()));
    let unread = report.clone();
    let no_scripts = move |reason: &str| report("CustomizationsUnreadable", reason.to_owned());
    let no_webhooks = move |reason: &str| unread("WebhooksUnreadable", reason.to_owned());
    Box::pin(async move {
        tokio::join!(
            customizations.run(no_scripts, shutdown.clone()),
            webhooks.run(no_webhooks, shutdown.clone()),
            interpreters.run(shutdown),
        );
    })
}
