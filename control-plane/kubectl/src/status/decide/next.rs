//! What happens next, in the fleet and in each cluster: the one place that says it, for `status`,
//! the page and the timelines of failovers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use muster_control_plane::fleet::budget::rate::Band;
use muster_control_plane::fleet::pause::Pause;
use muster_shared::check::listed;
use serde::Serialize;

use super::{Ordered, Report, UNJUDGED, WAITING_FOR_FENCE, WAITING_FOR_RATE, Waiting, cluster_of};
use crate::old_copies::UNTIL_RELEASED;
use crate::status::summary::{clock, coming, count, either, verbs};

/// Next event in the fleet or in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Next {
    pub words: String,
    /// Seconds until then; absent if time alone does not bring it about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl Next {
    fn at(words: impl Into<String>, seconds: u64) -> Self {
        Self {
            words: words.into(),
            seconds: Some(seconds),
        }
    }

    /// Returns the event, and when it comes if that is known, as a sentence.
    pub fn sentence(&self, now: Timestamp) -> String {
        let Self { words, seconds } = self;
        match seconds {
            Some(seconds) => format!("{}: {words}", coming(*seconds, now)),
            None => words.clone(),
        }
    }
}

impl<T: Into<String>> From<T> for Next {
    fn from(words: T) -> Self {
        Self {
            words: words.into(),
            seconds: None,
        }
    }
}

/// Obstacles because of which nothing moves.
struct Halt {
    /// ` out of` the cluster whose own pause it is, or nothing.
    from: String,
    /// Events that end the obstacles.
    until: String,
}

impl Halt {
    /// Returns what happens until then: workloads whose copies stop by themselves do so, and stay
    /// down.
    fn next(self, report: &Report, cluster: Option<&str>) -> Next {
        let Self { from, until } = self;
        let is_here = |it: &&Waiting| cluster.is_none_or(|_| cluster_of(&it.message) == cluster);
        let stopping = || report.stopping().filter(|it| is_here(&it.1));
        let Some((seconds, first)) = stopping().min_by_key(|it| it.0) else {
            return format!("nothing moves{from} until {until}").into();
        };
        let who = match stopping().count() {
            1 => first.workload.clone(),
            more => format!("{}, the first of {more} workloads,", first.workload),
        };
        let place = cluster_of(&first.message).map_or_else(String::new, |it| format!(" in {it}"));
        let words = format!(
            "{who} stops itself{place} at the latest, and stays down; nothing moves{from} until {until}"
        );
        Next::at(words, seconds)
    }
}

impl Report {
    /// Returns what waits and stops itself later where it is, with the seconds until then.
    pub(in super::super) fn stopping(&self) -> impl Iterator<Item = (u64, &Waiting)> {
        let waiting = self.waiting.iter();
        waiting.filter_map(|it| Some((it.stops_seconds.filter(|it| *it > 0)?, it)))
    }
}

/// Returns what keeps everything where it is, whatever waits; `None` if something may move.
fn halt(report: &Report, pauses: &[Pause], cluster: Option<&str>) -> Option<Halt> {
    let holds = |it: &&Pause| it.cluster.as_deref().is_none_or(|it| Some(it) == cluster);
    let pause = pauses.iter().find(holds);
    let mut until = Vec::new();
    if report.nobody_leads() {
        until.push("a control plane leads".to_owned());
    }
    if let Some(pause) = pause {
        until.push(match pause.until {
            Some(until) => {
                let until = clock(until, report.read);
                format!("the pause ends at {until}, or somebody resumes movement before")
            }
            None => "somebody resumes movement (the pause has no end of its own)".to_owned(),
        });
    }
    let pace = &report.pace;
    if pace.band == Band::Stopped {
        until.push(format!(
            "fewer clusters have failed: {} of {} have, and at most {} may",
            pace.failed, pace.counted, pace.may_fail
        ));
    }
    // An obstacle for all clusters is not shown as that of one.
    let own = pause.and_then(|it| it.cluster.as_deref());
    let own = own.filter(|_| until.len() == 1);
    (!until.is_empty()).then(|| Halt {
        from: own.map_or_else(String::new, |it| format!(" out of {it}")),
        until: until.join(", and until "),
    })
}

