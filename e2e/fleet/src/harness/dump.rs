//! What a person wants to see when a scenario failed: objects, conditions, events, and the last
//! words of the processes.

use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use muster_shared::k8s::Condition;

use super::fleet::Fleet;
use super::process::last_lines;

const LOG_LINES: usize = 25;
const EVENTS: usize = 30;

/// Describes the fleet as it is now, in text.
pub async fn dump(fleet: &Fleet) -> String {
    let mut out = String::new();
    clusters(fleet, &mut out);
    bindings(fleet, &mut out);
    works(fleet, &mut out);
    copies(fleet, &mut out);
    routes(fleet, &mut out);
    events(fleet, &mut out).await;
    for lost in fleet.lost_processes() {
        heading(&mut out, &lost);
    }
    log(&mut out, "control plane", &fleet.control_plane_log());
    for name in fleet.members.keys() {
        log(
            &mut out,
            &format!("agent of {name}"),
            &fleet.agent_log(name),
        );
    }
    out
}

fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "── {text}");
}

fn conditions<'a>(out: &mut String, all: impl IntoIterator<Item = &'a Condition>) {
    for it in all {
        let (since, message) = (it.last_transition_time.0, &it.message);
        let _ = writeln!(
            out,
            "    {}={} {} since {since}: {message}",
            it.type_, it.status, it.reason
        );
    }
}

fn clusters(fleet: &Fleet, out: &mut String) {
    heading(out, "clusters");
    let mut clusters = fleet.observer.view.clusters.list();
    clusters.sort_by_key(|cluster| cluster.name_any());
    for cluster in clusters {
        let _ = writeln!(out, "{}", cluster.name_any());
        let status = cluster.status.iter();
        conditions(out, status.flat_map(|it| &it.conditions));
        for taint in &cluster.spec.taints {
            let _ = writeln!(out, "    taint {}:{}", taint.key, taint.effect);
        }
    }
}

fn bindings(fleet: &Fleet, out: &mut String) {
    heading(out, "bindings");
    for binding in fleet.observer.view.bindings.list() {
        let (spec, status) = (&binding.spec, binding.status());
        let places: Vec<String> = spec
            .clusters
            .iter()
            .map(|place| format!("{}:{}", place.name, place.replicas))
            .collect();
        let _ = writeln!(
            out,
            "{} ({} replicas) on {}",
            binding.name_any(),
            spec.replicas,
            places.join(", ")
        );
        for task in &spec.graceful_eviction_tasks {
            let _ = writeln!(
                out,
                "    leaving {}: {} by {}",
                task.from_cluster, task.reason, task.producer
            );
        }
        conditions(out, &status.conditions);
        for item in &status.aggregated_status {
            let _ = writeln!(
                out,
                "    {}: applied {} health {:?} {}",
                item.cluster_name,
                item.applied,
                item.health,
                item.applied_message.as_deref().unwrap_or_default()
            );
        }
    }
}

fn works(fleet: &Fleet, out: &mut String) {
    heading(out, "works");
    for work in fleet.observer.view.works.list() {
        let going = if work.metadata.deletion_timestamp.is_some() {
            " (being deleted)"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "{}/{}{going}",
            work.namespace().unwrap_or_default(),
            work.name_any()
        );
        let status = work.status.iter();
        conditions(out, status.flat_map(|it| &it.conditions));
    }
}

fn copies(fleet: &Fleet, out: &mut String) {
    heading(out, "workloads in members");
    for (name, member) in &fleet.observer.view.members {
        for deployment in member.deployments.list() {
            let wanted = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.replicas)
                .unwrap_or(1);
            let ready = deployment
                .status
                .as_ref()
                .and_then(|status| status.ready_replicas)
                .unwrap_or(0);
            let _ = writeln!(
                out,
                "{name}: Deployment {} {ready}/{wanted}",
                deployment.name_any()
            );
        }
        for config in member.config_maps.list() {
            let _ = writeln!(out, "{name}: ConfigMap {}", config.name_any());
        }
    }
}

/// Writes which ways were broken at the time: what seems a failure may be the fault that the
/// scenario injected.
fn routes(fleet: &Fleet, out: &mut String) {
    let mut all = vec![("control plane to fleet API".to_owned(), &fleet.to_api)];
    for (name, member) in &fleet.members {
        all.push((format!("agent of {name} to fleet API"), &member.to_fleet));
        all.push((format!("agent of {name} to its member"), &member.to_member));
    }
    let troubles: Vec<(String, String)> = all
        .into_iter()
        .filter_map(|(whose, route)| Some((whose, route.trouble()?)))
        .collect();
    if !troubles.is_empty() {
        heading(out, "broken ways");
    }
    for (whose, trouble) in troubles {
        let _ = writeln!(out, "{whose}: {trouble}");
    }
}

async fn events(fleet: &Fleet, out: &mut String) {
    heading(out, "events of the fleet API");
    let api: Api<Event> = Api::all(fleet.api.client.clone());
    match api.list(&ListParams::default()).await {
        Ok(mut list) => {
            // The API lists by name; people read by time.
            list.items.sort_by_key(|event| event.last_timestamp.clone());
            let first = list.items.len().saturating_sub(EVENTS);
            for event in &list.items[first..] {
                let about = &event.involved_object;
                let _ = writeln!(
                    out,
                    "{} {} {}/{}: {}",
                    event.type_.as_deref().unwrap_or("?"),
                    event.reason.as_deref().unwrap_or("?"),
                    about.kind.as_deref().unwrap_or("?"),
                    about.name.as_deref().unwrap_or("?"),
                    event.message.as_deref().unwrap_or_default()
                );
            }
        }
        Err(error) => {
            let _ = writeln!(
                out,
                "cannot be read: {}",
                muster_shared::client::brief(&error)
            );
        }
    }
}

fn log(out: &mut String, whose: &str, path: &Path) {
    heading(
        out,
        &format!("last words of the {whose} ({})", path.display()),
    );
    for line in last_lines(path, LOG_LINES) {
        let _ = writeln!(out, "{line}");
    }
}
