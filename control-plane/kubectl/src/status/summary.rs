//! The state of the fleet in one sentence, with how bad it is. Pure.

mod advice;
mod clusters;
mod service;

use std::collections::{BTreeMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use muster_control_plane::fleet::budget::rate::Band;
use muster_shared::check::few;
use muster_shared::names::condition::DATA_NOT_READY;
use serde::Serialize;

pub(super) use self::advice::{Advice, explain};
pub(super) use self::clusters::{parts, verbs};
pub(super) use self::service::Lost;
use super::decide::{Ordered, Report, UNJUDGED, Waiting, cluster_of};
pub(super) use crate::table::count;

/// Matters that the sentence names; the others are only counted.
const MOST: usize = 3;

/// Severity of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Severity {
    /// Nothing is to be done.
    Well,
    /// A person's order holds.
    Notice,
    /// Something needs attention, and no workload is without a place.
    Attention,
    /// Workloads are down, or what protects them does not act.
    Alarm,
    /// Too little could be read.
    #[default]
    Unknown,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "WELL",
            Self::Notice => "NOTICE",
            Self::Attention => "ATTENTION",
            Self::Alarm => "ALARM",
            Self::Unknown => "NOT KNOWN",
        }
    }
}

/// Lines that an operator has to read first, always in the same order.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub severity: Severity,
    /// Sentence about what happened.
    pub sentence: String,
    /// Whether some workload is without service.
    pub lost: Lost,
    /// Which workloads are without service.
    pub service: String,
    /// Which workloads may run twice, because an old copy is not confirmed gone.
    pub twice: String,
    /// How to stop them; absent if their clusters are removing them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Advice>,
    /// What happens next, and when.
    pub next: String,
    /// What to do.
    pub advice: Advice,
}

impl Summary {
    /// Returns the line that the text for people begins with.
    pub fn line(&self) -> String {
        format!("{}: {}", self.severity.word(), self.sentence)
    }

    /// Returns what follows the line, each with its name.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        let stop = self.stop.as_ref();
        let stop = stop.map_or_else(String::new, |it| format!(". {it}"));
        [
            ("Service", self.service.clone()),
            ("Next", self.next.clone()),
            ("To do", self.advice.to_string()),
            ("Two copies", format!("{}{stop}", self.twice)),
        ]
    }

    /// Returns the summary of a report.
    pub fn of(report: &Report, now: Timestamp) -> Self {
        let (severity, sentence) = happened(report, now);
        let (lost, service) = service::describe(report, now);
        Self {
            severity,
            sentence,
            lost,
            service,
            twice: service::twice(report),
            stop: advice::stop(report),
            next: report.next.sentence(now),
            advice: advice::advice(report, severity, lost),
        }
    }
}

/// Returns what happened, and how bad it is.
fn happened(report: &Report, now: Timestamp) -> (Severity, String) {
    if report.is_blind {
        return (Severity::Unknown, blind(report));
    }
    let mut matters = matters(report, now);
    // The worst comes first, and of those that are equal the one that was found first.
    matters.sort_by_key(|it| std::cmp::Reverse(it.0));
    let Some(severity) = matters.first().map(|it| it.0) else {
        return (Severity::Well, well(report));
    };
    let words: Vec<String> = matters.into_iter().map(|it| it.1).collect();
    let sentence = few(&words, MOST, "; ", |more| format!("; and {more} more"));
    (severity, sentence)
}

fn blind(report: &Report) -> String {
    let (unread, server) = (&report.unread, &report.server);
    let reasons = unread
        .iter()
        .map(|it| it.split_once(": ").map_or(it.as_str(), |(_, why)| why));
    let mut reasons: Vec<&str> = reasons.collect();
    reasons.dedup();
    let steps = unread.iter();
    let steps: Vec<&str> = steps
        .filter_map(|it| Some(it.split_once(": ")?.0))
        .collect();
    match reasons[..] {
        _ if report.is_refused() => format!("you may not read this: {}", steps.join(", ")),
        [only] if unread.len() > 2 => {
            let why = only.strip_prefix("ServiceError: client error (");
            let why = why.and_then(|it| it.split_once("): "));
            match why {
                Some((_, why)) => format!("the fleet API ({server}) does not answer: {why}"),
                None => format!("the fleet API ({server}) cannot be read: {only}"),
            }
        }
        [only] => format!("cannot {}: {only}", steps.join(", ")),
        _ => format!(
            "too little of the fleet could be read: {}",
            unread.join("; ")
        ),
    }
}

