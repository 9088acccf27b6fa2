//! The facts below the summary: who leads, whether and how fast workloads move, and how many there
//! are. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;
use muster_control_plane::fleet::budget::rate::Band;
use muster_shared::check::listed;
use serde::Serialize;

use super::{Report, STOPPED, UNJUDGED};
use crate::running::Source;
use crate::status::summary::{count, either, explain, time};
use crate::table::{first_titles, per_second};

/// Clusters, or workloads, that a fact names at most.
const MOST: usize = 10;

/// A fact, as status and the page print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in super::super) struct Fact {
    pub name: &'static str,
    pub text: String,
}

/// Returns the facts.
pub(super) fn facts(report: &Report, now: Timestamp) -> Vec<Fact> {
    let mut all = vec![("Leader", leader(report, now)), ("Failover", gate(report))];
    all.extend(report.paused.iter().map(|it| ("PAUSED", it.clone())));
    all.extend([
        ("Pace", pace(report)),
        ("Clusters", counts_of_clusters(report)),
        ("Workloads", counts_of_workloads(report)),
    ]);
    all.extend(held_moves(report).map(|it| ("To move", it)));
    all.extend(suspended(report).map(|it| ("Suspended", it)));
    all.extend(hostnames(report).map(|it| ("Host names", it)));
    all.extend(unpublished(report).map(|it| ("Host names", it)));
    all.extend(report.unrecorded.map(|it| ("History", it.to_owned())));
    let fact = |(name, text)| Fact { name, text };
    all.into_iter().map(fact).collect()
}

fn leader(report: &Report, now: Timestamp) -> String {
    let leader = &report.leader;
    let renewed = leader.renewed.map_or_else(
        || "was never renewed".to_owned(),
        |at| format!("was renewed {} ago", time(now.duration_since(at))),
    );
    match (&leader.holder, leader.acts) {
        (Some(holder), true) => format!("{holder}, whose lease {renewed}"),
        (Some(holder), false) => format!("NONE acts; the last was {holder}, whose lease {renewed}"),
        (None, _) if leader.is_unread => "not known: its lease could not be read".to_owned(),
        (None, _) => "NONE".to_owned(),
    }
}

/// Text in place of a figure that could not be read.
const NOT_KNOWN: &str = "not known";

fn gate(report: &Report) -> String {
    if report.taints_ignored {
        let gate = match report.failover {
            Some(false) => "OFF, and",
            _ => "on, but",
        };
        return format!("{gate} {UNJUDGED}: no taint moves anything, nor does a drain");
    }
    let drained: Vec<String> = report.drained().map(|it| it.name.clone()).collect();
    if report.failover == Some(true)
        && let Some(why) = report.no_execute_off
    {
        return format!("on, but {why}");
    }
    match (report.failover, report.policy_evicts) {
        (Some(true), Some(false)) => "on, but no ClusterTaintPolicy adds a taint that evicts: a failed cluster keeps its workloads".to_owned(),
        (Some(true), _) if report.paused_clusters.contains(&None) => "on, but PAUSED".to_owned(),
        (Some(true), _) if report.pace.band == Band::Stopped && report.clusters.is_some() => {
            "on, but STOPPED: too many clusters have failed".to_owned()
        }
        (Some(true), _) if !report.paused_clusters.is_empty() => {
            let paused: Vec<String> = report.paused_clusters.iter().flatten().cloned().collect();
            format!("on, but PAUSED out of {}", listed(&paused, MOST))
        }
        (Some(true), _) if report.nobody_leads() => "on, as the last leader had it".to_owned(),
        (Some(true), _) => "on".to_owned(),
        (Some(false), _) if drained.is_empty() => "OFF: no taint moves anything".to_owned(),
        (Some(false), _) => format!(
            "OFF: no taint moves anything, but orders do: {} drained",
            few(&drained)
        ),
        (None, _) if report.leader.is_unread => NOT_KNOWN.to_owned(),
        (None, _) => format!(
            "{NOT_KNOWN}: no leader publishes it; by flags that you give: kubectl muster status -- FLAGS"
        ),
    }
}

/// Names clusters, with the verb.
fn few(names: &[String]) -> String {
    let verb = either(names.len(), "is", "are");
    format!("{} {verb}", listed(names, MOST))
}

fn pace(report: &Report) -> String {
    if report.clusters.is_none() {
        return NOT_KNOWN.to_owned();
    }
    let pace = &report.pace;
    let failed = match (pace.drained, pace.failed) {
        (0, 1) => "has failed".to_owned(),
        (0, _) => "have failed".to_owned(),
        (1, 1) => "counts as failed, because drained".to_owned(),
        (drained, _) => format!("count as failed, {drained} of them because drained"),
    };
    let settings = match report.settings_from {
        Source::Gates | Source::Defaults => "; by the default flags",
        Source::CommandLine | Source::Leader => "",
    };
    let paused = if report.paused_clusters.contains(&None) {
        "0 a second (paused); without the pause "
    } else {
        ""
    };
    let halted = if report.nobody_leads() {
        "nothing moves, because nobody leads; with a leader "
    } else if !report.leader.acts && !report.leader.is_unread {
        "nothing moves, unless a control plane acts without an election (--leader-elect=false); then "
    } else {
        ""
    };
    let most = if pace.may_fail >= pace.counted.max(1) {
        "; no number of failed clusters stops movement".to_owned()
    } else {
        format!(", at most {} may", pace.may_fail)
    };
    let band = match pace.band {
        Band::Primary => "primary rate",
        Band::Secondary => "secondary rate",
        Band::Stopped => "stopped",
    };
    format!(
        "{paused}{halted}{} ({band}): {} of {} clusters {failed}{most}{settings}",
        per_second(pace.per_second, "workload"),
        pace.failed,
        pace.counted,
    )
}

