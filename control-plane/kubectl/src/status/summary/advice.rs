//! What the summary advises: what somebody should do now, with a command to copy.

mod copies;
mod orders;
mod pauses;

use muster_shared::names::condition::DATA_NOT_READY;
use std::fmt;

use muster_control_plane::fleet::budget::rate::Band;
use muster_control_plane::movement::eviction::explain::{FAILED, WAITING};
use serde::Serialize;

pub(super) use self::copies::stop;
use self::orders::{mend, undone};
use self::pauses::{Whose, effect, in_the_way, resume};
use super::super::decide::{NotWell, Report, Waiting};
use super::clusters::{common_region, is_network};
use super::{Lost, Severity, either, is_emptied, span_of};
use crate::table::argument;

/// Clusters, or copies, that a command names at most; a fleet of more never stops by default.
const NAMED: usize = 10;

/// Advice to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct Advice {
    pub words: String,
    /// Command that does it, or that shows more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Advice {
    fn new(words: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            command: Some(command.into()),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        match &self.command {
            Some(command) => write!(f, ": {command}"),
            None => Ok(()),
        }
    }
}

const DESCRIBE: &str = "kubectl describe cluster";

/// Returns what to do: what is most urgent, and one thing only.
pub(super) fn advice(report: &Report, severity: Severity, lost: Lost) -> Advice {
    if report.is_refused() {
        let words = "ask for the ClusterRole muster:view, or use other credentials; who you are to the fleet API";
        return Advice::new(words, "kubectl auth whoami");
    }
    if report.is_blind {
        return Advice::new(
            "find out why the fleet API does not answer here (its server, the network, your credentials)",
            "kubectl muster check",
        );
    }
    if report.nobody_leads() {
        return Advice::new(
            "find out on the host cluster why no control plane runs",
            "kubectl -n muster-system get pods",
        );
    }
    let down: Vec<&NotWell> = report.down().collect();
    if is_network(report) {
        let deadline = saving(report).map_or_else(String::new, |it| format!(", for {it}"));
        let words = format!(
            "every cluster is silent, which points at what they share: repair the network of the fleet API (address, which is {} here, DNS, certificate, load balancer){deadline}; leave the clusters as they are, and look into one only if it stays silent when others are back; to see what is wrong",
            report.server
        );
        return Advice::new(words, "kubectl muster check");
    }
    let needs = match report.failover {
        _ if report.taints_ignored => {
            Some("the controller taintmanager (--controllers, --enable-taint-manager)")
        }
        Some(false) => Some("--feature-gates=Failover=true"),
        _ => None,
    };
    if let Some(needs) = needs.filter(|_| !down.is_empty()) {
        let clusters = either(down.len(), "cluster", "clusters");
        let words = format!(
            "bring the {clusters} back; workloads move by themselves only if the control plane runs with {needs}"
        );
        return Advice::new(words, format!("{DESCRIBE} {}", down[0].name));
    }
    if let Some(whose) = in_the_way(report, &down, lost) {
        let first = saving(report).map(|it| format!("bring back {it}"));
        let effect = effect(report, whose);
        let ask = format!("ask who paused movement whether it may go on; to resume it now{effect}");
        let steps = first.into_iter().chain([ask]);
        return Advice::new(numbered(steps), resume(whose));
    }
    if !down.is_empty() && report.pace.band == Band::Stopped {
        return of_stopped(report, &down);
    }
    of_workloads(report, &down).unwrap_or_else(|| at_leisure(report, severity))
}