fn well(report: &Report) -> String {
    let clusters = report.clusters.unwrap_or_default();
    let workloads = report.workloads.unwrap_or_default();
    let mut text = match clusters {
        0 => "no cluster has joined yet".to_owned(),
        _ => format!(
            "{clusters} of {clusters} clusters ready, {} placed",
            count(workloads, "workload")
        ),
    };
    if !report.moving.is_empty() {
        text = format!("{text}, {} of them moving", report.moving.len());
    }
    if !report.kept.is_empty() {
        let number = report.kept.len();
        let stays = either(
            number,
            "old copy stays until somebody releases it",
            "old copies stay until somebody releases them",
        );
        text = format!("{text}; {number} {stays}");
    }
    for it in &report.left {
        let left = it.returning + it.staying;
        let (who, verb) = (count(left, "workload"), either(left, "is", "are"));
        text = format!(
            "{text}; {who} that left {} {verb} not back there",
            it.cluster
        );
    }
    match (report.failover, report.policy_evicts) {
        _ if report.taints_ignored => {
            format!("{text}; {UNJUDGED}, so that no taint moves anything")
        }
        (Some(false), _) => format!("{text}; failover is OFF, so that no failure moves anything"),
        (_, Some(false)) => {
            format!("{text}; no policy taints a cluster that fails, so that nothing would move")
        }
        _ => text,
    }
}

/// Returns all that is not as it should be.
fn matters(report: &Report, now: Timestamp) -> Vec<(Severity, String)> {
    use Severity::{Alarm, Attention, Notice};
    let leader = &report.leader;
    let mut all: Vec<(Severity, String)> = Vec::new();
    if report.nobody_leads() {
        let since = span(leader.renewed, now);
        let words = "nothing moves, and silent clusters are not noticed";
        all.push((
            Alarm,
            format!("no control plane leads for {since}: {words}"),
        ));
    }
    all.extend(clusters::matters(report, now));
    let names = report.not_well.iter().map(|it| it.name.as_str());
    let not_well: HashSet<&str> = names.collect();
    let drained: HashSet<&str> = report.drained().map(|it| it.name.as_str()).collect();
    let by_reason = |all: &[Waiting], counts: &dyn Fn(&str) -> bool| {
        let cluster = |it: &Waiting| counts(cluster_of(&it.message).unwrap_or_default());
        by_reason(all.iter().filter(|it| cluster(it)), "workload")
    };
    // What is said of a cluster that is not well is not said again, nor what a drain waits for.
    let stranded = by_reason(&report.stranded, &|it| !not_well.contains(it));
    all.extend(stranded.map(|words| (Alarm, words)));
    let waiting = by_reason(&report.waiting, &|it| {
        !not_well.contains(it) && !drained.contains(it)
    });
    all.extend(waiting.map(|words| (Attention, words)));
    all.extend(held(report));
    let unknown = report.unknown * usize::from(not_well.is_empty());
    for (number, severity, words) in [
        (report.unplaced.len(), Alarm, "without a place"),
        (
            report.service.failing.count,
            Attention,
            "with application failover and no healthy copy",
        ),
        (unknown, Attention, "with a state that is not known"),
        (
            report.without_dependencies.len(),
            Attention,
            "with missing dependencies",
        ),
        (
            report.unpublished.len(),
            Attention,
            "with a host name that is not published",
        ),
    ] {
        if number > 0 {
            all.push((severity, format!("{} {words}", count(number, "workload"))));
        }
    }
    // Most of them have a cause that is shown above.
    let without = report.service.without.count;
    if without > 0 && all.iter().all(|it| it.0 < Alarm) {
        all.push((
            Alarm,
            format!("{} without service", count(without, "workload")),
        ));
    }
    let leads_unknown = !leader.acts && !leader.is_unread && !report.nobody_leads();
    for (is_so, words) in [
        (
            leader.is_unread,
            "it is not known whether a control plane leads",
        ),
        (
            leads_unknown,
            "no control plane leads: nothing moves, unless one acts without an election (--leader-elect=false)",
        ),
        (
            report.may_be_paused,
            "it could not be read whether movement is paused",
        ),
    ] {
        all.extend(is_so.then(|| (Attention, words.to_owned())));
    }
    all.extend(report.paused.iter().map(|it| (Attention, it.clone())));
    all.extend(report.expires.iter().map(|it| {
        let left = it.end.duration_since(now);
        if left.is_negative() {
            (Alarm, format!("{} has ended", it.what))
        } else {
            (Attention, format!("{} ends in {}", it.what, time(left)))
        }
    }));
    let orders = report.ordered.iter();
    all.extend(orders.map(|it| {
        let is_here =
            |cluster: &str| cluster == it.name && it.is_drained() && !not_well.contains(cluster);
        let waiting = by_reason(&report.waiting, &is_here);
        let severity = if is_faulty(report, it) {
            Attention
        } else {
            Notice
        };
        (severity, ordered(report, it, waiting, now))
    }));
    all
}

