//! What a notice says: the data of a CloudEvent, and the sentence that an operator reads.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_shared::api::failover_record::{
    Cause, CauseType, Failover, FailoverSpec, FailoverStatus, FailoverWorkload, Subject, Target,
};
use muster_shared::check::first_of;
use muster_shared::k8s::Time;
use muster_shared::text;
use serde::Serialize;
use serde_json::{Value, json};

use super::due::{Notice, severity, staying};
use crate::settings::Settings;
use crate::settings::notice_receivers::{Phase, Severity};

/// Prefix of the types of the events.
const TYPE: &str = "com.muster.failover.";
/// Workloads, clusters or failovers that a notice names at most; all are counted.
pub const MOST_NAMES: usize = 10;
/// Bytes of the longest explanation of a cause that a sentence quotes.
const LONGEST_CAUSE: usize = 300;

/// Notice with all that formats show of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Identity, the same however often it is sent.
    pub id: String,
    /// Type of the CloudEvent.
    #[serde(rename = "type")]
    pub kind: String,
    /// Fleet that the event is about.
    pub source: String,
    /// Cluster that workloads had to leave.
    pub subject: String,
    /// Time of the moment.
    pub time: Timestamp,
    /// Content: the sentence, the link, the command, and what they are about.
    pub data: Value,
}

impl Event {
    /// Returns a text of the content.
    pub fn text(&self, field: &str) -> &str {
        self.data[field].as_str().unwrap_or_default()
    }
}

/// Returns the event of a notice. `now` dates what the record gives no time of.
pub fn event(settings: &Settings, record: &Failover, notice: &Notice, now: Timestamp) -> Event {
    let (name, cluster) = (record.name_any(), &record.spec.cluster);
    let uid = record.uid().unwrap_or_else(|| name.clone());
    let default = FailoverStatus::default();
    let status = record.status.as_ref().unwrap_or(&default);
    let phase = notice.phase.name();
    let link = match settings.notice_page_url.as_str() {
        "" => String::new(),
        page => format!("{page}#failover/{name}"),
    };
    let moved = status
        .moves
        .iter()
        .map(|it| named(&it.workload, "to", &it.to));
    let stranded = status.stranded.iter();
    let stranded = stranded.map(|it| named(&it.workload, "reason", &it.reason));
    let data = json!({
        "phase": phase,
        "number": notice.number,
        "severity": severity(status).name(),
        "sentence": sentence(record, status, notice),
        "link": link,
        "command": format!("kubectl muster history {name}"),
        "failover": name,
        "cluster": cluster,
        "state": status.state,
        "cause": status.cause,
        "since": record.spec.start_time,
        "times": status.times,
        "relapses": status.relapses,
        "workloads": status.workloads,
        "targets": status.targets.iter().take(MOST_NAMES).collect::<Vec<_>>(),
        "moved": moved.take(MOST_NAMES).collect::<Vec<_>>(),
        "stranded": stranded.take(MOST_NAMES).collect::<Vec<_>>(),
        "strandedReasons": status.stranded_reasons,
    });
    Event {
        id: format!("{uid}-{phase}-{}", notice.number),
        kind: format!("{TYPE}{phase}"),
        source: settings.notice_source.clone(),
        subject: cluster.clone(),
        time: notice.time.unwrap_or(now),
        data,
    }
}

/// Returns the event in place of those that were left out, because too many came at a time. Its
/// content has the fields of the others, too.
pub fn left_out(
    settings: &Settings,
    records: &[Arc<Failover>],
    id: String,
    now: Timestamp,
) -> Event {
    let status = records.iter().filter_map(|it| it.status.as_ref());
    let weight = status.map(severity).max().unwrap_or(Severity::Info);
    let first = || records.iter().take(MOST_NAMES);
    let names: Vec<String> = first().map(|it| it.name_any()).collect();
    let clusters: Vec<&str> = first().map(|it| it.spec.cluster.as_str()).collect();
    let subject = first_of(&clusters, records.len());
    let sentence = format!(
        "Notices of {} were left out, because more came in a minute than this receiver takes: \
         {subject}.",
        counted(records.len(), "failover"),
    );
    let blank = Failover::new("", FailoverSpec::default());
    let notice = Notice {
        phase: Phase::Began,
        number: 1,
        time: Some(now),
    };
    let mut event = event(settings, &blank, &notice, now);
    let content = json!({
        "phase": "left-out",
        "number": records.len(),
        "severity": weight.name(),
        "sentence": sentence,
        "link": settings.notice_page_url,
        "command": "kubectl muster history",
        "cluster": subject,
        "failovers": names,
        "clusters": clusters,
    });
    if let (Some(data), Value::Object(content)) = (event.data.as_object_mut(), content) {
        data.extend(content);
    }
    Event {
        id,
        kind: format!("{TYPE}left-out"),
        subject,
        ..event
    }
}

