//! The report as text: a headline each, and a table of what needs attention.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::check::common::remaining;

use super::decide::{Fact, Moving, Report, Waiting};
use crate::table::{Table, ago, shortened};

/// Limits of what is shown of the report.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Rows of one table.
    rows: usize,
    /// Characters of a line of a table.
    columns: usize,
}

/// Rows of a table on a terminal, where all is to be on one screen.
const ROWS: usize = 10;
const WHOLE: Limits = Limits {
    rows: usize::MAX,
    columns: usize::MAX,
};

/// Returns the text for people, of which nothing is cut.
pub(super) fn table(report: &Report, now: Timestamp) -> String {
    text(report, now, WHOLE)
}

/// Returns the text for a terminal with so many columns.
pub(super) fn screen(report: &Report, now: Timestamp, columns: usize) -> String {
    let rows = ROWS;
    text(report, now, Limits { rows, columns })
}

/// Returns when a command that refreshes has refreshed last.
pub(super) fn clock(now: Timestamp, every: Duration) -> String {
    format!("{now:.0}, again every {}s\n", every.as_secs())
}

/// Characters that [`marked`] puts before each line.
pub(super) const MARK: usize = 2;

/// Returns a screen with a mark before each line that was not on the last one. Times go on from one
/// to the next, and are no change.
pub(super) fn marked(screen: &str, last: Option<&str>) -> String {
    let known: Option<BTreeSet<String>> = last.map(|it| it.lines().map(timeless).collect());
    let is_new = |line: &str| {
        known
            .as_ref()
            .is_some_and(|it| !it.contains(&timeless(line)))
    };
    let lines = screen.lines();
    let lines = lines.map(|it| match it {
        "" => "\n".to_owned(),
        _ if is_new(it) => format!("* {it}\n"),
        _ => format!("  {it}\n"),
    });
    lines.collect()
}

/// Returns the words of a line that are no times, such as `5m3s`, `5 min 03 s` or `00:10:00Z`.
fn timeless(line: &str) -> String {
    let bare = |it: &str| it.trim_matches(|it: char| !it.is_alphanumeric()).to_owned();
    let words: Vec<String> = line.split_whitespace().map(bare).collect();
    let is_number = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let is_unit = |it: &str| ["s", "min", "h", "days"].contains(&it);
    let kept = words.iter().enumerate().filter(|(at, word)| {
        let is_part = |it: char| it.is_ascii_digit() || "smhd:TZ-.".contains(it);
        let begins = word.starts_with(|it: char| it.is_ascii_digit());
        match words.get(at + 1) {
            _ if begins && !is_number(word) => !word.chars().all(is_part),
            Some(next) if is_number(word) => !is_unit(next),
            _ => *at == 0 || !is_unit(word) || !is_number(&words[at - 1]),
        }
    });
    kept.map(|(_, word)| word.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

fn text(report: &Report, now: Timestamp, limits: Limits) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    line(report.summary.line());
    for (name, words) in report.summary.lines() {
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
    let heads = ["MOVING", "FROM"];
    text.push_str(&moving(heads, &report.moving, now, limits));
    let heads = ["OLD COPY KEPT", "IN"];
    text.push_str(&moving(heads, &report.kept, now, limits));
    text.push_str(&waiting("STRANDED", &report.stranded, now, limits));
    text.push_str(&waiting("WAITING", &report.waiting, now, limits));
    text.push_str(&waiting("STATE UNKNOWN", &report.unheard, now, limits));
    text.push_str(&waiting("WITHOUT A PLACE", &report.unplaced, now, limits));
    let applications = &report.applications;
    text.push_str(&waiting("FAILING APPLICATION", applications, now, limits));
    text.push_str(&waiting("NO NEW COPY YET", &report.held_back, now, limits));
    let parted = &report.without_dependencies;
    text.push_str(&waiting("WITHOUT DEPENDENCIES", parted, now, limits));
    let unpublished = &report.unpublished;
    text.push_str(&waiting("WITHOUT HOST NAME", unpublished, now, limits));
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
            why.to_owned(),
        ]);
    }
    let hidden: &[&str] = if has_why { &[] } else { &["WHY"] };
    section(&table.without(hidden), report.not_well.len(), limits)
}

fn moving(heads: [&str; 2], all: &[Moving], now: Timestamp, limits: Limits) -> String {
    let [workload, from] = heads;
    let mut table = Table::new([workload, from, "NOW PLACED ON", "SINCE"]);
    for it in all.iter().take(limits.rows) {
        table.row([
            it.workload.clone(),
            it.from.clone(),
            it.to.join(","),
            ago(it.since, now),
        ]);
    }
    section(&table.to_string(), all.len(), limits)
}

fn waiting(head: &str, all: &[Waiting], now: Timestamp, limits: Limits) -> String {
    let mut table = Table::new([head, "FOR", "SINCE", "NEXT", "WHY"]);
    for it in all.iter().take(limits.rows) {
        table.row([
            it.workload.clone(),
            it.reason.clone(),
            ago(it.since, now),
            it.next
                .as_ref()
                .map_or_else(|| "-".to_owned(), |it| it.sentence(now)),
            // A terminal may cut the line: what it means comes first, the taints after it.
            it.why.as_ref().map_or_else(
                || it.message.clone(),
                |why| format!("{why}: {}", it.message),
            ),
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
    let mut text = "\n".to_owned();
    for line in table.lines() {
        let _ = writeln!(text, "{}", shortened(line, limits.columns));
    }
    if rows > limits.rows {
        let more = rows - limits.rows;
        let _ = writeln!(text, "and {more} more: -o wide has all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_marked_if_something_else_than_its_times_has_changed() {
        let last = "ALARM: m1 silent for 59 s (since 00:09:01Z)\n\nWAITING   FOR   SINCE\nweb   Rate   59s\n3 move";
        for (line, is_marked) in [
            ("ALARM: m1 silent for 1 min 01 s (since 00:09:01Z)", false),
            (
                "ALARM: m1 silent for 2 days (since 2026-01-01T00:09:01Z)",
                false,
            ),
            ("ALARM: m2 silent for 59 s (since 00:09:01Z)", true),
            ("web   Rate   1m1s", false),
            ("web   Rate   2d", false),
            ("api   Rate   1m1s", true),
            ("3 move", false),
            ("2 move", true),
        ] {
            let mark = if is_marked { '*' } else { ' ' };
            let expected = format!("{mark} {line}\n");
            assert_eq!(marked(line, Some(last)), expected);
            assert_eq!(
                marked(line, None),
                format!("  {line}\n"),
                "the first refresh"
            );
        }
        assert_eq!(marked("a\n\nb", Some("a")), "  a\n\n* b\n");
    }
}
