//! `kubectl muster history`: the failovers that were, and one of them with its timeline.

mod orders;

use std::fmt::Write as _;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_shared::api::failover_record::{Failover, FailoverStatus, FailoverWorkload};
use muster_shared::check::one_line;
use muster_shared::client;
use muster_shared::k8s::{Api, Client, Time};
use serde::Serialize;

use super::chosen;
use super::list;
use super::request::{call, instead};
use super::rows::{Format, Named, print};
use super::running::Running;
use super::table::{Table, passed, title};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Name of one failover (`NAME` or `failover/NAME`), which is shown with its timeline. Without
    /// it all are listed, the one whose cause began last first.
    #[arg(value_parser = name)]
    name: Option<String>,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Only failovers of this cluster. The table is followed by the last orders of people about
    /// it.
    #[arg(long, value_name = "NAME", conflicts_with = "name", value_parser = chosen::name)]
    cluster: Option<String>,
}

/// Kinds that may be before the name of a failover, as kubectl writes them.
const KIND: [&str; 3] = ["failover", "failovers", "failover.failover.muster.io"];

/// Reads the name of a failover, with its kind or without.
fn name(word: &str) -> Result<String, String> {
    chosen::behind("failover", &KIND, word)
}

/// Returns the history, or one failover.
pub(super) async fn carry_out(client: Client, options: &Options) -> anyhow::Result<String> {
    let api: Api<Failover> = Api::all(client.clone());
    if let Some(name) = &options.name {
        let step = format!("cannot get failover {name}");
        let found = call(&step, client::get_opt(&api, name)).await?;
        let Some(found) = found else {
            let all = list::all(api).await.map_err(anyhow::Error::msg)?;
            bail!("{}", unknown(name, all));
        };
        let reported = Shown::of(&found);
        return Ok(match options.output {
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&reported)?),
            Format::Yaml => serde_saphyr::to_string(&reported)?,
            Format::Name => format!("{}\n", reported.name()),
            Format::Table | Format::Wide => story(&reported) + &unrecorded(&client).await?,
        });
    }
    let mut all = list::all(api).await.map_err(anyhow::Error::msg)?;
    let orders = match &options.cluster {
        Some(name) => {
            let is_recorded = all.iter().any(|it| it.spec.cluster == *name);
            orders::table(&orders::read(&client, name, is_recorded).await?)
        }
        None => String::new(),
    };
    all.retain(|it| {
        options
            .cluster
            .as_ref()
            .is_none_or(|name| it.spec.cluster == *name)
    });
    sort(&mut all);
    let note = if options.output.is_text() {
        unrecorded(&client).await?
    } else {
        String::new()
    };
    if all.is_empty() && options.output.is_text() {
        let of = options.cluster.as_ref();
        let of = of.map_or_else(String::new, |it| format!(" of {it}"));
        return Ok(format!("No failover{of} is recorded.\n{note}{orders}"));
    }
    let reported: Vec<Shown<'_>> = all.iter().map(Shown::of).collect();
    let text = print(&reported, options.output, None, |_| table(&all))?;
    Ok(if options.output.is_text() {
        text + &note + &orders
    } else {
        text
    })
}

/// Returns a note where the control plane that leads records no failovers, nor the end of those
/// that go on; an empty text where it does.
async fn unrecorded(client: &Client) -> anyhow::Result<String> {
    let running = Running::read(client, &[]).await?;
    let why = Running::records_nothing(&running.settings);
    Ok(why.map_or_else(String::new, |it| format!("Warning: {it}\n")))
}

/// A failover and its steps in their order.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    failover: &'a Failover,
    steps: Vec<Step>,
}

/// A step of a failover.
#[derive(Debug, Serialize)]
struct Step {
    time: Timestamp,
    words: &'static str,
}

impl<'a> Shown<'a> {
    fn of(failover: &'a Failover) -> Self {
        let steps = failover.status.as_ref().map(steps);
        Self {
            failover,
            steps: steps.unwrap_or_default(),
        }
    }
}

impl Named for Shown<'_> {
    fn name(&self) -> String {
        format!("failover.failover.muster.io/{}", self.failover.name_any())
    }
}