fn named(workload: &FailoverWorkload, field: &str, value: &str) -> Value {
    json!({
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        field: value,
    })
}

/// Returns a number of things in words.
fn counted(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}"),
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

fn workloads(number: u32) -> String {
    counted(number as usize, "workload")
}

fn sentence(record: &Failover, status: &FailoverStatus, notice: &Notice) -> String {
    let cluster = &record.spec.cluster;
    let counts = &status.workloads;
    let (moved, affected) = (workloads(counts.moved), workloads(counts.affected));
    let verb = if counts.moved > 1 { "have" } else { "has" };
    match notice.phase {
        Phase::Began => {
            let again = if notice.number > 1 { " again" } else { "" };
            let since = notice
                .time
                .or_else(|| time(record.spec.start_time.as_ref()));
            let since = since.map_or_else(String::new, |it| format!(" since {it}"));
            let cause = cause(&record.spec.subject, cluster, &status.cause, again);
            format!("{cause}{since}. The cluster has {affected}.")
        }
        Phase::Held => {
            let mut reasons = Vec::new();
            if counts.held_now > 0 {
                reasons.push(format!(
                    "{} held, because too many clusters have failed or movement is paused",
                    counts.held_now
                ));
            }
            if counts.stranded_now > 0 {
                let known = status.stranded_reasons.iter().map(|it| it.reason.as_str());
                let known: Vec<_> = known.collect();
                reasons.push(format!(
                    "{} cannot leave ({})",
                    counts.stranded_now,
                    known.join(", ")
                ));
            }
            let stay = staying(counts);
            let verb = if stay > 1 { "have" } else { "has" };
            format!(
                "{} {verb} to leave cluster {cluster} and cannot yet: {}.",
                workloads(stay),
                reasons.join("; ")
            )
        }
        Phase::Resumed => format!(
            "No workload is kept in cluster {cluster} any more; {moved} of {} {verb} moved.",
            counts.affected
        ),
        Phase::Healed => format!(
            "All that moved from cluster {cluster} is healthy elsewhere: {moved}{}.",
            targets(status)
        ),
        Phase::Recovered => format!(
            "{}; {moved} {verb} moved, healthy elsewhere: {}.",
            over(cluster, &status.cause.kind),
            counts.healthy
        ),
        Phase::Ended => {
            let (begun, ended) = (time(record.spec.start_time.as_ref()), notice.time);
            let lasted = begun.zip(ended).map_or_else(String::new, |(begun, ended)| {
                let seconds = ended.duration_since(begun).as_secs();
                format!(" after {} min {} s", seconds / 60, seconds % 60)
            });
            let stuck = match counts.stranded {
                0 => String::new(),
                number => format!("; {} had nowhere to go for a time", workloads(number)),
            };
            format!(
                "The failover of cluster {cluster} ended{lasted}: {moved} moved{}{stuck}.",
                targets(status)
            )
        }
    }
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|it| it.0)
}

/// Returns where workloads went, in brackets.
fn targets(status: &FailoverStatus) -> String {
    let mut targets: Vec<&Target> = status.targets.iter().collect();
    targets.sort_by_key(|it| std::cmp::Reverse(it.workloads));
    let names = targets.iter().take(MOST_NAMES);
    let names: Vec<_> = names
        .map(|it| format!("{} {}", it.workloads, it.cluster))
        .collect();
    match targets.len() {
        0 => String::new(),
        all => format!(" ({})", first_of(&names, all)),
    }
}

/// Returns that a cause which concerned a whole cluster is over.
fn over(cluster: &str, kind: &CauseType) -> String {
    let how = match kind {
        CauseType::Drain => "is not drained any more",
        CauseType::Taint | CauseType::TaintPolicy => "has lost its taint",
        _ => "is well again",
    };
    format!("Cluster {cluster} {how} or left the fleet")
}

fn cause(subject: &Subject, cluster: &str, cause: &Cause, again: &str) -> String {
    let why = cause.message.trim().trim_end_matches('.');
    let why = text::cut(why, LONGEST_CAUSE, "...");
    let why = Some(why).filter(|it| !it.is_empty());
    let why = why.map_or_else(String::new, |it| format!(" ({it})"));
    if *subject == Subject::Applications {
        return format!("Applications in cluster {cluster} are unhealthy{again}{why}");
    }
    match (&cause.kind, &cause.command) {
        (CauseType::Drain, Some(command)) => {
            format!("Cluster {cluster} is drained{again} by `{command}`{why}")
        }
        (CauseType::Drain, None) => format!("Cluster {cluster} is drained{again}{why}"),
        (CauseType::ClusterUnreachable, _) => {
            format!("Cluster {cluster} is silent{again}{why}")
        }
        (CauseType::ClusterNotReady, _) => format!("Cluster {cluster} is not ready{again}{why}"),
        _ => format!("Workloads have to leave cluster {cluster}{again} because of a taint{why}"),
    }
}

#[cfg(test)]
pub mod tests;
