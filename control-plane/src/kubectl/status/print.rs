//! The report as text: a headline each, and a table of what needs attention.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use muster_shared::check::common::remaining;

use super::decide::{Report, Waiting};
use crate::kubectl::running::Source;
use crate::kubectl::table::{Table, shortened};

/// Rows of one table at most: the screen is one screen. `-o json` has all.
const MOST: usize = 10;
/// Characters of a reason in words.
const LONGEST: usize = 100;

/// The text for people.
pub(super) fn table(report: &Report, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
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
    let gate = match report.failover {
        Some(true) => "on",
        Some(false) => "OFF: no taint moves anything",
        None => "not known: no leader publishes it; give the control plane's flags behind --",
    };
    line(format!("Failover:   {gate}"));
    for pause in &report.paused {
        line(format!("PAUSED:     {pause}"));
    }
    let pace = &report.pace;
    line(format!(
        "Pace:       {} a second ({}): {} of {} clusters have failed{}",
        pace.per_second,
        pace.band,
        pace.failed,
        pace.counted,
        match report.settings_from {
            Source::Gates | Source::Defaults => "; by the default flags",
            Source::CommandLine | Source::Leader => "",
        },
    ));
    line(format!(
        "Clusters:   {}, {} not well",
        report.clusters,
        report.not_well.len()
    ));
    line(format!(
        "Workloads:  {}: {} with unknown state, {} moving, {} waiting, {} stranded, {} without a place",
        report.workloads,
        report.unknown,
        report.moving.len(),
        report.waiting.len(),
        report.stranded.len(),
        report.unplaced.len()
    ));
    text.push_str(&clusters(report, now));
    text.push_str(&moving(report, now));
    text.push_str(&waiting("STRANDED", &report.stranded, now));
    text.push_str(&waiting("WAITING", &report.waiting, now));
    text.push_str(&waiting("WITHOUT A PLACE", &report.unplaced, now));
    text.push_str(&expires(report, now));
    text
}

fn expires(report: &Report, now: Timestamp) -> String {
    let mut table = Table::new(["EXPIRES", "AT", "LEFT"]);
    for it in report.expires.iter().take(MOST) {
        let left = it.end.duration_since(now).as_secs();
        table.row([it.what.clone(), format!("{:.0}", it.end), remaining(left)]);
    }
    section(&table.to_string(), report.expires.len())
}

fn clusters(report: &Report, now: Timestamp) -> String {
    let mut table = Table::new([
        "CLUSTER NOT WELL",
        "READY",
        "REASON",
        "SINCE",
        "LAST HEARD",
        "TAINTS",
    ]);
    for it in report.not_well.iter().take(MOST) {
        table.row([
            it.name.clone(),
            it.ready.clone(),
            it.reason.clone(),
            ago(it.since, now),
            ago(it.last_heard, now),
            it.taints.join(","),
        ]);
    }
    section(&table.to_string(), report.not_well.len())
}

fn moving(report: &Report, now: Timestamp) -> String {
    let mut table = Table::new(["MOVING", "FROM", "TO", "SINCE"]);
    for it in report.moving.iter().take(MOST) {
        table.row([
            it.workload.clone(),
            it.from.clone(),
            it.to.join(","),
            ago(it.since, now),
        ]);
    }
    section(&table.to_string(), report.moving.len())
}

fn waiting(head: &str, all: &[Waiting], now: Timestamp) -> String {
    let mut table = Table::new([head, "FOR", "SINCE", "AT MOST", "WHY"]);
    for it in all.iter().take(MOST) {
        let estimate = it
            .at_most_seconds
            .map_or_else(|| "-".to_owned(), |it| format!("{it}s"));
        table.row([
            it.workload.clone(),
            it.reason.clone(),
            ago(Some(it.since), now),
            estimate,
            shortened(&it.message, LONGEST),
        ]);
    }
    section(&table.to_string(), all.len())
}

/// A table below an empty line, with the number of rows that are not shown; nothing without rows.
fn section(table: &str, rows: usize) -> String {
    if rows == 0 {
        return String::new();
    }
    let mut text = format!("\n{table}");
    if rows > MOST {
        let _ = writeln!(text, "and {} more: -o json has all", rows - MOST);
    }
    text
}

/// The time that has passed, to the second.
pub(crate) fn ago(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "-".to_owned(),
        |since| {
            let seconds = now
                .duration_since(since)
                .max(SignedDuration::ZERO)
                .as_secs();
            match seconds {
                0..120 => format!("{seconds}s"),
                120..7_200 => format!("{}m{}s", seconds / 60, seconds % 60),
                7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
                _ => format!("{}d", seconds / 86_400),
            }
        },
    )
}