/// Returns what is said of a failover that there is no record of.
fn unknown(name: &str, mut all: Vec<Failover>) -> String {
    sort(&mut all);
    let names: Vec<String> = all.iter().map(kube::ResourceExt::name_any).collect();
    if names.is_empty() {
        return format!("there is no failover {name:?}: none is recorded");
    }
    // A person may have meant a cluster.
    if all.iter().any(|it| it.spec.cluster == name) {
        return format!(
            "there is no failover {name:?}: write --cluster {name} for those of a cluster"
        );
    }
    format!("there is no failover {name:?}{}", instead(name, &names))
}

/// Sorts failovers by the time at which the cause began last, the latest first.
fn sort(all: &mut [Failover]) {
    let began = |it: &Failover| last(it).map(|it| it.0);
    all.sort_by(|a, b| {
        began(b)
            .cmp(&began(a))
            .then_with(|| a.name_any().cmp(&b.name_any()))
    });
}

/// Returns the time at which the cause of a failover began last.
fn last(failover: &Failover) -> Option<&Time> {
    let status = failover.status.as_ref();
    let returned = status.and_then(|it| it.returns.last()?.returned.as_ref());
    returned.or(failover.spec.start_time.as_ref())
}

fn table(all: &[Failover]) -> String {
    let mut table = Table::new([
        "WHEN",
        "LAST",
        "TIMES",
        "NAME",
        "CLUSTER",
        "CAUSE",
        "WORKLOADS",
        "MOVED",
        "HEALTHY",
        "STRANDED",
        "HELD",
        "MEDIAN",
        "95%",
        "STATE",
    ]);
    for it in all {
        let status = it.status.clone().unwrap_or_default();
        let counts = status.workloads;
        let (median, p95) = durations(&status);
        table.row([
            moment(it.spec.start_time.as_ref()),
            moment(last(it)),
            status.relapses.saturating_add(1).to_string(),
            it.name_any(),
            it.spec.cluster.clone(),
            status.cause.kind.to_string(),
            counts.affected.to_string(),
            counts.moved.to_string(),
            counts.healthy.to_string(),
            counts.stranded.to_string(),
            counts.held.to_string(),
            median,
            p95,
            status.state.to_string(),
        ]);
    }
    table.to_string()
}

fn durations(status: &FailoverStatus) -> (String, String) {
    let none = || "-".to_owned();
    let times = status.time_to_healthy.as_ref();
    times.map_or_else(
        || (none(), none()),
        |it| (passed(it.median_seconds), passed(it.p95_seconds)),
    )
}

fn moment(time: Option<&Time>) -> String {
    time.map_or_else(|| "-".to_owned(), |it| format!("{:.0}", it.0))
}

