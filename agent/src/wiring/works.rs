//! Makes the tasks of Works: watches in the member, applies, and reports of objects.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_interpreter::sources::FAILED;
use muster_shared::api::cluster::{Cluster, ClusterSpec};
use muster_shared::client::{Limits, Profile};
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{Resource, ResourceExt};
use muster_shared::queue::Next;
use tokio::sync::broadcast;

use super::context::Context;
use super::tasks::Made;
use crate::COMPONENT;
use crate::apply::{self, Applier};
use crate::join::Standing;
use crate::reflect::{Reporter, Room, Watches};
use crate::work::member::Member;
use crate::work::object::Objects;

/// Works whose status is written at the same time.
const REPORTERS: usize = 8;
/// Kinds of Works that can be read again, of which a watch has not heard yet. With more it takes
/// each for its own.
const READABLE: usize = 1024;
/// Pause of a Work while this agent does not lead.
const WHEN_LED: Next = Next::After(Duration::from_secs(1));

/// Watches the kinds of the Works in the member.
pub(super) fn member_watches(context: &Context) -> Made {
    let watches = Watches {
        waiting: Room::default(),
        works: context.works.clone(),
        reader: Arc::clone(&context.reader),
        member: context.base.member.client(Profile::Watch, Limits::NONE)?,
        discovery: context.discovery.clone(),
        interpreters: Arc::clone(&context.interpreters),
        statuses: Arc::clone(&context.statuses),
        drift: Arc::clone(&context.drift),
        repairs: Arc::clone(&context.repairs),
        to_apply: context.to_apply.clone(),
        fleet: context.fleet_id.clone(),
        kinds_changed: Arc::default(),
        readable: broadcast::channel(READABLE).0,
    };
    let shutdown = context.base.shutdown.clone();
    Ok(Box::pin(watches.listen().run(shutdown)))
}

/// Reports the statuses of objects in the status of their Works.
pub(super) fn work_status(context: &Context) -> Made {
    let reporter = Reporter::new(
        context.works.clone(),
        context.works_api()?,
        Arc::clone(&context.reader),
        Arc::clone(&context.statuses),
        context.events.clone(),
    );
    let leadership = context.base.leadership.clone();
    let work = move |name| {
        let (reporter, leads) = (Arc::clone(&reporter), leadership.is_current());
        async move {
            if leads {
                reporter.report(name).await
            } else {
                Ok(WHEN_LED)
            }
        }
    };
    let (queue, shutdown) = (context.to_report.clone(), context.base.shutdown.clone());
    Ok(Box::pin(queue.run(REPORTERS, shutdown, work)))
}

/// Applies Works, once all of them are known.
pub(super) fn applier(context: &Context) -> Made {
    let base = &context.base;
    let (standing, leadership) = (context.standing.subscribe(), base.leadership.clone());
    let may_act = move || *standing.borrow() >= Standing::Member && leadership.is_current();
    let client = base.member_client(Profile::Write)?;
    let applier = Applier {
        works: context.works.clone(),
        api: context.works_api()?,
        reader: Arc::clone(&context.reader),
        clusters: context.clusters.clone(),
        objects: Objects {
            cluster: base.settings.cluster_name.clone(),
            member: Member::new(client, context.discovery.clone(), may_act.clone()),
            drift: Arc::clone(&context.drift),
        },
        repairs: Arc::clone(&context.repairs),
        interpreters: Arc::clone(&context.interpreters),
        statuses: Arc::clone(&context.statuses),
        events: context.events.clone(),
        clock: Arc::clone(&context.clock),
        queue: context.to_apply.clone(),
        fleet: context.fleet_id.clone(),
        fencer: context.fencer.clone(),
        state: apply::State::default(),
    };
    let applier = applier.listen();
    let work = move |name| {
        let (applier, may_act) = (Arc::clone(&applier), may_act());
        async move {
            if may_act {
                applier.reconcile(name).await
            } else {
                Ok(WHEN_LED)
            }
        }
    };
    let (queue, works) = (context.to_apply.clone(), context.works.clone());
    let (workers, shutdown) = (base.settings.concurrent_work_syncs, base.shutdown.clone());
    let interpreters = Arc::clone(&context.interpreters);
    Ok(Box::pin(async move {
        let known = async {
            works.synced().await;
            interpreters.known().await;
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = known => queue.run(workers, shutdown.clone(), work).await,
        }
    }))
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

/// Applies all Works again when the id of the fleet changes, because it marks every object.
pub(super) fn change_of_the_fleet_id(context: &Context) -> BoxFuture<'static, ()> {
    let (works, queue) = (context.works.clone(), context.to_apply.clone());
    let mut fleet_id = context.fleet_id.clone();
    let shutdown = context.base.shutdown.clone();
    Box::pin(async move {
        let follows = async {
            loop {
                fleet_id.changed().await;
                for work in works.list() {
                    queue.add(work.name_any());
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = follows => {}
        }
    })
}

/// Retries at once, when an API answers again, the Works that failed meanwhile. Their back-off may
/// have grown to a minute.
pub(super) fn retries(context: &Context) -> BoxFuture<'static, ()> {
    let (works, returned) = (context.works.clone(), Arc::clone(&context.returned));
    let (to_apply, to_report) = (context.to_apply.clone(), context.to_report.clone());
    let shutdown = context.base.shutdown.clone();
    Box::pin(async move {
        let retries = async {
            loop {
                returned.notified().await;
                for work in works.list() {
                    to_report.add(work.name_any());
                    if work.is_pending() {
                        to_apply.add(work.name_any());
                    }
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = retries => {}
        }
    })
}

/// Sets the agent ready once all Works are known, and which interpreters the fleet has: nothing is
/// applied or reported before.
pub(super) fn readiness(context: &Context) -> BoxFuture<'static, ()> {
    let (works, health) = (context.works.clone(), context.base.health.clone());
    let (interpreters, feeds) = (Arc::clone(&context.interpreters), context.feeds.clone());
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
    let tell = move |reason: &str, note: String| {
        tracing::warn!(reason, note, "interpreters of the fleet");
        let cluster = clusters.get(None, &name);
        let about = cluster.map_or_else(
            || Cluster::new(&name, ClusterSpec::default()).object_ref(&()),
            |cluster| cluster.object_ref(&()),
        );
        events.publish_about(about, EventType::Warning, reason, note);
    };
    let failed = tell.clone();
    context
        .interpreters
        .on_failure(move |failure| failed(FAILED, failure.note.clone()));
    let unread = tell.clone();
    let no_scripts = move |reason: &str| tell("CustomizationsUnreadable", reason.to_owned());
    let no_webhooks = move |reason: &str| unread("WebhooksUnreadable", reason.to_owned());
    Box::pin(async move {
        tokio::join!(
            customizations.run(no_scripts, shutdown.clone()),
            webhooks.run(no_webhooks, shutdown.clone()),
        );
    })
}

/// Follows the Works of the member.
pub(super) fn work_informer(context: &Context) -> BoxFuture<'static, ()> {
    let shutdown = context.base.shutdown.clone();
    Box::pin(context.works.clone().run(shutdown))
}
