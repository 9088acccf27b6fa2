//! The report as text: a headline each, and a table of what needs attention.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::check::common::remaining;
use muster_shared::check::listed;

use super::decide::{Report, STOPPED, Waiting};
use crate::old_copies;
use crate::running::Source;
use crate::table::{Table, ago, shortened};

/// Clusters that a line names at most.
const MOST: usize = 10;

/// How much of the report is shown.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Rows of one table.
    rows: usize,
    /// Characters of a reason in words.
    letters: usize,
}

/// On a terminal the screen is one screen, and a table of long lines cannot be read.
const SCREEN: Limits = Limits {
    rows: 10,
    letters: 100,
};
const WHOLE: Limits = Limits {
    rows: usize::MAX,
    letters: usize::MAX,
};

/// Returns the text for people, of which nothing is cut.
pub(super) fn table(report: &Report, now: Timestamp) -> String {
    text(report, now, WHOLE)
}

/// Returns the text for a terminal.
pub(super) fn screen(report: &Report, now: Timestamp) -> String {
    text(report, now, SCREEN)
}

/// Returns when a command that looks again has looked.
pub(super) fn clock(now: Timestamp, every: Duration) -> String {
    format!("{now:.0}, again every {}s\n", every.as_secs())
}

fn text(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    line(report.summary.line());
    for unread in &report.unread {
        line(format!("COULD NOT READ: {unread}"));
    }
    let leader = &report.leader;
    line(match (&leader.holder, leader.acts) {
        (Some(holder), true) => format!(
            "Leader:     {holder}, renewed {} ago",
            ago(leader.renewed, now)
        ),
        (Some(holder), false) => format!(
            "Leader:     NONE acts; the last was {holder}, renewed {} ago",
            ago(leader.renewed, now)
        ),
        (None, _) if leader.is_unread => {
            "Leader:     not known: its lease could not be read".to_owned()
        }
        (None, _) => "Leader:     NONE".to_owned(),
    });
    line(format!("Failover:   {}", gate(report)));
    for pause in &report.paused {
        line(format!("PAUSED:     {pause}"));
    }
    line(format!("Pace:       {}", pace(report)));
    line(format!("Clusters:   {}", counts_of_clusters(report)));
    line(format!("Workloads:  {}", counts_of_workloads(report)));
    match report.old_copies.as_deref() {
        None => line(format!("Old copies: {NOT_KNOWN}")),
        Some([]) => {}
        Some(old) => line(format!(
            "Old copies: {}; they may still run",
            old_copies::told(old)
        )),
    }
    text.push_str(&clusters(report, now, limits));
    text.push_str(&ordered(report, now, limits));
    text.push_str(&moving(report, now, limits));
    text.push_str(&waiting("STRANDED", &report.stranded, now, limits));
    text.push_str(&waiting("WAITING", &report.waiting, now, limits));
    text.push_str(&waiting("STATE UNKNOWN", &report.unheard, now, limits));
    text.push_str(&waiting("WITHOUT A PLACE", &report.unplaced, now, limits));
    let parted = &report.without_dependencies;
    text.push_str(&waiting("WITHOUT DEPENDENCIES", parted, now, limits));
    text.push_str(&expires(report, now, limits));
    text
}

/// What is not zero only because it could not be read.
const NOT_KNOWN: &str = "not known";

fn gate(report: &Report) -> String {
    let drained = report.ordered.iter().filter(|it| it.is_drained());
    let drained: Vec<String> = drained.map(|it| it.name.clone()).collect();
    match (report.failover, report.policy_evicts) {
        (Some(true), Some(false)) => "on, but no ClusterTaintPolicy adds a taint that evicts: a failed cluster keeps its workloads".to_owned(),
        (Some(true), _) if report.nobody_leads() => "on, as the last leader had it".to_owned(),
        (Some(true), _) => "on".to_owned(),
        (Some(false), _) if drained.is_empty() => "OFF: no taint moves anything".to_owned(),
        (Some(false), _) => format!(
            "OFF: no taint moves anything, but orders do: {} drained",
            few(&drained)
        ),
        (None, _) => format!(
            "{NOT_KNOWN}: no leader publishes it; give the control plane's flags behind --"
        ),
    }
}

/// Names clusters, with the verb.
fn few(names: &[String]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", listed(names, MOST))
}