fn story(reported: &Shown<'_>) -> String {
    let failover = reported.failover;
    let status = failover.status.clone().unwrap_or_default();
    let (cause, counts) = (&status.cause, status.workloads);
    let mut text = format!(
        "{}: {} of {}, {}\n",
        failover.name_any(),
        cause.kind,
        failover.spec.cluster,
        status.state.as_str().to_lowercase(),
    );
    for (what, value) in [
        ("Cause", cause.message.clone()),
        ("Taints", cause.taints.join(", ")),
        ("Policies", cause.policies.join(", ")),
        ("Command", cause.command.clone().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            let _ = writeln!(text, "{what}: {}", one_line(&value));
        }
    }
    let _ = writeln!(
        text,
        "Workloads: {} in the cluster, {} moved, {} of them healthy elsewhere, at most {} stranded, at most {} held",
        counts.affected, counts.moved, counts.healthy, counts.stranded, counts.held
    );
    if counts.held > 0 {
        text.push_str("Held: they had somewhere to go, and too many clusters had failed (--unhealthy-cluster-threshold) or somebody had paused movement\n");
    }
    let (median, p95) = durations(&status);
    if status.time_to_healthy.is_some() {
        let _ = writeln!(
            text,
            "From the cause to healthy: median {median}, 95% within {p95}"
        );
    }
    let _ = write!(text, "\n{}", timeline(reported, &status));
    if !status.targets.is_empty() {
        let mut table = Table::new(["THEN PLACED ON", "WORKLOADS"]);
        for it in &status.targets {
            table.row([it.cluster.clone(), it.workloads.to_string()]);
        }
        if status.other_targets > 0 {
            table.row(["others".to_owned(), status.other_targets.to_string()]);
        }
        let _ = write!(text, "\n{table}");
    }
    if !status.stranded_reasons.is_empty() {
        let mut table = Table::new(["STRANDED", "WORKLOADS"]);
        for it in &status.stranded_reasons {
            table.row([it.reason.clone(), it.workloads.to_string()]);
        }
        let _ = write!(text, "\n{table}");
        for it in &status.stranded {
            let message = one_line(&it.message);
            let _ = writeln!(text, "  {}: {message}", workload(&it.workload));
        }
    }
    if !status.moves.is_empty() {
        let mut table = Table::new(["WORKLOAD", "THEN PLACED ON", "MOVED", "HEALTHY"]);
        for it in &status.moves {
            table.row([
                workload(&it.workload),
                it.to.clone(),
                moment(it.time.as_ref()),
                moment(it.healthy.as_ref()),
            ]);
        }
        let _ = write!(text, "\n{table}");
        let listed = u32::try_from(status.moves.len()).unwrap_or(u32::MAX);
        if counts.moved > listed {
            let more = counts.moved - listed;
            let why = "which the record does not name (--failover-history-entries)";
            let _ = writeln!(text, "and {more} more, {why}");
        }
    }
    text
}

/// Returns the steps of a failover in their order.
fn steps(status: &FailoverStatus) -> Vec<Step> {
    let times = &status.times;
    let steps = [
        (&times.silent_since, "last heartbeat"),
        (&times.not_ready, "the cluster is not ready"),
        (
            &times.tainted,
            "the cluster has a taint by which workloads leave",
        ),
        (
            &times.stopped,
            "copies with fencing stop there, if the agent runs",
        ),
        (&times.first_move, "the first workload is placed elsewhere"),
        (&times.last_move, "the last workload is placed elsewhere"),
        (&times.healthy, "all that moved are healthy elsewhere"),
        (&times.recovered, "the cause is over"),
        (&times.cleaned, "the last old copy is removed"),
        (&times.ended, "the failover has ended"),
    ];
    let returns = status.returns.iter().flat_map(|it| {
        [
            (&it.recovered, "the cause is over"),
            (&it.returned, "the cause returns"),
        ]
    });
    let mut steps: Vec<Step> = steps
        .into_iter()
        .chain(returns)
        .filter_map(|(time, words)| {
            let time = time.as_ref()?.0;
            Some(Step { time, words })
        })
        .collect();
    steps.sort_by_key(|it| it.time);
    steps
}

fn timeline(reported: &Shown<'_>, status: &FailoverStatus) -> String {
    let start = reported.failover.spec.start_time.as_ref().map(|it| it.0);
    let mut table = Table::new(["TIME", "AFTER", "STEP"]);
    for Step { time, words } in &reported.steps {
        let after = time.duration_since(start.unwrap_or(*time)).as_secs();
        let after = u64::try_from(after).map_or_else(|_| "-".to_owned(), passed);
        table.row([format!("{time:.0}"), after, (*words).to_owned()]);
    }
    if status.relapses > 0 {
        let times = match status.relapses {
            1 => "once".to_owned(),
            more => format!("{more} times"),
        };
        let listed = status.returns.len();
        let shown = match usize::try_from(status.relapses) {
            Ok(all) if all > listed => format!("; the table shows the last {listed}"),
            _ => String::new(),
        };
        return format!("{table}The cause returned {times}{shown}.\n");
    }
    table.to_string()
}