fn counts_of_clusters(report: &Report) -> String {
    let Some(clusters) = report.clusters else {
        return NOT_KNOWN.to_owned();
    };
    let mut text = format!("{clusters}, {} not well", report.not_well.len());
    let drained = report.drained().count();
    let incomplete = report.ordered.iter().filter(|it| it.is_incomplete());
    let incomplete = incomplete.count();
    let cordoned = report.ordered.len() - drained - incomplete;
    for (count, what) in [
        (drained, "drained"),
        (cordoned, "cordoned"),
        (incomplete, "with a drain that was not completed"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

fn counts_of_workloads(report: &Report) -> String {
    let Some(workloads) = report.workloads else {
        return NOT_KNOWN.to_owned();
    };
    let stopped = report.waiting.iter().filter(|it| it.reason == STOPPED);
    let stopped = match stopped.count() {
        0 => String::new(),
        count if count == report.waiting.len() => " (until fewer clusters have failed)".to_owned(),
        count => format!(" ({count} of them until fewer clusters have failed)"),
    };
    let mut text = workloads.to_string();
    for (number, words) in [
        (report.moving.len(), "moving".to_owned()),
        (
            report.kept.len(),
            "with an old copy that somebody has to release".to_owned(),
        ),
        (report.service.starting.count, "starting".to_owned()),
        (report.waiting.len(), format!("waiting{stopped}")),
        (
            report.stranded.len(),
            "stranded (they have to leave and cannot)".to_owned(),
        ),
        (report.unplaced.len(), "without a place".to_owned()),
        (
            report.applications.len(),
            "whose application fails".to_owned(),
        ),
        (report.held_back.len(), "without a new copy yet".to_owned()),
        (
            report.without_dependencies.len(),
            "without what they refer to".to_owned(),
        ),
        (report.unknown, "in silent clusters".to_owned()),
    ] {
        if number > 0 {
            let _ = write!(text, ", {number} {words}");
        }
    }
    text
}

/// Returns the command that says why something is so, of the first of these workloads.
fn why(names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    let whose = either(names.len(), "why", "why, of the first");
    format!("{whose}: {}", explain(first))
}

/// Returns a sentence about host names that do not lead to healthy copies; `None` without any.
fn hostnames(report: &Report) -> Option<String> {
    let number = report.hostnames.count;
    let names = first_titles(&report.hostnames.names, number);
    let leads = either(number, "does not lead", "do not lead");
    let why = why(&report.hostnames.names);
    let whose = format!("{number} ({names}) {leads} to healthy copies; {why}");
    (number > 0).then_some(whose)
}

/// Returns a sentence about host names that are not published before somebody acts; `None` without
/// any.
fn unpublished(report: &Report) -> Option<String> {
    let number = report.unpublished.len();
    let first = report.unpublished.iter().take(MOST);
    let names: Vec<String> = first.map(|it| it.workload.clone()).collect();
    let why = why(&names);
    let names = first_titles(&names, number);
    let verb = either(number, "is", "are");
    let whose = format!("{number} ({names}) {verb} not published; {why}");
    (number > 0).then_some(whose)
}

/// Returns a sentence about workloads that are to be placed anew and stay where they are for now;
/// `None` without any.
fn held_moves(report: &Report) -> Option<String> {
    let number = report.held_moves.count;
    let names = first_titles(&report.held_moves.names, number);
    let stays = either(
        number,
        "is to be placed anew, and stays where it is",
        "are to be placed anew, and stay where they are",
    );
    let who = count(number, "workload");
    let why = why(&report.held_moves.names);
    let whose = format!("{who} ({names}) {stays} for now; {why}");
    (number > 0).then_some(whose)
}

/// Returns a sentence about workloads whose policies suspend their copies; `None` without any.
fn suspended(report: &Report) -> Option<String> {
    let number = report.suspended.count;
    let names = first_titles(&report.suspended.names, number);
    let whose = either(
        number,
        "whose policy suspends its copies",
        "whose policies suspend their copies",
    );
    let who = count(number, "workload");
    let orders = match &report.suspensions[..] {
        [] => format!("; by whose order, and {}", why(&report.suspended.names)),
        orders => format!(": {}", orders.join("; ")),
    };
    (number > 0).then(|| format!("{who} ({names}), {whose}{orders}"))
}
