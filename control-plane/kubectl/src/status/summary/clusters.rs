//! What the sentence says of clusters that are not well, and of the workloads that were there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_control_plane::fleet::budget::rate::Band;
use muster_control_plane::movement::eviction::explain::WAITING_FOR_FENCE;
use muster_shared::check::listed;

use super::super::decide::{Fates, NotWell, Report, UNJUDGED};
use super::{Severity, count, span_from};
use crate::view::{State, TOGETHER, is_with_last};

/// Clusters that are named.
pub(super) const NAMED: usize = 3;
/// Time within which they count as having done so at once.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(10);

/// Returns one matter for each state in which clusters are that are not well.
pub(super) fn matters(report: &Report, now: Timestamp) -> Vec<(Severity, String)> {
    let of = |wanted: State| {
        let not_well = report.not_well.iter();
        let found: Vec<&NotWell> = not_well.filter(|it| it.state == wanted).collect();
        (!found.is_empty()).then(|| matter(report, wanted, &found, now))
    };
    let states = [State::Silent, State::NotReady, State::Attention, State::New];
    states.into_iter().filter_map(of).collect()
}

/// Returns what is said of the state of clusters.
fn words(state: State, found: &[&NotWell]) -> String {
    match (state, found) {
        (State::Silent, _) => "silent".to_owned(),
        (State::NotReady, _) => "not ready".to_owned(),
        (State::New, _) => "without a first report".to_owned(),
        (State::Attention, [only]) if only.reason != "ClusterReady" => {
            format!("ready, but {}", only.reason)
        }
        (State::Attention, [only]) => format!("ready, but tainted ({})", only.taints.join(", ")),
        (State::Attention | State::Ready, _) => "ready, but in need of attention".to_owned(),
    }
}

fn matter(report: &Report, state: State, found: &[&NotWell], now: Timestamp) -> (Severity, String) {
    let all = report.clusters.unwrap_or_default();
    let longest = found.iter().filter_map(|it| it.begun).min();
    let words = words(state, found);
    let apart = apart(found);
    let is_together = apart.is_some_and(|it| it <= TOGETHER);
    let together = state == State::Silent && found.len() > 1 && is_together;
    let latest = found.iter().filter_map(|it| it.begun).max();
    // A pause, say, that begins later is no answer to the last renewal before it.
    let span = |time: Option<Timestamp>| {
        let is_renewal = |it: &&NotWell| state == State::Silent && it.last_heard == time;
        let word = if found.iter().any(is_renewal) {
            "last heard"
        } else {
            "since"
        };
        span_from(word, time, now)
    };
    let is_lost = matches!(state, State::Silent | State::NotReady);
    let (at_once, times) = match apart {
        Some(apart) if is_lost && apart > AT_ONCE => {
            let (first, last) = (span(longest), span(latest));
            ("", format!(", the first for {first}, the last for {last}"))
        }
        _ => {
            let at_once = if together { " at once" } else { "" };
            let is_dated = longest.is_some() || state != State::Attention;
            let since = is_dated.then(|| format!(" for {}", span(longest)));
            (at_once, since.unwrap_or_default())
        }
    };
    let is_stopped = report.pace.band == Band::Stopped && is_lost;
    let is_network = state == State::Silent && is_network(report);
    let region = in_common_region(report, found).filter(|_| !is_network);
    let who = match found {
        [only] => only.name.clone(),
        _ if is_network || region.is_some() => format!("{} of {all} clusters", found.len()),
        _ => {
            let names: Vec<String> = found.iter().map(|it| it.name.clone()).collect();
            let names = listed(&names, NAMED);
            format!("{} of {all} clusters ({names})", found.len())
        }
    };
    let times = if state == State::New { "" } else { &times };
    let region = region.unwrap_or_default();
    let seen = match found {
        [only] => match only.seen_by_peers {
            Some(true) => ", but a peer reaches it",
            Some(false) => ", and no peer reaches it",
            None => "",
        },
        _ => "",
    };
    let mut text = format!("{who} {words}{at_once}{times}{region}{seen}");
    let mut fates = sum(found);
    // What stops itself does not leave then, where nothing moves.
    if let Some(reason) = report.held_by(None)
        && let Some(fenced) = fates.waiting.remove(WAITING_FOR_FENCE)
    {
        *fates.waiting.entry(reason.to_owned()).or_default() += fenced;
    }
    if is_network {
        let moves = match (report.failover, is_stopped) {
            _ if report.taints_ignored => UNJUDGED,
            (Some(false), _) => "failover is off",
            (_, true) => "movement is stopped",
            _ => "movement goes on",
        };
        let fenced = match fates.fenced {
            0 => "",
            _ => ", except those with fencing",
        };
        let (whom, whose) = match lost_last(found).len() {
            all if all == found.len() => ("the clusters".to_owned(), ""),
            last => (
                format!("the {last} clusters that fell silent last"),
                "their ",
            ),
        };
        text = format!(
            "{text}: most likely the network of the fleet API, not {whom}; {whose}workloads most likely still run{fenced}; {moves}"
        );
        return (Severity::Alarm, text);
    }
    let parts = parts(&fates);
    if !parts.is_empty() {
        text = format!("{text}: {}", parts.join(", "));
    }
    let is_down = fates.elsewhere < fates.all() && state != State::Attention;
    let severity = if is_down || is_stopped || !fates.stranded.is_empty() {
        Severity::Alarm
    } else {
        Severity::Attention
    };
    (severity, text)
}