/// Returns what to do where nothing stops all movement, for what is down or waits for somebody;
/// `None` where nothing does.
fn of_workloads(report: &Report, down: &[&NotWell]) -> Option<Advice> {
    if report.clusters == Some(0) {
        return Some(Advice::new(
            "let a first cluster join",
            "kubectl muster token create --cluster-name member1 --print-helm-command",
        ));
    }
    let of_stranded = |it: &Waiting, words: &str| Advice::new(words, explain(&it.workload));
    if let Some(first) = report.stranded.first() {
        return Some(of_stranded(
            first,
            "find out what keeps workloads from leaving, such as room or affinity, and fix it",
        ));
    }
    let mut waiting = report.waiting.iter();
    if let Some(first) = waiting.find(|it| it.reason == FAILED) {
        return Some(of_stranded(
            first,
            "find out why the eviction cannot be written, which is tried again",
        ));
    }
    if let Some(first) = report.unplaced.first() {
        return Some(of_stranded(
            first,
            "make room, or widen the policies of workloads that no cluster fits",
        ));
    }
    let mut held = report.held_back.iter();
    if let Some(first) = held.find(|it| it.reason == DATA_NOT_READY) {
        return Some(of_stranded(
            first,
            "find out why the data of the workload is not ready, and repair its replication",
        ));
    }
    if let [first, ..] = down {
        return Some(of_lost(report, down, first));
    }
    if let Some(first) = report.not_well.first() {
        return Some(Advice::new(
            "find out why the cluster needs attention",
            format!("{DESCRIBE} {}", first.name),
        ));
    }
    let mut stuck = report.stuck();
    if let Some(first) = stuck.find(|it| !WAITING.contains(&it.reason.as_str())) {
        return Some(of_stranded(
            first,
            "find out what keeps the failing application from leaving, and why it fails",
        ));
    }
    if let Some(first) = report.without_dependencies.first() {
        return Some(of_stranded(
            first,
            "propagate what the workload refers to, to the same clusters",
        ));
    }
    if let Some(first) = report.unpublished.first() {
        return Some(of_stranded(
            first,
            "see what keeps the host name from being published, and change or delete that",
        ));
    }
    if let Some(first) = report.service.without.names.first() {
        return Some(Advice::new(
            "if that lasts, find out why no copy is healthy",
            explain(first),
        ));
    }
    if let Some(advice) = mend(report) {
        return Some(advice);
    }
    if !report.expires.is_empty() || report.may_be_paused || !report.leader.acts {
        return Some(Advice::new("see what is wrong", "kubectl muster check"));
    }
    None
}

/// Returns what to do about clusters that are lost while nothing else is in the way.
fn of_lost(report: &Report, down: &[&NotWell], first: &NotWell) -> Advice {
    let (who, runs, dead) = match down.len() {
        1 => (first.name.clone(), "runs", "is"),
        more => (format!("the {more} clusters"), "run", "are"),
    };
    let common = common_region(down).map_or_else(String::new, |(region, here)| {
        format!("look first for what the {here} in {region} have in common, then ")
    });
    let wait = match (report.waiting.is_empty(), common.is_empty()) {
        (true, _) => "",
        (false, true) => "let it go on, and ",
        (false, false) => "let it go on; ",
    };
    let words = format!(
        "{wait}{common}find out with direct access (kubeconfig, the provider's console) whether {who} {runs} or {dead} dead"
    );
    let names = down.iter().map(|it| it.name.as_str());
    let (words, command) = match down.len() {
        1 => (
            format!("{words}; what is known here"),
            format!("{DESCRIBE} {}", first.name),
        ),
        2..=NAMED => (
            format!("{words}; what is known here"),
            format!(
                "kubectl muster get clusters {}",
                names.collect::<Vec<_>>().join(" ")
            ),
        ),
        _ => (
            format!("{words}; to list those that are not ready"),
            "kubectl muster get clusters | grep -v ' True[ ,]'".to_owned(),
        ),
    };
    Advice::new(words, command)
}

