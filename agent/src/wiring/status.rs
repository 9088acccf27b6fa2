//! Makes the tasks of the Cluster's status.

use std::sync::Arc;

use futures::future::BoxFuture;
use muster_shared::api::cluster::ClusterSyncMode;
use muster_shared::client::{Limits, Profile};
use muster_shared::k8s::Api;

use super::context::Context;
use super::tasks::{Made, uses_works};
use crate::health;
use crate::health::debounce::Thresholds;
use crate::health::deeper::{self, Deeper};
use crate::health::recent;
use crate::report::Reporter;
use crate::report::collector;

/// Probes the member's API server.
pub(super) fn probe(context: &Context) -> Made {
    let base = &context.base;
    Ok(Box::pin(health::watch(
        base.member.client(Profile::Probe, Limits::NONE)?,
        *base.settings.cluster_status_update_frequency,
        context.probed.clone(),
        Arc::clone(&context.returned),
        base.shutdown.clone(),
    )))
}

/// Collects the version of the member and the kinds that it serves.
pub(super) fn collector(context: &Context) -> Made {
    let base = &context.base;
    Ok(Box::pin(collector::collect(
        base.member_client()?,
        context.discovery.clone(),
        *base.settings.cluster_status_update_frequency,
        context.collected.clone(),
        Arc::clone(&context.clock),
        base.shutdown.clone(),
    )))
}

/// Looks up a name with the DNS of the member.
pub(super) fn names(context: &Context) -> BoxFuture<'static, ()> {
    let settings = &context.base.settings;
    Box::pin(deeper::resolve(
        settings.cluster_dns_name.clone(),
        *settings.cluster_status_update_frequency,
        context.lookup.clone(),
        context.base.shutdown.clone(),
    ))
}

/// Connects to an address outside of the member.
pub(super) fn egress(context: &Context) -> BoxFuture<'static, ()> {
    let settings = &context.base.settings;
    Box::pin(deeper::connect(
        settings.cluster_egress_address.clone(),
        *settings.cluster_status_update_frequency,
        context.egress.clone(),
        context.base.shutdown.clone(),
    ))
}

/// Watches the clusters that the control plane asks for.
pub(super) fn peers(context: &Context) -> BoxFuture<'static, ()> {
    let base = &context.base;
    Box::pin(health::peers::watch(
        base.settings.cluster_name.clone(),
        Arc::clone(&base.member),
        context.clusters.clone(),
        base.leadership.clone(),
        context.peers.clone(),
        base.shutdown.clone(),
    ))
}

/// Counts nodes and pods.
pub(super) fn census(context: &Context) -> Made {
    let client = context.base.member.client(Profile::Watch, Limits::NONE)?;
    let shutdown = context.base.shutdown.clone();
    Ok(Box::pin(context.census.clone().run(client, shutdown)))
}

/// Writes the status of the Cluster.
pub(super) fn status_report(context: &Context) -> Made {
    let settings = &context.base.settings;
    let looks_up = !settings.cluster_dns_name.is_empty();
    let limits = recent::Limits {
        latency: *settings.cluster_api_latency_threshold,
        share: settings.cluster_api_errors_threshold,
    };
    let connects = !settings.cluster_egress_address.is_empty();
    let counts = settings.enable_cluster_resource_modeling;
    let nodes = settings.cluster_ready_nodes_threshold;
    let left = if context.feeds.is_some() {
        ClusterSyncMode::Push
    } else {
        ClusterSyncMode::Pull
    };
    let reporter = Reporter {
        cluster: settings.cluster_name.clone(),
        leadership: context.base.leadership.clone(),
        left,
        clusters: context.clusters.clone(),
        api: Api::all(context.base.fleet_client()?),
        health: context.probed.subscribe(),
        collected: context.collected.subscribe(),
        census: counts.then(|| context.census.clone()),
        works: uses_works(settings).then(|| context.works.clone()),
        obeyed: context.obeyed.subscribe(),
        orphans: context.orphans.subscribe(),
        deeper: Deeper {
            ready_nodes: Some(nodes).filter(|share| *share > 0.0),
            lookup: looks_up.then(|| context.lookup.subscribe()),
            egress: connects.then(|| context.egress.subscribe()),
            api: (!limits.latency.is_zero()).then_some(limits),
        },
        peers: context.peers.subscribe(),
        models: settings.models_enabled(),
        thresholds: Thresholds {
            success: *settings.cluster_success_threshold,
            failure: *settings.cluster_failure_threshold,
        },
        frequency: *settings.cluster_status_update_frequency,
        clock: Arc::clone(&context.clock),
        events: context.events.clone(),
    };
    Ok(Box::pin(reporter.run(context.base.shutdown.clone())))
}
