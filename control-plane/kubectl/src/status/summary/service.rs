//! What the summary says of service: whether some workload has none.

use jiff::Timestamp;
use muster_shared::check::first_of;
use serde::Serialize;

use super::super::decide::{Group, Report};
use super::clusters::is_network;
use super::{coming, count};
use crate::old_copies;

/// Whether some workload is without service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) enum Lost {
    Yes,
    Perhaps,
    No,
    /// Too little could be read.
    Unknown,
}

/// Returns whether some workload is without service, and the sentence that says which.
pub(super) fn told(report: &Report, now: Timestamp) -> (Lost, String) {
    let service = &report.service;
    if report.is_refused() {
        return (Lost::Unknown, "not known".to_owned());
    }
    if report.is_blind {
        let words = "not known: a workload does not need the fleet API to run, unless its policy stops it where its cluster is cut off (fencing), and nothing here can show whether it runs";
        return (Lost::Unknown, words.to_owned());
    }
    let mut parts = Vec::new();
    if service.without.count > 0 {
        parts.push(format!(
            "{} without service {}",
            are(&service.without, "workload"),
            names(&service.without)
        ));
    }
    if service.perhaps.count > 0 {
        let who = if parts.is_empty() {
            are(&service.perhaps, "workload")
        } else {
            are(&service.perhaps, "other")
        };
        let (on, run) = if service.perhaps.count == 1 {
            ("its cluster is", "it most likely still runs")
        } else {
            ("their clusters are", "they most likely still run")
        };
        let stopping = &service.stopping;
        let stopper = match (stopping.count, service.perhaps.count) {
            (0, _) => None,
            (1, 1) => Some("it stops itself there".to_owned()),
            (1, _) => Some(format!("{} stops itself there", stopping.names.join(""))),
            (more, _) => Some(format!("{more} of them stop themselves there, the first")),
        };
        let stops = stopper.zip(service.stops_seconds);
        let stops = stops.map_or_else(String::new, |(who, seconds)| {
            format!("; {who} {} at the latest", coming(seconds, now))
        });
        let names = names(&service.perhaps);
        parts.push(if is_network(report) {
            format!("{who} not seen {names}: {run}{stops}")
        } else {
            format!("perhaps {who} without service {names}: {on} not heard{stops}")
        });
    }
    let lost = match (service.without.count, service.perhaps.count) {
        (0, 0) => Lost::No,
        (0, _) => Lost::Perhaps,
        _ => Lost::Yes,
    };
    if lost == Lost::No {
        // One that fails by itself, in a cluster that is ready, is told below.
        let cause = match service.unhealthy.count {
            0 => "",
            _ => " because of a cluster",
        };
        parts.push(format!("no workload is without service{cause}"));
    }
    if service.fewer.count > 0 {
        let verb = if service.fewer.count == 1 {
            "has"
        } else {
            "have"
        };
        let who = count(service.fewer.count, "workload");
        parts.push(format!(
            "{who} {verb} fewer copies than asked for {}",
            names(&service.fewer)
        ));
    }
    if service.unhealthy.count > 0 {
        let who = are(&service.unhealthy, "workload");
        parts.push(format!(
            "{who} not healthy in clusters that are ready {}",
            names(&service.unhealthy)
        ));
    }
    (lost, parts.join("; "))
}

/// Returns which workloads may run twice.
pub(super) fn twice(report: &Report) -> String {
    let old = report.old_copies.as_deref().filter(|_| !report.is_blind);
    old.map_or_else(|| "not known".to_owned(), old_copies::told)
}

fn are(group: &Group, thing: &str) -> String {
    let verb = if group.count == 1 { "is" } else { "are" };
    format!("{} {verb}", count(group.count, thing))
}

/// Names the first workloads of a group.
fn names(group: &Group) -> String {
    format!("({})", first_of(&group.names, group.count))
}