/// Returns what is to be said of failing applications that have to leave and stay, and of new
/// copies that are not created yet.
fn held(report: &Report) -> impl Iterator<Item = (Severity, String)> {
    let stuck = by_reason(report.stuck(), "failing application");
    let stuck = stuck.map(|it| (Severity::Attention, it));
    let is_late = |it: &Waiting| it.reason == DATA_NOT_READY;
    let severity = if report.held_back.iter().any(is_late) {
        Severity::Alarm
    } else {
        Severity::Attention
    };
    let held_back = by_reason(report.held_back.iter(), "workload").map(|it| (severity, it));
    stuck.into_iter().chain(held_back)
}

/// Returns the numbers of things by the reason for which they wait, in words; `None` without any.
fn by_reason<'a>(all: impl Iterator<Item = &'a Waiting>, thing: &str) -> Option<String> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for it in all {
        *reasons.entry(it.reason.clone()).or_default() += 1;
    }
    (!reasons.is_empty()).then(|| clusters::by_reason(&reasons, thing).join(", "))
}

/// Returns what a person ordered for a cluster, and what `waiting` says of workloads that wait.
fn ordered(report: &Report, it: &Ordered, waiting: Option<String>, now: Timestamp) -> String {
    let by = it.by.as_ref();
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let reason = it.reason.as_ref();
    let reason = reason.map_or_else(String::new, |why| format!(" ({why:?})"));
    let since = span(it.since, now);
    let mut text = format!("{} {}{by}{reason} for {since}", it.name, it.words);
    let moving = report.moving.iter().filter(|moving| moving.from == it.name);
    match moving.count() {
        0 => {}
        leaving => text = format!("{text}, {} leaving", count(leaving, "workload")),
    }
    match (&it.fault, waiting) {
        (Some(fault), _) if is_faulty(report, it) => {
            format!("{text}, and nothing leaves it: {fault}")
        }
        (_, Some(words)) => format!("{text}, {words}"),
        (_, None) if is_emptied(report, it) => format!("{text}, no workload is left there"),
        (_, None) if report.taints_ignored && it.is_drained() => {
            format!("{text}, and nothing leaves it: {UNJUDGED}")
        }
        (_, None) => text,
    }
}

/// Returns whether an order is not carried out before somebody mends it.
fn is_faulty(report: &Report, order: &Ordered) -> bool {
    let is_held = order.fault.is_some() || is_stopped(report, order);
    order.is_incomplete() || (is_held && !is_emptied(report, order))
}

/// Returns whether nothing leaves a drained cluster because too many count as failed, drained ones
/// included.
fn is_stopped(report: &Report, order: &Ordered) -> bool {
    order.is_drained() && report.pace.band == Band::Stopped
}

/// Returns whether a drain is done: nothing is left in the cluster.
fn is_emptied(report: &Report, order: &Ordered) -> bool {
    let is_known = !report.is_blind && report.old_copies.is_some();
    is_known && order.is_drained() && order.copies == 0
}

/// Returns the words about one thing, or those about more.
pub(super) fn either<'a>(number: usize, one: &'a str, more: &'a str) -> &'a str {
    if number == 1 { one } else { more }
}

/// Returns the time that has passed, with the time of day since which.
fn span(since: Option<Timestamp>, now: Timestamp) -> String {
    span_from("since", since, now)
}

/// Returns the same with a word for what was at that time.
fn span_from(word: &str, since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "a time that is not known".to_owned(),
        |since| {
            let passed = time(now.duration_since(since));
            format!("{passed} ({word} {})", clock(since, now))
        },
    )
}

/// Returns when so many seconds are over, with the time of day.
pub(super) fn coming(seconds: u64, now: Timestamp) -> String {
    if seconds == 0 {
        return "any moment now".to_owned();
    }
    let left = SignedDuration::from_secs(seconds.try_into().unwrap_or(i64::MAX));
    let end = now.saturating_add(left).unwrap_or(Timestamp::MAX);
    format!("in {} ({})", time(left), clock(end, now))
}

/// Returns the time of day of a moment, with its date if that is more than a day away.
pub(super) fn clock(at: Timestamp, now: Timestamp) -> String {
    if now.duration_since(at).abs() > SignedDuration::from_hours(24) {
        return at.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    }
    at.strftime("%H:%M:%SZ").to_string()
}

/// Returns a number of seconds as a time.
fn span_of(seconds: u64) -> String {
    time(SignedDuration::from_secs(
        seconds.try_into().unwrap_or(i64::MAX),
    ))
}

/// Returns a time in the two largest units that it has, as the page does.
pub(super) fn time(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    let with = |large: i64, unit: &str, small: i64, other: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small:02} {other}"),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => with(seconds / 60, "min", seconds % 60, "s"),
        7_200..172_800 => with(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => format!("{} days", seconds / 86_400),
    }
}
