//! Makes the tasks of the registration: the Cluster, and the id of the fleet.

use muster_shared::capacity::default_models;
use muster_shared::client::{self, Limits, Profile};

use super::context::Context;
use super::tasks::Made;
use crate::fleet_id::Finder;
use crate::join::{self, Receivers, Registration};

/// Registers the member. A final refusal ends the agent, and is sent through `context.refused`.
pub(super) fn registration(context: &Context) -> Made {
    let base = &context.base;
    let registration = Registration {
        fleet: base.fleet.client(Profile::Write, Limits::NONE)?,
        member: base.member.client(Profile::Write, Limits::NONE)?,
        settings: base.settings.clone(),
        endpoint: client::address(&base.member.config()),
        same_server: base.is_same_server(),
        insecure: base.member.config().accept_invalid_certs,
        reports: base.settings.reports()?,
        models: if base.settings.models_enabled() {
            default_models()
        } else {
            Vec::new()
        },
    };
    let receivers = Receivers {
        join_state: context.join_state.clone(),
        health: base.health.clone(),
        events: context.events.clone(),
    };
    let (clusters, leadership) = (context.clusters.clone(), base.leadership.clone());
    let (refused, shutdown) = (context.refused.clone(), base.shutdown.clone());
    Ok(Box::pin(async move {
        let ends = shutdown.clone();
        let joining = join::run(registration, clusters, leadership, receivers, ends);
        if let Err(error) = joining.await {
            refused.try_send(error).ok();
            shutdown.cancel();
        }
    }))
}

/// Reads the id of the fleet, which marks everything that the agent makes in the member.
pub(super) fn fleet_id(context: &Context) -> Made {
    let finder = Finder {
        cluster: context.base.settings.cluster_name.clone(),
        clusters: context.clusters.clone(),
        fleet: context.base.fleet_client()?,
        events: context.events.clone(),
        publish: context.found_fleet_id.clone(),
    };
    Ok(Box::pin(finder.run(context.base.shutdown.clone())))
}
