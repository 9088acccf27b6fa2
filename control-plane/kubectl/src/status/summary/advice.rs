//! What the summary advises: what somebody should do now, with a command to copy.

use serde::Serialize;

use super::super::decide::{NotWell, Ordered, Report, Waiting};
use super::{Lost, Severity};

/// Clusters that a command names at most.
const NAMED: usize = 5;

/// What to do.
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

const DESCRIBE: &str = "kubectl describe cluster";

/// Returns what to do: what is most urgent, and one thing only.
pub(super) fn advice(report: &Report, severity: Severity, lost: Lost) -> Advice {
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
    let down: Vec<&NotWell> = report
        .not_well
        .iter()
        .filter(|it| it.ready != "True")
        .collect();
    if !down.is_empty() && report.clusters == Some(down.len()) && down.len() > 1 {
        return Advice::new(
            "look at the network of the fleet API first (address, DNS, certificate, load balancer), and leave the clusters as they are",
            "kubectl muster check",
        );
    }
    if !down.is_empty() && report.failover == Some(false) {
        let words = "bring the cluster back; workloads move by themselves only if the control plane runs with --feature-gates=Failover=true";
        return Advice::new(words, format!("{DESCRIBE} {}", down[0].name));
    }
    if !report.paused.is_empty()
        && (lost != Lost::No || !report.waiting.is_empty() || !down.is_empty())
    {
        let words = "ask whoever paused movement whether it may go on; this lets it";
        return Advice::new(words, resume(report));
    }
    if !down.is_empty() && report.pace.band == "stopped" {
        let names = down.iter().take(NAMED).map(|it| it.name.as_str());
        let names = names.collect::<Vec<_>>().join(",");
        let words = "look for the common cause and bring clusters back; only if they are dead and the others have room, raise --unhealthy-cluster-threshold. What would move then";
        return Advice::new(words, format!("kubectl muster simulate --lost {names}"));
    }
    let of_stranded = |it: &Waiting, words: &str| Advice::new(words, explain(&it.workload));
    if let Some(first) = report.stranded.first() {
        return of_stranded(
            first,
            "find out what keeps workloads from leaving, such as room or affinity, and mend it",
        );
    }
    if let Some(first) = report.unplaced.first() {
        return of_stranded(first, "make room, or widen the policy of what has no place");
    }
    if let [first, ..] = &down[..] {
        return of_lost(report, &down, first);
    }
    if let Some(first) = report.not_well.first() {
        return Advice::new(
            "find out why the cluster needs attention",
            format!("{DESCRIBE} {}", first.name),
        );
    }
    if let Some(first) = report.without_dependencies.first() {
        return of_stranded(
            first,
            "bring what the workload refers to, where it is placed",
        );
    }
    if !report.expires.is_empty() || report.may_be_paused || !report.leader.acts {
        return Advice::new("look at what is not right", "kubectl muster check");
    }
    at_leisure(report, severity)
}

/// Returns what to do about clusters that are lost while nothing else is in the way.
fn of_lost(report: &Report, down: &[&NotWell], first: &NotWell) -> Advice {
    let (who, dead) = match down.len() {
        1 => (first.name.clone(), "it is"),
        more => (format!("{more} clusters"), "they are"),
    };
    let is_old = report
        .old_copies
        .iter()
        .flatten()
        .any(|it| down.iter().any(|down| down.name == it.cluster));
    let harm = if is_old {
        "; if two running copies of one workload do harm, switch the old ones off there"
    } else {
        ""
    };
    let wait = if report.waiting.is_empty() {
        ""
    } else {
        "let it go on, and "
    };
    let words = format!(
        "{wait}find out whether {who} can be reached from elsewhere, or whether {dead} dead{harm}"
    );
    let command = match down.len() {
        1 => format!("{DESCRIBE} {}", first.name),
        _ => "kubectl muster get clusters".to_owned(),
    };
    Advice::new(words, command)
}

/// Returns what may be done at leisure, or nothing.
fn at_leisure(report: &Report, severity: Severity) -> Advice {
    if !report.paused.is_empty() {
        return Advice::new("nothing; when the work is done", resume(report));
    }
    if let Some(first) = report.ordered.first() {
        return Advice::new("nothing; when the work there is done", undone(first));
    }
    if let Some(left) = report
        .left
        .iter()
        .find(|it| it.staying > 0 && it.returning == 0)
    {
        let words = "nothing; to bring back at leisure what left";
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

/// Returns the command that ends the first pause.
fn resume(report: &Report) -> String {
    let cluster = report.paused_clusters.first();
    let cluster = cluster.and_then(Option::as_ref);
    let whose = cluster.map_or_else(String::new, |it| format!(" {it}"));
    format!("kubectl muster resume{whose}")
}

/// Returns the command that ends an order.
fn undone(order: &Ordered) -> String {
    let verb = if order.order == "Cordoned" {
        "uncordon"
    } else {
        "undrain"
    };
    format!("kubectl muster {verb} {}", order.name)
}

/// Returns the command that explains a workload, which is named as `Deployment default/web`.
fn explain(workload: &str) -> String {
    let (kind, name) = workload.split_once(' ').unwrap_or(("", workload));
    let kind = kind.to_lowercase();
    match name.split_once('/') {
        Some((namespace, name)) => format!("kubectl muster explain {kind}/{name} -n {namespace}"),
        None => format!("kubectl muster explain {kind}/{name}"),
    }
}