/// Returns what to do where too many clusters have failed for anything to move.
fn of_stopped(report: &Report, down: &[&NotWell]) -> Advice {
    let pace = &report.pace;
    let percent = (100 * pace.failed).div_ceil(pace.counted.max(1));
    let enough = format!("{}.{:02}", percent / 100, percent % 100);
    let names = down.iter().take(NAMED).map(|it| it.name.as_str());
    let names = names.collect::<Vec<_>>().join(",");
    let need = pace.failed - pace.may_fail;
    let deadline = saving(report).map_or_else(String::new, |it| format!(" ({it})"));
    // The advice is another one where all are silent.
    let others = if report.clusters > Some(down.len()) {
        "others are heard, so that the fleet API can be reached, and these clusters or their own network are at fault: "
    } else {
        ""
    };
    let back = format!(
        "{others}look for the common cause and bring back at least {need} of them, by which workloads may move again{deadline}"
    );
    let raise = format!(
        "only if they are dead, since workloads that still run there would run twice, set eviction.unhealthyClusterThreshold of the chart (muster-control-plane --unhealthy-cluster-threshold) from {} to {enough} or more: {} of {} have failed. To see what would move then, which changes nothing",
        pace.threshold, pace.failed, pace.counted
    );
    // Flags take the place of those that the leader publishes, failover included.
    let flags = report.flags.iter().map(|it| quoted(it));
    let flags = flags.chain([format!("--unhealthy-cluster-threshold={enough}")]);
    let flags: Vec<String> = flags.collect();
    let command = format!(
        "kubectl muster simulate --lost {names} -- {}",
        flags.join(" ")
    );
    Advice::new(numbered([back, raise].into_iter()), command)
}

/// Returns a flag as a shell takes it.
fn quoted(flag: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-=,./:_".contains(it);
    if flag.chars().all(is_plain) {
        flag.to_owned()
    } else {
        format!("'{flag}'")
    }
}

/// Returns several steps with their numbers, in the order in which they are to be taken.
fn numbered(steps: impl Iterator<Item = String>) -> String {
    let steps: Vec<String> = steps.collect();
    if let [only] = &steps[..] {
        return only.clone();
    }
    let each = (1..).zip(steps).map(|(at, it)| format!("{at}. {it}"));
    each.collect::<Vec<_>>().join("; ")
}

/// Returns the cluster that has to be back, and by when, to keep up the first workload that stops
/// itself there and may not start elsewhere.
fn saving(report: &Report) -> Option<String> {
    let held = report
        .stopping()
        .filter(|it| it.1.at_most_seconds.is_none());
    let (seconds, it) = held.min_by_key(|it| it.0)?;
    let cluster = it.clusters.first().map_or("its cluster", String::as_str);
    let left = span_of(seconds);
    Some(format!(
        "{cluster} within {left}, or {} stops there",
        it.workload
    ))
}

/// Returns what may be done without haste, or nothing.
fn at_leisure(report: &Report, severity: Severity) -> Advice {
    if let Some(first) = report.paused_clusters.first() {
        let resume = resume(Whose::of(first.as_deref()));
        return Advice::new("nothing; when the work is done", resume);
    }
    if let Some(first) = report.ordered.first() {
        let words = if is_emptied(report, first) {
            format!(
                "{} is empty, and the work there may begin; when it is done",
                first.name
            )
        } else {
            "nothing; when the work there is done".to_owned()
        };
        return Advice::new(words, undone(first));
    }
    if let Some(kept) = report.kept.first() {
        let words = format!(
            "nothing; when the old copy in {} is not needed any more, set suppressDeletion of its task (spec.gracefulEvictionTasks of the binding) to false; what is known of it",
            kept.from
        );
        return Advice::new(words, explain(&kept.workload));
    }
    if let Some(left) = report
        .left
        .iter()
        .find(|it| it.staying > 0 && it.returning == 0)
    {
        let words = "nothing; when there is time, to bring back what left";
        return Advice::new(
            words,
            format!("kubectl muster rebalance --cluster {}", left.cluster),
        );
    }
    let words = match severity {
        Severity::Well | Severity::Notice => "nothing",
        _ => "nothing now; look again when that is over",
    };
    Advice {
        words: words.to_owned(),
        command: None,
    }
}

/// Returns the command that explains a workload, which is named as `Deployment default/web`.
pub(in super::super) fn explain(workload: &str) -> String {
    format!("kubectl muster explain {}", argument(workload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_quoted_where_a_shell_would_change_it() {
        for (flag, expected) in [
            ("--resource-eviction-rate=5", "--resource-eviction-rate=5"),
            ("--controllers=*,-traffic", "'--controllers=*,-traffic'"),
        ] {
            assert_eq!(quoted(flag), expected);
        }
    }
}