/// Returns the time between the first of clusters that failed and the last, by one clock: that of
/// whoever judges.
fn apart(found: &[&NotWell]) -> Option<SignedDuration> {
    let times = || found.iter().filter_map(|it| judged(it));
    let (first, last) = times().min().zip(times().max())?;
    Some(last.duration_since(first))
}

/// Returns when a cluster failed, by the clock of whoever judges, if that is known.
fn judged(cluster: &NotWell) -> Option<Timestamp> {
    cluster.since.or(cluster.last_heard)
}

/// Returns the clusters that failed together with the last of those that did.
fn lost_last<'a>(found: &[&'a NotWell]) -> Vec<&'a NotWell> {
    let last = found.iter().filter_map(|it| judged(it)).max();
    let with_last = |it: &&NotWell| {
        let both = judged(it).zip(last);
        both.is_some_and(|(at, last)| is_with_last(at, last))
    };
    found.iter().copied().filter(with_last).collect()
}

/// Returns the clusters that the network of the fleet API most likely cuts off: the whole fleet is
/// silent, most of it since the same time. A few may have been lost before, for another cause.
pub(super) fn cut_off(report: &Report) -> BTreeSet<&str> {
    let not_well = report.not_well.iter();
    let silent: Vec<&NotWell> = not_well.filter(|it| it.state == State::Silent).collect();
    let is_whole = silent.len() > 1 && report.clusters == Some(silent.len());
    let last = lost_last(&silent);
    if !is_whole || 2 * last.len() <= silent.len() {
        return BTreeSet::new();
    }
    last.into_iter().map(|it| it.name.as_str()).collect()
}

/// Returns whether the network of the fleet API most likely cuts off most of the fleet.
pub(super) fn is_network(report: &Report) -> bool {
    !cut_off(report).is_empty()
}

/// Says of many clusters in which region most of them are, if there is one.
fn in_common_region(report: &Report, found: &[&NotWell]) -> Option<String> {
    let (region, here) = common_region(found)?;
    let all = report.regions.get(region).copied().unwrap_or_default();
    Some(if here == found.len() {
        format!(", all of them in {region} (of {all} there)")
    } else {
        format!(", {here} of them in {region} (of {all} there)")
    })
}

/// Returns the region that most of many clusters are in, and how many; `None` if there is none.
pub(super) fn common_region<'a>(found: &[&'a NotWell]) -> Option<(&'a str, usize)> {
    let mut regions: BTreeMap<&str, usize> = BTreeMap::new();
    for region in found.iter().filter_map(|it| it.region.as_deref()) {
        *regions.entry(region).or_default() += 1;
    }
    let (region, here) = regions.into_iter().max_by_key(|it| it.1)?;
    (found.len() > NAMED && 2 * here > found.len()).then_some((region, here))
}