fn pace(report: &Report) -> String {
    if report.clusters.is_none() {
        return NOT_KNOWN.to_owned();
    }
    let pace = &report.pace;
    let failed = match pace.drained {
        0 => "have failed".to_owned(),
        drained => format!("count as failed, {drained} of them because drained"),
    };
    let settings = match report.settings_from {
        Source::Gates | Source::Defaults => "; by the default flags",
        Source::CommandLine | Source::Leader => "",
    };
    let nobody = if report.nobody_leads() {
        "nothing moves, because nobody leads; with a leader "
    } else if !report.leader.acts && !report.leader.is_unread {
        "nothing moves, unless a control plane acts without an election (--leader-elect=false); then "
    } else {
        ""
    };
    format!(
        "{nobody}{} a second ({}): {} of {} clusters {failed}{settings}",
        pace.per_second, pace.band, pace.failed, pace.counted,
    )
}

fn counts_of_clusters(report: &Report) -> String {
    let Some(clusters) = report.clusters else {
        return NOT_KNOWN.to_owned();
    };
    let mut text = format!("{clusters}, {} not well", report.not_well.len());
    let drained = report.ordered.iter().filter(|it| it.is_drained()).count();
    let cordoned = report.ordered.len() - drained;
    for (count, what) in [(drained, "drained"), (cordoned, "cordoned")] {
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
        count => format!(" ({count} of them until fewer clusters have failed)"),
    };
    format!(
        "{workloads}: {} with unknown state, {} moving, {} waiting{stopped}, {} stranded, {} without a place, {} without what they refer to",
        report.unknown,
        report.moving.len(),
        report.waiting.len(),
        report.stranded.len(),
        report.unplaced.len(),
        report.without_dependencies.len()
    )
}

fn ordered(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new([
        "CLUSTER BY ORDER",
        "ORDER",
        "SINCE",
        "OWN RATE",
        "BY",
        "REASON",
    ]);
    for it in report.ordered.iter().take(limits.rows) {
        let rate = it.per_second.map(|it| format!("{it} a second"));
        let fault = it.fault.as_ref().map(|it| format!("nothing leaves: {it}"));
        let rate = rate.or(fault).unwrap_or_else(|| "-".to_owned());
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row([
            it.name.clone(),
            it.order.to_owned(),
            ago(it.since, now),
            rate,
            or_none(&it.by),
            or_none(&it.reason),
        ]);
    }
    section(&table.to_string(), report.ordered.len(), limits)
}

fn expires(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new(["EXPIRES", "AT", "LEFT"]);
    for it in report.expires.iter().take(limits.rows) {
        let left = it.end.duration_since(now).as_secs();
        table.row([it.what.clone(), format!("{:.0}", it.end), remaining(left)]);
    }
    section(&table.to_string(), report.expires.len(), limits)
}

fn clusters(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new([
        "CLUSTER NOT WELL",
        "READY",
        "REASON",
        "SINCE",
        "LAST HEARD",
        "TAINTS",
    ]);
    for it in report.not_well.iter().take(limits.rows) {
        table.row([
            it.name.clone(),
            it.ready.clone(),
            it.reason.clone(),
            ago(it.since, now),
            ago(it.last_heard, now),
            it.taints.join(","),
        ]);
    }
    section(&table.to_string(), report.not_well.len(), limits)
}

fn moving(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new(["MOVING", "FROM", "NOW PLACED ON", "SINCE"]);
    for it in report.moving.iter().take(limits.rows) {
        table.row([
            it.workload.clone(),
            it.from.clone(),
            it.to.join(","),
            ago(it.since, now),
        ]);
    }
    section(&table.to_string(), report.moving.len(), limits)
}

fn waiting(head: &str, all: &[Waiting], now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new([head, "FOR", "SINCE", "AT MOST", "WHY"]);
    for it in all.iter().take(limits.rows) {
        let estimate = it
            .at_most_seconds
            .map_or_else(|| "-".to_owned(), |it| format!("{it}s"));
        table.row([
            it.workload.clone(),
            it.reason.clone(),
            ago(it.since, now),
            estimate,
            shortened(&it.message, limits.letters),
        ]);
    }
    section(&table.to_string(), all.len(), limits)
}

/// Returns a table below an empty line, with the number of rows that are not shown; nothing without
/// rows.
fn section(table: &str, rows: usize, limits: Limits) -> String {
    if rows == 0 {
        return String::new();
    }
    let mut text = format!("\n{table}");
    if rows > limits.rows {
        let more = rows - limits.rows;
        let _ = writeln!(text, "and {more} more: -o wide has all");
    }
    text
}
