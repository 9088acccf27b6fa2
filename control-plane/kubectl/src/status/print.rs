//! The report as text: a headline each, and a table of what needs attention.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::check::common::remaining;

use super::decide::{Fact, Report, Waiting};
use crate::table::{Table, ago, shortened};

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
    for (name, words) in report.summary.told() {
        line(format!("{:<12}{words}", format!("{name}:")));
    }
    for unread in &report.unread {
        line(format!("COULD NOT READ: {unread}"));
    }
    for Fact { name, text } in &report.facts {
        line(format!("{:<12}{text}", format!("{name}:")));
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
    let has_why = report.not_well.iter().any(|it| it.why.is_some());
    let mut table = Table::new([
        "CLUSTER NOT WELL",
        "READY",
        "REASON",
        "SINCE",
        "LAST HEARD",
        "TAINTS",
        "WHY",
    ]);
    for it in report.not_well.iter().take(limits.rows) {
        let why = it.why.as_deref().unwrap_or_default();
        table.row([
            it.name.clone(),
            it.ready.clone(),
            it.reason.clone(),
            ago(it.since, now),
            ago(it.last_heard, now),
            it.taints.join(","),
            shortened(why, limits.letters),
        ]);
    }
    let hidden: &[&str] = if has_why { &[] } else { &["WHY"] };
    section(&table.without(hidden), report.not_well.len(), limits)
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
        let estimate = match (it.at_most_seconds, it.stops_seconds) {
            (Some(seconds), _) => format!("{seconds}s"),
            (None, Some(seconds)) => format!("copy stops in {seconds}s"),
            (None, None) => "-".to_owned(),
        };
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