/// Notes what happens next to each workload that waits and in each cluster that is not well or
/// drained, and returns what does in the fleet.
pub(super) fn next(report: &mut Report, pauses: &[Pause]) -> Next {
    let in_line = report.waiting.iter();
    let in_line = in_line.filter(|it| it.reason == WAITING_FOR_RATE).count();
    let applications = report.applications.iter_mut();
    for waiting in report.waiting.iter_mut().chain(applications) {
        waiting.next = of_workload(waiting, in_line);
    }
    let not_well = report.not_well.iter().map(|it| it.name.as_str());
    let not_well: Vec<Next> = not_well.map(|it| of(report, pauses, it)).collect();
    let ordered = report.ordered.iter().map(|it| it.name.as_str());
    let ordered: Vec<Next> = ordered.map(|it| of(report, pauses, it)).collect();
    for (cluster, next) in report.not_well.iter_mut().zip(not_well) {
        cluster.next = next;
    }
    for (cluster, next) in report.ordered.iter_mut().zip(ordered) {
        cluster.next = next;
    }
    of_fleet(report, pauses)
}

/// Returns what becomes of a workload that waits by time alone, beside so many `in_line` for the
/// pace.
fn of_workload(waiting: &Waiting, in_line: usize) -> Option<Next> {
    let (words, seconds) = match (waiting.at_most_seconds, waiting.stops_seconds) {
        (Some(seconds), _) => {
            let words = match waiting.reason.as_str() {
                WAITING_FOR_RATE if in_line > 1 => {
                    let words = format!(
                        "has left at the latest, as one of {in_line} whose order is not known here"
                    );
                    return Some(Next::at(words, seconds));
                }
                WAITING_FOR_RATE => "its turn has come, at the latest",
                WAITING_FOR_FENCE => "starts elsewhere",
                _ => "may leave",
            };
            (words, seconds)
        }
        (None, Some(0)) => return Some("its copy has stopped, and it stays down".into()),
        (None, Some(seconds)) => ("its copy stops at the latest, and it stays down", seconds),
        (None, None) => return None,
    };
    Some(Next::at(words, seconds))
}

/// Returns what happens next in a cluster.
fn of(report: &Report, pauses: &[Pause], cluster: &str) -> Next {
    let found = report.not_well.iter().find(|it| it.name == cluster);
    let is_drained = report.drained().any(|it| it.name == cluster);
    let here = |it: &&Waiting| cluster_of(&it.message) == Some(cluster);
    let waiting: Vec<&Waiting> = report.waiting.iter().filter(here).collect();
    let fates = found.map(|it| &it.workloads);
    let has_to_move = !waiting.is_empty() || fates.is_some_and(|it| it.staying > 0);
    if report.taints_ignored {
        return format!("no taint moves anything, because {UNJUDGED}").into();
    }
    if report.failover == Some(false) && !is_drained {
        return "nothing moves, because failover is off".into();
    }
    if let Some(halt) = halt(report, pauses, Some(cluster)).filter(|_| has_to_move) {
        return halt.next(report, Some(cluster));
    }
    if let Some(seconds) = found.and_then(|it| it.next_taint_seconds) {
        return Next::at(
            format!("{cluster} gets a taint by which workloads leave"),
            seconds,
        );
    }
    if let Some(seconds) = found.and_then(|it| it.first_leaves_seconds) {
        return Next::at(format!("the first workload may leave {cluster}"), seconds);
    }
    let mut ordered = report.ordered.iter();
    let fault = ordered
        .find(|it| it.name == cluster)
        .and_then(|it| it.fault.as_ref());
    if let Some(fault) = fault.filter(|_| !waiting.is_empty()) {
        return format!("nothing leaves {cluster}: {fault}").into();
    }
    if !waiting.is_empty() {
        return of_waiting(&waiting, cluster);
    }
    let stranded: usize = fates.map_or(0, |it| it.stranded.values().sum());
    if stranded > 0 {
        let who = count(stranded, "workload");
        let whom = either(stranded, "it", "them");
        return format!(
            "{who} cannot leave {cluster} until the cause that keeps {whom} there is fixed"
        )
        .into();
    }
    let starting = fates.map_or(0, |it| it.starting);
    if starting > 0 {
        let verb = either(starting, "becomes", "become");
        let who = count(starting, "workload");
        return format!("{who} {verb} healthy elsewhere; when is not known").into();
    }
    let mut leaving = report.moving.iter();
    if leaving.any(|it| it.from == cluster) {
        return format!("old copies leave {cluster} when the new ones are healthy").into();
    }
    let mut old = report.old_copies.iter().flatten();
    match old.find(|it| it.cluster == cluster).map(|it| it.state) {
        Some(None) => return format!("the old copies in {cluster} are removed").into(),
        Some(Some(_)) => {
            return format!(
                "the old copies in {cluster} go when it is ready again; when is not known"
            )
            .into();
        }
        None => {}
    }
    let untainted = found.and_then(|it| it.untainted_seconds);
    match (found, untainted) {
        _ if is_drained => format!("nothing goes to {cluster} before undrain").into(),
        (Some(it), _) if it.ready != "True" => {
            format!("nothing until {cluster} is ready again").into()
        }
        (_, Some(seconds)) if !report.nobody_leads() => Next::at(
            format!("the last taint of {cluster} goes, if it stays ready"),
            seconds,
        ),
        _ => "nothing".into(),
    }
}