/// Returns the fates of the workloads of clusters in one state. A workload that was lost in several
/// of them counts once.
fn sum(found: &[&NotWell]) -> Fates {
    let mut sum = Fates::default();
    for it in found.iter().map(|it| &it.workloads) {
        sum.elsewhere += it.elsewhere - it.elsewhere_again;
        sum.starting += it.starting - it.starting_again;
        sum.staying += it.staying;
        sum.fenced += it.fenced;
        for (into, from) in [
            (&mut sum.waiting, &it.waiting),
            (&mut sum.stranded, &it.stranded),
        ] {
            for (reason, number) in from {
                *into.entry(reason.clone()).or_default() += number;
            }
        }
    }
    sum
}

/// Returns what has become of the workloads of clusters, the first part with their number.
pub(in super::super) fn parts(fates: &Fates) -> Vec<String> {
    let all = fates.all();
    let mut parts = Vec::new();
    let thing = if all == 1 { "workload" } else { "workloads" };
    let mut add = |number: usize, one: &str, more: &str| {
        let verb = if number == 1 { one } else { more };
        match (number, parts.is_empty()) {
            (0, _) => {}
            (number, true) if number == all => parts.push(format!("{number} {thing} {verb}")),
            (number, true) => parts.push(format!("{number} of {all} {thing} {verb}")),
            (number, false) => parts.push(format!("{number} {verb}")),
        }
    };
    add(fates.elsewhere, "runs elsewhere", "run elsewhere");
    add(fates.starting, "starts elsewhere", "start elsewhere");
    for (reason, number) in fates.stranded.iter().chain(&fates.waiting) {
        let (one, more) = verbs(reason);
        add(*number, &one, &more);
    }
    add(fates.staying, "stays there", "stay there");
    parts
}

/// Returns the numbers of workloads by the reason for which they wait.
pub(super) fn by_reason(counts: &BTreeMap<String, usize>, thing: &str) -> Vec<String> {
    let reported = counts.iter().enumerate().map(|(at, (reason, number))| {
        let (one, more) = verbs(reason);
        let who = if at == 0 {
            count(*number, thing)
        } else {
            number.to_string()
        };
        format!("{who} {}", if *number == 1 { one } else { more })
    });
    reported.collect()
}

/// Returns what one workload, and several, do for a reason.
pub(in super::super) fn verbs(reason: &str) -> (String, String) {
    let wait = |what: &str| (format!("waits {what}"), format!("wait {what}"));
    let cannot = |why: &str| {
        let text = format!("cannot leave, because {why}");
        (text.clone(), text)
    };
    match reason {
        "WaitingForToleration" => wait("for the end of the grace time (toleration)"),
        "WaitingForRate" => (
            "waits for its turn, at the pace of the fleet".into(),
            "wait for their turn, at the pace of the fleet".into(),
        ),
        "StoppedByThreshold" => wait("because too many clusters have failed"),
        "Paused" => wait("for the end of a pause"),
        "WaitingForFence" => wait("until the old copy has surely stopped"),
        "WaitingForTemplate" => wait("for the template"),
        "WaitingForRemoval" => wait("for the removal of an old copy"),
        "WaitingForData" => ("waits for its data".into(), "wait for their data".into()),
        "DataNotReady" => (
            "has waited too long for its data".into(),
            "have waited too long for their data".into(),
        ),
        "NowhereToGo" => ("has nowhere to go".into(), "have nowhere to go".into()),
        "NotFenced" => cannot("nothing stops the old copy"),
        "StateNotPreserved" => cannot("the state cannot be preserved"),
        "EvictWorkloadFromClusterFailed" => cannot("the last attempt failed"),
        "MovedLately" => wait("until another move is allowed"),
        "GracefulEvictionDisabled" => cannot("the feature gate GracefulEviction is off"),
        "UpdateNotApplied" => cannot("the last update was not applied there"),
        other => cannot(other),
    }
}
