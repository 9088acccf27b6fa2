//! What the summary says of service: whether some workload has none.

use jiff::Timestamp;
use muster_shared::check::listed;
use muster_shared::conditions::FALSE;
use serde::Serialize;

use super::super::decide::{Group, Report, Service};
use super::clusters::{NAMED, cut_off};
use super::{clock, coming, count, either};
use crate::old_copies;
use crate::table::first_titles;

/// Words about service where the fleet API cannot be read.
const UNSEEN: &str = "not known: a workload does not need the fleet API to run, unless its policy stops it where its cluster is cut off (fencing), and nothing here can show whether it runs";

/// Whether some workload is without service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) enum Lost {
    Yes,
    Perhaps,
    No,
    /// Too little could be read.
    #[default]
    Unknown,
}

/// Returns whether some workload is without service, and the sentence that says which.
pub(super) fn describe(report: &Report, now: Timestamp) -> (Lost, String) {
    let service = &report.service;
    if report.is_refused() {
        return (Lost::Unknown, "not known".to_owned());
    }
    if report.is_blind {
        return (Lost::Unknown, UNSEEN.to_owned());
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
        let thing = if parts.is_empty() {
            "workload"
        } else {
            "other"
        };
        parts.extend(perhaps(report, &are(&service.perhaps, thing), now));
    }
    let lost = match (service.without.count, service.perhaps.count) {
        (0, 0) => Lost::No,
        (0, _) => Lost::Perhaps,
        _ => Lost::Yes,
    };
    if lost == Lost::No {
        // One that fails by itself, in a cluster that is ready, is shown below.
        let cause = match service.unhealthy.count {
            0 => "",
            _ => " because of a cluster",
        };
        parts.push(format!("no workload is without service{cause}"));
    }
    if service.fewer.count > 0 {
        let fewer = service.fewer.count;
        let (who, verb) = (count(fewer, "workload"), either(fewer, "has", "have"));
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

/// Says which workloads may be without service, and when the copies of some stop by themselves:
/// first where many workloads are named, so that it is not overlooked. `who` begins the sentence.
fn perhaps(report: &Report, who: &str, now: Timestamp) -> Vec<String> {
    let Service {
        perhaps,
        stopping,
        stops_seconds,
        unseen,
        ..
    } = &report.service;
    let stopper = match (stopping.count, perhaps.count) {
        (0, _) => None,
        (1, 1) => Some("its copy there stops".to_owned()),
        (1, _) => Some(format!("the copy of {} stops", stopping.names.join(""))),
        (more, _) => Some(format!("the copies of {more} workloads stop, the first")),
    };
    let stops = stopper.zip(*stops_seconds);
    let stops = stops.map(|(who, seconds)| format!("{who} {} at the latest", coming(seconds, now)));
    let down: Vec<_> = report.down().collect();
    let mut here = down.clone();
    here.retain(|it| unseen.contains(&it.name));
    let since = here.iter().filter_map(|it| it.begun).min();
    let since = since.map_or_else(String::new, |it| {
        format!(", at worst since {}", clock(it, now))
    });
    let names = names(perhaps);
    let (whose, run) = match perhaps.count {
        1 => ("its", "it most likely still runs"),
        _ => ("their", "they most likely still run"),
    };
    let (clusters, are) = match unseen.len() {
        1 => ("cluster", "is"),
        _ => ("clusters", "are"),
    };
    // A cluster that says that it is not ready is not silent.
    let unready = here.iter().filter(|it| it.ready == FALSE).count();
    let state = match unready {
        0 => "silent",
        _ if unready == here.len() => "not ready",
        _ => "silent or not ready",
    };
    let which = if unseen.len() < down.len() {
        let names: Vec<&str> = here.iter().map(|it| it.name.as_str()).collect();
        format!(" ({})", listed(&names, NAMED))
    } else {
        String::new()
    };
    let network = cut_off(report);
    let is_network = !network.is_empty() && unseen.iter().all(|it| network.contains(it.as_str()));
    let text = if is_network {
        format!("{who} not seen {names}: {run}")
    } else {
        format!(
            "perhaps {who} without service{since} {names}: {whose} {clusters}{which} {are} {state}"
        )
    };
    let (before, after) = match perhaps.count {
        1 => (None, stops),
        _ => (stops, None),
    };
    before.into_iter().chain([text]).chain(after).collect()
}

/// Returns which workloads may run twice.
pub(super) fn twice(report: &Report) -> String {
    let old = report.old_copies.as_deref().filter(|_| !report.is_blind);
    old.map_or_else(|| "not known".to_owned(), old_copies::describe)
}

fn are(group: &Group, thing: &str) -> String {
    let verb = either(group.count, "is", "are");
    format!("{} {verb}", count(group.count, thing))
}

/// Names the first workloads of a group.
fn names(group: &Group) -> String {
    format!("({})", first_titles(&group.names, group.count))
}