/// Returns what becomes of workloads that wait in a cluster and that nothing halts.
fn of_waiting(waiting: &[&Waiting], cluster: &str) -> Next {
    let latest = waiting.iter().filter_map(|it| it.at_most_seconds).max();
    let is_fenced = waiting.iter().all(|it| it.reason == WAITING_FOR_FENCE);
    let who = match waiting {
        [only] => only.workload.clone(),
        more => count(more.len(), "workload"),
    };
    let (verb, whose) = match waiting {
        [_] => ("is", "its copy"),
        _ => ("are", "the last of their copies"),
    };
    match latest {
        Some(seconds) if is_fenced => Next::at(
            format!(
                "{who} {verb} started elsewhere and not before: only then {whose} in {cluster} has surely stopped"
            ),
            seconds,
        ),
        Some(seconds) => Next::at(
            format!("the last workload has left {cluster}, at the latest"),
            seconds,
        ),
        None => {
            let reasons: BTreeSet<&str> = waiting.iter().map(|it| it.reason.as_str()).collect();
            let reasons = reasons.into_iter().map(|it| {
                let (one, more) = verbs(it);
                if waiting.len() == 1 { one } else { more }
            });
            format!("{who} {}", reasons.collect::<Vec<_>>().join(" or ")).into()
        }
    }
}

