//! Makes the tasks for access: the server of the fleet API, credentials of the member, and the
//! agent's certificate.

use std::sync::Arc;

use futures::future::BoxFuture;
use muster_shared::client::{Gateway, Limits, Profile};
use muster_shared::events::Events;
use muster_shared::serve::Health;
use muster_shared::tasks::Tasks;
use parking_lot::Mutex;

use super::context::Context;
use super::tasks::Made;
use crate::COMPONENT;
use crate::certificate::{Bootstrap, PART, Place, Rotation};
use crate::credentials::Credentials;
use crate::fleet_server::{self, Choice};
use crate::settings::Settings;

/// Reports credentials of the member to the fleet, and removes those that are not reported.
pub(super) fn credentials(context: &Context) -> Made {
    let base = &context.base;
    let credentials = Credentials {
        cluster: base.settings.cluster_name.clone(),
        namespace: base.settings.cluster_namespace.clone(),
        reports: base.settings.reports()?,
        leadership: base.leadership.clone(),
        clusters: context.clusters.clone(),
        fleet: base.fleet_client()?,
        member: base.member_client()?,
        watching: base.member.client(Profile::Watch, Limits::NONE)?,
        events: context.events.clone(),
        fleet_id: context.fleet_id.clone(),
    };
    Ok(Box::pin(credentials.run(base.shutdown.clone())))
}

/// Renews the agent's certificate.
pub(super) fn rotation(context: &Context) -> Made {
    let base = &context.base;
    let settings = &base.settings;
    let rotation = Rotation {
        cluster: settings.cluster_name.clone(),
        place: place(settings),
        context: settings.karmada_context.clone(),
        interval: *settings.cert_rotation_checking_interval,
        threshold: settings.cert_rotation_remaining_time_threshold,
        leadership: base.leadership.clone(),
        clusters: context.clusters.clone(),
        gateway: Arc::clone(&base.fleet),
        fleet: base.fleet_client()?,
        member: base.member_client()?,
        bootstrap: base.bootstrap.clone(),
        events: context.events.clone(),
    };
    Ok(Box::pin(rotation.run(base.shutdown.clone())))
}

/// Chooses the server of the fleet API. No request is sent to any before.
pub(super) fn fleet_server(context: &Context) -> Made {
    let base = &context.base;
    let settings = &base.settings;
    let (shutdown, client) = (
        base.shutdown.clone(),
        base.member.client(Profile::Write, Limits::NONE)?,
    );
    let (member_events, delivery) = Events::new(client.clone(), COMPONENT, shutdown.clone());
    let choice = Choice::new(fleet_server::Setup {
        cluster: settings.cluster_name.clone(),
        configured: settings.fleet_servers.0.clone(),
        patience: *settings.fleet_server_timeout,
        fleet: Arc::clone(&base.fleet),
        member: client,
        namespace: settings.karmada_kubeconfig_namespace.clone(),
        health: base.health.clone(),
        events: context.events.clone(),
        member_events,
        obeyed: context.obeyed.clone(),
        restart: base.restart.clone(),
        shutdown,
    });
    Ok(Box::pin(async move {
        tokio::join!(delivery, choice.run());
    }))
}

/// Obtains new credentials whenever the certificate has expired.
pub(super) fn keep_bootstrap(context: &Context) -> BoxFuture<'static, ()> {
    let (fleet, shutdown) = (
        Arc::clone(&context.base.fleet),
        context.base.shutdown.clone(),
    );
    let (bootstrap, restart) = (context.base.bootstrap.clone(), context.base.restart.clone());
    Box::pin(async move {
        match bootstrap {
            Some(bootstrap) => bootstrap.keep(fleet, restart, shutdown).await,
            None => shutdown.cancelled().await,
        }
    })
}

/// Makes the task that obtains credentials for the fleet API, if the settings name a bootstrap
/// kubeconfig.
pub(super) fn bootstrap(
    settings: &Settings,
    member: &Arc<Gateway>,
    health: &Health,
    tasks: &mut Tasks,
) -> anyhow::Result<Option<Arc<Bootstrap>>> {
    let Some(file) = settings.bootstrap_kubeconfig.clone() else {
        return Ok(None);
    };
    health.expect(PART);
    let pins = settings.pins()?;
    let client = member.client(Profile::Write, Limits::NONE)?;
    let (events, delivery) = Events::new(client.clone(), COMPONENT, tasks.shutdown().clone());
    tasks.spawn("events in the member", delivery);
    Ok(Some(Arc::new(Bootstrap {
        cluster: settings.cluster_name.clone(),
        file,
        pins,
        mounted: settings.karmada_kubeconfig.clone(),
        place: place(settings),
        member: client,
        events,
        health: health.clone(),
        refused: Mutex::default(),
    })))
}

/// Returns the Secret for the agent's kubeconfig.
fn place(settings: &Settings) -> Place {
    Place {
        namespace: settings.karmada_kubeconfig_namespace.clone(),
        name: settings.karmada_kubeconfig_secret.clone(),
        key: settings.karmada_kubeconfig_secret_key.clone(),
    }
}
