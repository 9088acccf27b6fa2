//! What the eviction queue costs when a cluster fails on which very much runs: time and memory to
//! fill it, and how many it gives out a second.
//!
//! The queue alone, in this process. What a loss costs the whole control plane is for the benchmark
//! `scale` to say. Prints figures, judges none: `cargo bench -p muster-e2e --bench eviction --
//! --bindings 100000`.

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use common::{Budget, Table, number, usage};
use muster_control_plane::fleet::budget::rate::Rates;
use muster_control_plane::movement::eviction::evictor::{Evictor, Now, Step};
use muster_control_plane::movement::eviction::judge::Switches;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::clock::Clock;
use serde_json::{Value, json};

/// Clusters of the fleet, one of which fails.
const CLUSTERS: usize = 20;

#[derive(Parser)]
struct Arguments {
    /// Workloads on the cluster that fails.
    #[arg(long, default_value_t = 100_000)]
    bindings: usize,
}

fn main() -> ExitCode {
    common::measure("eviction", |it: &Arguments| queue(it.bindings))
}

fn name(number: usize) -> String {
    format!("member-{number}")
}

/// Returns a binding for which the scheduler has nothing to do.
fn object(number: usize) -> Value {
    let placement = json!({
        "clusterAffinity": {},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        },
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    });
    let text = serde_json::to_string(&placement).unwrap_or_default();
    let name = format!("web-{number}");
    let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name});
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "namespace": "default", "name": format!("{name}-deployment"), "generation": 2,
            "annotations": {"policy.karmada.io/applied-placement": text},
        },
        "spec": {
            "resource": resource, "replicas": 2, "schedulerName": "default-scheduler",
            "replicaRequirements": {"resourceRequest": {"cpu": "100m", "memory": "128Mi"}},
            "clusters": [{"name": self::name(0), "replicas": 2}], "placement": placement,
        },
        "status": {
            "schedulerObservedGeneration": 2, "lastScheduledTime": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Scheduled", "status": "True", "reason": "Success",
                "message": "Binding has been scheduled successfully.", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// Gives an evictor so many workloads on one cluster that fails, and takes them
/// out again.
fn queue(evictions: usize) -> anyhow::Result<()> {
    let mut table = Table::new(format!(
        "eviction queue: {evictions} workloads on one failed cluster of {CLUSTERS}"
    ));
    let switches = Switches {
        failover: true,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
        ..Switches::of(&Settings::default())
    };
    let rates = Rates {
        primary: f64::INFINITY,
        ..Rates::default()
    };
    let clock = Clock::default();
    let mut evictor = Evictor::new(switches, rates, Now::by(&clock));
    for n in 0..CLUSTERS {
        evictor.cluster(&member(n, false)?, Now::by(&clock));
    }
    let bindings: Result<Vec<Arc<AnyBinding>>, serde_json::Error> =
        (0..evictions).map(binding).collect();
    let bindings = bindings?;
    let own = std::process::id();
    let memory =
        || usage(own).map(|usage| number(usize::try_from(usage.anonymous).unwrap_or(usize::MAX)));

    let empty = memory()?;
    let reported = Instant::now();
    for binding in &bindings {
        evictor.binding(binding, Now::by(&clock));
    }
    evictor.open(Now::by(&clock));
    let known = memory()?;
    table.figure(
        "adding the bindings",
        reported.elapsed().as_secs_f64(),
        "s",
        Budget::None,
    );
    table.figure(
        "memory of the index",
        (known - empty) / number(evictions),
        "bytes an item",
        Budget::None,
    );

    let filling = Instant::now();
    evictor.cluster(&member(0, true)?, Now::by(&clock));
    let filled = filling.elapsed();
    let reported = evictor.take_reports().bindings.len();
    let full = memory()?;
    table.figure("filling the queue", filled.as_secs_f64(), "s", Budget::None);
    table.figure(
        "memory of the queue and its notes",
        (full - known) / number(evictions),
        "bytes an item",
        Budget::None,
    );
    table.figure("notes about bindings", number(reported), "", Budget::None);

    // None is ever done: all that were taken stay in hand.
    let taking = Instant::now();
    let mut taken = 0;
    let mut now = Now::by(&clock);
    while taken < evictions {
        match evictor.next(now) {
            Step::Evict(eviction) => {
                std::hint::black_box(eviction);
                taken += 1;
            }
            Step::Wait(None) => break,
            Step::Wait(Some(at)) => now.tick = now.tick.max(at),
        }
    }
    table.figure("taken out again", number(taken), "", Budget::None);
    table.figure(
        "taken a second",
        number(taken) / taking.elapsed().as_secs_f64(),
        "/s",
        Budget::None,
    );
    table.print();
    Ok(())
}

fn member(number: usize, failed: bool) -> anyhow::Result<Arc<Cluster>> {
    let mut cluster = common::fleet::cluster(&name(number));
    if failed {
        cluster["spec"]["taints"] =
            json!([{"key": "down", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    }
    Ok(Arc::new(serde_json::from_value(cluster)?))
}

fn binding(number: usize) -> Result<Arc<AnyBinding>, serde_json::Error> {
    Ok(Arc::new(serde_json::from_value(object(number))?))
}