/// Returns what happens next in the fleet.
fn of_fleet(report: &Report, pauses: &[Pause]) -> Next {
    if report.is_refused() {
        return "not known".into();
    }
    if report.is_blind {
        return "not known; while the control plane cannot reach the fleet API either, nothing moves"
            .into();
    }
    if let Some(halt) = halt(report, pauses, None).filter(|_| !report.waiting.is_empty()) {
        return halt.next(report, None);
    }
    let mut all: Vec<&Next> = report.not_well.iter().map(|it| &it.next).collect();
    all.extend(report.drained().map(|it| &it.next));
    let first = report
        .not_well
        .iter()
        .filter_map(|it| it.first_leaves_seconds)
        .min();
    let timed = all.iter().filter(|it| it.seconds.is_some());
    let are_timed = report.waiting.iter().all(|it| it.at_most_seconds.is_some());
    // The pace is one for all: of what waits for it the last is the one to know.
    let next = match (timed.clone().max_by_key(|it| it.seconds), first, all.len()) {
        (Some(last), None, 2..) if report.waiting.len() > 1 && are_timed => {
            let number = report.waiting.len();
            Some(Next {
                words: format!(
                    "the last of {number} workloads that wait has been placed elsewhere, at the latest"
                ),
                ..(*last).clone()
            })
        }
        _ => {
            let soonest = timed.min_by_key(|it| it.seconds);
            soonest.or_else(|| all.first()).map(|it| (*it).clone())
        }
    };
    let backs = report.left.iter().filter_map(|it| it.next(report));
    let backs: Vec<Next> = backs.collect();
    match (next, &backs[..]) {
        (Some(next), []) => next,
        (Some(next), [back, ..]) => Next {
            words: format!("{}; {}", next.words, back.words),
            // A time that is shown belongs to the first part.
            ..next
        },
        (None, [only]) => only.clone(),
        (None, [first, more @ ..]) => Next {
            words: format!(
                "{}; and the same of {}",
                first.words,
                count(more.len(), "more cluster")
            ),
            ..first.clone()
        },
        (None, []) if !report.moving.is_empty() => {
            let from: BTreeSet<&str> = report.moving.iter().map(|it| it.from.as_str()).collect();
            let from: Vec<String> = from.into_iter().map(str::to_owned).collect();
            let from = listed(&from, 3);
            format!("old copies leave {from} when the new ones are healthy").into()
        }
        (None, []) if !report.applications.is_empty() => {
            let all = report.applications.iter();
            let timed = all.filter_map(|it| Some((it.at_most_seconds?, &it.workload)));
            match timed.min() {
                Some((seconds, workload)) => Next::at(
                    format!("{workload} may leave the cluster in which it fails"),
                    seconds,
                ),
                None => "what fails stays where it is; until when is not known".into(),
            }
        }
        (None, []) if !report.held_back.is_empty() => {
            let number = report.held_back.len();
            let (who, verb) = (count(number, "workload"), either(number, "starts", "start"));
            format!("{who} {verb} when nothing holds the new copies back; when is not known").into()
        }
        (None, []) if report.held_moves.count > 0 => {
            let number = report.held_moves.count;
            let (who, verb) = (count(number, "workload"), either(number, "is", "are"));
            format!("{who} {verb} placed anew when nothing holds that back; when is not known")
                .into()
        }
        (None, []) => match &report.kept[..] {
            [] => "nothing moves or waits".into(),
            [only] => format!(
                "the old copy of {} in {} {UNTIL_RELEASED}",
                only.workload, only.from
            )
            .into(),
            more => format!(
                "{} old copies stay until suppressDeletion of their eviction tasks is set to false",
                more.len()
            )
            .into(),
        },
    }
}

impl super::Left {
    /// Returns what becomes of workloads that left a cluster; `None` while it is not ready and they
    /// stay where they are.
    fn next(&self, report: &Report) -> Option<Next> {
        let Self {
            cluster,
            returning,
            staying,
            first_seconds,
            after_seconds,
            barred,
        } = self;
        let is_ready = !report.not_well.iter().any(|it| it.name == *cluster);
        let order = report.ordered.iter().find(|it| it.name == *cluster);
        let who = count(*returning, "workload");
        let verb = either(*returning, "returns", "return");
        match (*returning, first_seconds) {
            (0, _) if is_ready && order.is_none() && *staying > 0 => {
                let who = count(*staying, "workload");
                let verb = either(*staying, "left", "that left");
                let stays = either(*staying, "and stays where it is", "stay where they are");
                let why = barred.unwrap_or("no policy asks for failback");
                Some(format!("{who} {verb} {cluster} {stays}: {why}").into())
            }
            (0, _) => None,
            (_, Some(0)) => {
                Some(format!("{who} {verb} to {cluster} as the pace and room allow").into())
            }
            (_, Some(seconds)) => Some(Next::at(
                format!("{who} {verb} to {cluster}, at the earliest"),
                *seconds,
            )),
            (_, None) => {
                let after = after_seconds
                    .map_or_else(|| "a while".to_owned(), |it| format!("at least {it} s"));
                let words = if order.is_some_and(Ordered::is_drained) {
                    format!(
                        "after undrain, when {cluster} has been healthy for {after}, {who} {verb}"
                    )
                } else {
                    format!("{who} {verb} to {cluster} when it has been healthy for {after}")
                };
                Some(words.into())
            }
        }
    }
}
