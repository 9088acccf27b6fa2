//! The state of the fleet in one sentence, with how bad it is. Pure.

mod clusters;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::decide::{Report, Waiting, cluster_of};
use crate::old_copies;

/// Matters that the sentence names; the others are only counted.
const MOST: usize = 3;

/// How bad a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Severity {
    /// Nothing is to be done.
    Well,
    /// A person's order holds.
    Notice,
    /// Somebody should look, and no workload is without a place.
    Attention,
    /// Workloads are down, or what protects them does not act.
    Alarm,
    /// Too little could be read.
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

/// The state of the fleet in one sentence.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub severity: Severity,
    pub sentence: String,
}

impl Summary {
    /// Returns the line that the text for people begins with.
    pub fn line(&self) -> String {
        format!("{}: {}", self.severity.word(), self.sentence)
    }

    /// Returns the summary of a report.
    pub fn of(report: &Report, now: Timestamp) -> Self {
        if report.is_blind {
            return Self {
                severity: Severity::Unknown,
                sentence: blind(&report.unread),
            };
        }
        let mut matters = matters(report, now);
        // The worst comes first, and of those that are equal the one that was found first.
        matters.sort_by_key(|it| std::cmp::Reverse(it.0));
        let Some(severity) = matters.first().map(|it| it.0) else {
            return Self {
                severity: Severity::Well,
                sentence: well(report),
            };
        };
        let words: Vec<String> = matters.iter().take(MOST).map(|it| it.1.clone()).collect();
        let mut sentence = words.join("; ");
        if matters.len() > MOST {
            sentence = format!("{sentence}; and {} more", matters.len() - MOST);
        }
        Self { severity, sentence }
    }
}

fn blind(unread: &[String]) -> String {
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
        [only] if unread.len() > 2 => match only.split_once("(Connect): ") {
            Some((_, why)) => format!("the fleet API does not answer: {why}"),
            None => format!("the fleet API cannot be read: {only}"),
        },
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
    for old in report.old_copies.iter().filter(|it| !it.is_empty()) {
        text = format!("{text}; {}", old_copies::told(old));
    }
    match (report.failover, report.policy_evicts) {
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
    let mut all: Vec<(Severity, String)> = Vec::new();
    let mut tell = |severity, words: String| all.push((severity, words));
    let leader = &report.leader;
    if leader.is_unread {
        tell(
            Attention,
            "it is not known whether a control plane leads".into(),
        );
    } else if report.nobody_leads() {
        let since = span(leader.renewed, now);
        tell(
            Alarm,
            format!(
                "no control plane leads for {since}: nothing moves, and nobody judges which clusters are silent"
            ),
        );
    } else if !leader.acts {
        tell(
            Attention,
            "no control plane leads: nothing moves, unless one acts without an election (--leader-elect=false)".into(),
        );
    }
    for (severity, words) in clusters::matters(report, now) {
        tell(severity, words);
    }
    let by_reason = |all: &[Waiting], counts: &dyn Fn(&str) -> bool| {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for it in all {
            if counts(cluster_of(&it.message).unwrap_or_default()) {
                *reasons.entry(it.reason.clone()).or_default() += 1;
            }
        }
        (!reasons.is_empty()).then(|| clusters::by_reason(&reasons, "workload").join(", "))
    };
    // What is told of a cluster that is not well is not told again, nor what a drain waits for.
    let is_well = |cluster: &str| !report.not_well.iter().any(|it| it.name == cluster);
    let is_drained = |cluster: &str| {
        report
            .ordered
            .iter()
            .any(|it| it.name == cluster && it.is_drained())
    };
    if let Some(words) = by_reason(&report.stranded, &is_well) {
        tell(Alarm, words);
    }
    if !report.unplaced.is_empty() {
        let workloads = count(report.unplaced.len(), "workload");
        tell(Alarm, format!("{workloads} without a place"));
    }
    if let Some(words) = by_reason(&report.waiting, &|it| is_well(it) && !is_drained(it)) {
        tell(Attention, words);
    }
    if report.unknown > 0 && report.not_well.is_empty() {
        let workloads = count(report.unknown, "workload");
        tell(Attention, format!("the state of {workloads} is not known"));
    }
    if !report.without_dependencies.is_empty() {
        let workloads = count(report.without_dependencies.len(), "workload");
        tell(
            Attention,
            format!("{workloads} placed without what they refer to"),
        );
    }
    for pause in &report.paused {
        tell(Attention, pause.clone());
    }
    if report.may_be_paused {
        tell(
            Attention,
            "it could not be read whether movement is paused".into(),
        );
    }
    for it in &report.expires {
        let left = it.end.duration_since(now);
        if left.is_negative() {
            tell(Alarm, format!("{} has ended", it.what));
        } else {
            tell(Attention, format!("{} ends in {}", it.what, time(left)));
        }
    }
    for it in &report.ordered {
        let moving = report.moving.iter().filter(|moving| moving.from == it.name);
        let mut rest = String::new();
        if moving.clone().next().is_some() {
            rest = format!(", {} leaving", count(moving.count(), "workload"));
        }
        let is_here = |cluster: &str| cluster == it.name && it.is_drained() && is_well(cluster);
        if let Some(words) = by_reason(&report.waiting, &is_here) {
            rest = format!("{rest}, {words}");
        }
        let order = match it.order {
            "DrainIncomplete" => "kept free by a drain that was not completed".to_owned(),
            order => order.to_lowercase().replace(',', " and "),
        };
        let since = span(it.since, now);
        tell(Notice, format!("{} {order} for {since}{rest}", it.name));
    }
    all
}

/// Returns a number of things, such as `1 workload` or `2 workloads`.
fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// Returns the time that has passed.
fn span(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "a time that is not known".to_owned(),
        |since| time(now.duration_since(since)),
    )
}

/// Returns a time in its largest unit of which there are two at least.
fn time(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