fn workload(it: &FailoverWorkload) -> String {
    title(&it.kind, it.namespace.as_deref(), &it.name)
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation;
    use muster_shared::self_report::LeaderReport;
    use serde_json::json;

    use super::*;
    use crate::fixtures::read;

    fn failover() -> Failover {
        read(json!({
            "metadata": { "name": "m1-20260101-000000" },
            "spec": { "cluster": "m1", "subject": "Cluster", "startTime": "2026-01-01T00:00:00Z" },
            "status": {
                "state": "Ended",
                "cause": {
                    "type": "Drain", "message": "a person drains the cluster",
                    "taints": ["failover.muster.io/drain:NoExecute"],
                    "command": "kubectl muster drain m1",
                },
                "times": {
                    "tainted": "2026-01-01T00:00:00Z", "firstMove": "2026-01-01T00:00:02Z",
                    "healthy": "2026-01-01T00:03:20Z", "ended": "2026-01-01T05:00:00Z",
                },
                "relapses": 1,
                "returns": [{ "recovered": "2026-01-01T00:01:00Z", "returned": "2026-01-01T00:02:00Z" }],
                "workloads": {
                    "affected": 3, "moved": 2, "healthy": 2, "stranded": 1, "strandedNow": 0, "held": 4,
                },
                "targets": [{ "cluster": "m2", "workloads": 2 }],
                "strandedReasons": [{ "reason": "NowhereToGo", "workloads": 1 }],
                "stranded": [{
                    "workload": { "kind": "Deployment", "namespace": "shop", "name": "pinned" },
                    "reason": "NowhereToGo", "message": "has to leave m1 and stays: no room",
                }],
                "timeToHealthy": { "medianSeconds": 20, "p95Seconds": 200, "counts": [] },
                "moves": [{
                    "workload": { "kind": "ClusterRole", "name": "web" }, "to": "m2",
                    "time": "2026-01-01T00:00:02Z",
                }],
            },
        }))
    }

    /// Returns another failover that began at a time and of which nothing is reported yet.
    fn later(began: &str) -> Failover {
        let mut later = failover();
        later.metadata.name = Some("m2-later".to_owned());
        later.spec.start_time = Some(Time(began.parse().unwrap()));
        later.status = None;
        later
    }

    #[test]
    fn a_failover_is_named_as_the_list_of_names_prints_it() {
        let printed = Shown::of(&failover()).name();
        for word in [
            "m1-20260101-000000",
            "failover/m1-20260101-000000",
            &printed,
        ] {
            assert_eq!(name(word).unwrap(), "m1-20260101-000000");
        }
        for word in ["cluster/m1", "failover/"] {
            assert!(name(word).is_err(), "{word}");
        }
    }

    #[test]
    fn the_list_has_one_line_for_each_failover_the_latest_first() {
        let mut all = vec![failover(), later("2026-02-01T00:00:00Z")];
        sort(&mut all);
        let text = table(&all);
        let lines = text.lines().skip(1);
        let lines = lines.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines: Vec<String> = lines.collect();
        assert!(lines[0].starts_with("2026-02-01T00:00:00Z 2026-02-01T00:00:00Z 1 m2-later "));
        let first = "2026-01-01T00:00:00Z 2026-01-01T00:02:00Z 2 m1-20260101-000000 m1 Drain 3 2 2 1 4 20s 3m20s Ended";
        assert_eq!(lines[1], first);
    }

    #[test]
    fn a_failover_whose_cause_returned_last_is_the_first_of_the_list() {
        let mut all = vec![later("2026-01-01T00:01:30Z"), failover()];
        sort(&mut all);
        assert_eq!(all[0].name_any(), "m1-20260101-000000");
    }

    #[test]
    fn one_failover_is_reported_with_its_steps_in_their_order() {
        let failover = failover();
        let text = story(&Shown::of(&failover));
        let document = json!(Shown::of(&failover));
        assert_eq!(document["spec"]["cluster"], "m1");
        let first = json!({
            "time": "2026-01-01T00:00:00Z",
            "words": "the cluster has a taint by which workloads leave",
        });
        assert_eq!(document["steps"][0], first);
        let mut rest = text.as_str();
        for part in [
            "m1-20260101-000000: Drain of m1, ended",
            "Command: kubectl muster drain m1",
            "3 in the cluster, 2 moved, 2 of them healthy elsewhere, at most 1 stranded, at most 4 held",
            "Held: they had somewhere to go",
            "median 20s, 95% within 3m20s",
            "2026-01-01T00:00:00Z   0s      the cluster has a taint",
            "2026-01-01T00:00:02Z   2s      the first workload",
            "2026-01-01T00:01:00Z   60s     the cause is over",
            "2026-01-01T00:02:00Z   2m0s    the cause returns",
            "2026-01-01T00:03:20Z   3m20s   all that moved",
            "2026-01-01T05:00:00Z   5h0m    the failover has ended",
            "The cause returned once.",
            "THEN PLACED ON   WORKLOADS\nm2               2",
            "NowhereToGo   1",
            "Deployment shop/pinned: has to leave m1 and stays: no room",
            "ClusterRole web   m2               2026-01-01T00:00:02Z   -",
            "and 1 more",
        ] {
            let at = rest
                .find(part)
                .unwrap_or_else(|| panic!("{part:?} is not in\n{text}"));
            rest = &rest[at..];
        }
    }

    #[test]
    fn what_an_agent_reports_adds_no_lines_and_controls_no_terminal() {
        let mut failover = failover();
        let status = failover.status.as_mut().unwrap();
        status.cause.message = "AgentSays: \u{1b}[2J\nWorkloads: 0".to_owned();
        status.stranded[0].message = "no\u{9b}2J room".to_owned();
        let text = story(&Shown::of(&failover));
        for line in [
            "\nCause: AgentSays:  [2J Workloads: 0\n",
            "  Deployment shop/pinned: no 2J room\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[tokio::test]
    async fn where_nothing_is_recorded_the_answer_names_the_cluster() {
        for (words, expected) in [
            ("history", "No failover is recorded.\n"),
            ("history --cluster m1", "No failover of m1 is recorded.\n"),
            ("history --cluster m1 -o json", "[]\n"),
        ] {
            let client = crate::fixtures::api(|request| {
                let metadata = json!({ "name": "m1" });
                let body = if request.uri().path().ends_with("/clusters/m1") {
                    json!({ "metadata": metadata, "spec": { "syncMode": "Pull" } })
                } else {
                    json!({ "metadata": {}, "items": [] })
                };
                (200, body)
            });
            let words = format!("kubectl-muster {words}");
            let line = crate::line::parse(words.split(' ')).unwrap();
            let crate::Question::History(options) = line.question else {
                panic!("not what was asked");
            };
            let reported = carry_out(client, &options).await.unwrap();
            assert_eq!(reported, expected, "{words}");
        }
    }

    #[tokio::test]
    async fn it_is_said_where_failovers_are_not_recorded_any_more() {
        for (flag, expected) in [
            ("--resource-eviction-rate=5", false),
            ("--controllers=*,-failoverHistory", true),
        ] {
            let leads = LeaderReport {
                identity: "cp-0".to_owned(),
                flags: Some(vec![flag.to_owned()]),
                ..LeaderReport::default()
            };
            let lease = json!({
                "metadata": { "annotations": { annotation::LEADER: leads.write() } },
                "spec": { "holderIdentity": "cp-0" },
            });
            let client = crate::fixtures::api(move |request| {
                let is_lease = request.uri().path().contains("/leases/");
                let none = json!({ "metadata": {}, "items": [] });
                (200, if is_lease { lease.clone() } else { none })
            });
            let options = Options {
                name: None,
                output: Format::default(),
                cluster: None,
            };
            let text = carry_out(client, &options).await.unwrap();
            let is_said = text.contains("without the controller failoverHistory");
            assert_eq!(is_said, expected, "{flag}: {text}");
        }
    }

    #[test]
    fn a_record_that_is_not_there_is_answered_with_what_may_have_been_meant() {
        for (name, all, expected) in [
            ("m1-x", vec![], "none is recorded"),
            ("m1", vec![failover()], "write --cluster m1"),
            (
                "m1-20260101-00000",
                vec![failover()],
                ": is it m1-20260101-000000?",
            ),
            ("nosuch", vec![failover()], ": there are m1-20260101-000000"),
        ] {
            let reported = unknown(name, all);
            assert!(reported.contains(expected), "{reported}");
        }
    }
}
