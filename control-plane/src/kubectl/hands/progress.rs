//! Progress of a drain, as the bindings tell it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use kube::Config;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{self, Profile};
use muster_shared::clock::calendar;
use muster_shared::conditions;
use muster_shared::k8s::Api;
use muster_shared::taints::is_drain;
use muster_shared::watch::{Followed, Informer, Selection};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::preview::{Line, switches};
use crate::eviction::any_binding::AnyBinding;
use crate::eviction::explain::{CONDITION, has_completed};
use crate::eviction::judge::{Judgement, judge};
use crate::fleet::binding::BindingKey;

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(1);
/// Time within which the fleet has to be listed.
const LISTED: Duration = Duration::from_mins(1);
/// Reasons of the condition for which a workload stays although it is to leave.
const STUCK: [&str; 3] = ["NowhereToGo", "StateNotPreserved", "NotFenced"];
/// Characters of the bar.
const BAR: usize = 24;
/// Workloads that are listed as having nowhere to go.
const TOLD: usize = 20;

/// How the waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left that can leave.
    Done,
    /// Not within the time.
    TimedOut,
    /// By Ctrl-C.
    Interrupted,
    /// The drain itself has been ended.
    Undrained,
}

/// How far a drain has come. Workloads on two of the clusters count twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// Workloads that have left and whose old copies are gone.
    pub left: usize,
    /// Workloads whose new copies are being started.
    pub replacing: usize,
    /// Workloads that wait for their turn.
    pub waiting: usize,
    /// Workloads that stay because they may.
    pub stay: usize,
    /// Workloads that have nowhere to go, each with the reason.
    pub stuck: Vec<Line>,
}

impl Progress {
    /// Nothing is left that can leave.
    pub fn is_done(&self) -> bool {
        self.waiting == 0 && self.replacing == 0
    }

    /// The progress in one line.
    pub fn line(&self, with_bar: bool) -> String {
        let all = self.left + self.replacing + self.waiting + self.stuck.len();
        let mut line = String::new();
        if with_bar {
            let (done, half) = match all {
                0 => (BAR, 0),
                all => (self.left * BAR / all, self.replacing * BAR / all),
            };
            let rest = BAR - done - half;
            let _ = write!(
                line,
                "[{}{}{}] ",
                "#".repeat(done),
                "=".repeat(half),
                "-".repeat(rest)
            );
        }
        let _ = write!(
            line,
            "{} of {all} left, {} being replaced, {} waiting, {} with nowhere to go",
            self.left,
            self.replacing,
            self.waiting,
            self.stuck.len()
        );
        line
    }

    /// The last word about a drain.
    pub fn report(&self, names: &[String], how: End) -> String {
        let names = names.join(" ");
        let mut text = format!("{names}: {}\n", self.line(false));
        for line in self.stuck.iter().take(TOLD) {
            let _ = writeln!(text, "  {line}");
        }
        if self.stuck.len() > TOLD {
            let _ = writeln!(text, "  and {} more", self.stuck.len() - TOLD);
        }
        match how {
            End::Done if self.stuck.is_empty() => {
                let _ = writeln!(text, "{names}: drained");
            }
            End::Done => {
                let _ = writeln!(
                    text,
                    "{names}: drained as far as possible; the rest leaves when it has a place to go"
                );
            }
            End::TimedOut | End::Interrupted | End::Undrained => {
                let _ = writeln!(
                    text,
                    "The drain goes on: kubectl muster drain {names} --wait shows it again, kubectl muster undrain {names} ends it"
                );
            }
        }
        text
    }
}

/// Counts workloads. `seen` has those that were there before, which have left when they are there
/// no more.
pub(super) fn count(
    bindings: &[AnyBinding],
    clusters: &HashMap<String, Arc<Cluster>>,
    seen: &mut BTreeSet<(BindingKey, String)>,
    now: jiff::Timestamp,
) -> Progress {
    let mut progress = Progress::default();
    let mut present = BTreeSet::new();
    for binding in bindings {
        let (spec, key) = (binding.spec(), binding.key());
        for (name, cluster) in clusters {
            let here = (key.clone(), name.clone());
            if spec.target(name).is_none() {
                let mut tasks = spec.graceful_eviction_tasks.iter();
                let leaves = tasks
                    .any(|task| task.from_cluster == *name && task.suppress_deletion != Some(true));
                if leaves {
                    progress.replacing += 1;
                    present.insert(here);
                }
                continue;
            }
            let taints = &cluster.spec.taints;
            let placement = binding.placement();
            let stays = match judge(taints, spec, placement.as_deref(), &switches(), now) {
                Judgement::Stay(_) => true,
                Judgement::Leave { .. } => has_completed(binding, name),
            };
            if stays {
                progress.stay += 1;
                seen.remove(&here);
                continue;
            }
            let condition = conditions::get(&binding.status().conditions, CONDITION);
            let stuck = condition
                .filter(|it| it.status == conditions::TRUE && STUCK.contains(&it.reason.as_str()));
            match stuck {
                Some(condition) => progress.stuck.push(Line {
                    why: Some(condition.message.clone()),
                    ..Line::new(binding, name)
                }),
                None => progress.waiting += 1,
            }
            present.insert(here);
        }
    }
    seen.extend(present.iter().cloned());
    progress.left = seen.difference(&present).count();
    progress
}

/// Shows the progress until nothing is left that can leave.
pub(super) async fn follow(
    config: &Config,
    names: &[String],
    patience: Option<Duration>,
    is_terminal: bool,
) -> anyhow::Result<(Progress, End)> {
    let client = client::connect(config, Profile::Watch)?;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let changed = Arc::new(Notify::new());
    let clusters: Informer<Cluster> = watch(Api::all(client.clone()), &changed, &stop);
    let bindings: Informer<ResourceBinding> = watch(Api::all(client.clone()), &changed, &stop);
    let others: Informer<ClusterResourceBinding> = watch(Api::all(client), &changed, &stop);
    let listed = async {
        clusters.synced().await;
        bindings.synced().await;
        others.synced().await;
    };
    if timeout(LISTED, listed).await.is_err() {
        let why = [clusters.trouble(), bindings.trouble(), others.trouble()];
        let why = why.into_iter().flatten().next();
        bail!(
            "the fleet cannot be listed: {}",
            why.unwrap_or_else(|| "no answer".to_owned())
        );
    }
    let deadline = patience.map(|patience| Instant::now() + patience);
    let mut seen = BTreeSet::new();
    let mut shown = None;
    loop {
        let known: HashMap<String, Arc<Cluster>> = names
            .iter()
            .filter_map(|name| Some((name.clone(), clusters.get(None, name)?)))
            .collect();
        let namespaced = bindings.list().into_iter().map(AnyBinding::from);
        let all: Vec<AnyBinding> = namespaced
            .chain(others.list().into_iter().map(AnyBinding::from))
            .collect();
        let progress = count(&all, &known, &mut seen, calendar());
        let is_drained = known
            .values()
            .all(|cluster| cluster.spec.taints.iter().any(is_drain));
        let end = if is_drained {
            progress.is_done().then_some(End::Done)
        } else {
            Some(End::Undrained)
        };
        let line = progress.line(is_terminal);
        if shown.as_ref() != Some(&line) {
            show(&line, is_terminal, end.is_some());
            shown = Some(line);
        }
        if let Some(end) = end {
            return Ok((progress, end));
        }
        let patience = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let next = Instant::now() + PAUSE;
        let news = async {
            changed.notified().await;
            sleep_until(next).await;
        };
        let end = tokio::select! {
            () = news => continue,
            () = patience => End::TimedOut,
            _ = tokio::signal::ctrl_c() => End::Interrupted,
        };
        if is_terminal {
            eprintln!();
        }
        return Ok((progress, end));
    }
}

/// Follows the objects of an API until the token is cancelled, and notifies of each change.
pub(in crate::kubectl) fn watch<K: Followed>(
    api: Api<K>,
    changed: &Arc<Notify>,
    stop: &CancellationToken,
) -> Informer<K> {
    let informer = Informer::new(api, Selection::everything());
    let changed = Arc::clone(changed);
    informer.on_change(move |_| changed.notify_one());
    muster_shared::clock::spawn(informer.clone().run(stop.clone()));
    informer
}

/// Prints a line of progress; on a terminal in place of the last one.
pub(in crate::kubectl) fn show(line: &str, is_terminal: bool, is_last: bool) {
    let mut out = std::io::stderr();
    // A terminal that is gone must not end the command.
    let _ = if is_terminal {
        write!(out, "\r\x1b[2K{line}{}", if is_last { "\n" } else { "" })
    } else {
        writeln!(out, "{line}")
    };
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn drained() -> HashMap<String, Arc<Cluster>> {
        let cluster = json!({
            "metadata": {"name": "m1"},
            "spec": {"syncMode": "Pull", "taints": [{"key": "failover.muster.io/drain", "effect": "NoExecute"}]},
        });
        let cluster = serde_json::from_value(cluster).unwrap();
        HashMap::from([("m1".to_owned(), Arc::new(cluster))])
    }

    fn binding(
        name: &str,
        on: &str,
        leaving: bool,
        reason: &str,
        tolerations: &Value,
    ) -> AnyBinding {
        let tasks = if leaving {
            json!([{"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "p"}])
        } else {
            json!([])
        };
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {
                "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name},
                "clusters": [{"name": on}], "gracefulEvictionTasks": tasks,
                "placement": {"clusterTolerations": tolerations},
            },
            "status": {"conditions": [{"type": CONDITION, "status": "True", "reason": reason, "message": "has to leave m1 and stays",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        Arc::new(binding).into()
    }

    #[test]
    fn a_job_that_has_completed_by_its_template_stays() {
        for (cluster, expected) in [("m1", (1, 0)), ("m2", (0, 1))] {
            let job: ResourceBinding = serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": "sum"},
                "spec": {
                    "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "name": "sum"},
                    "clusters": [{"name": "m1"}], "placement": {},
                },
                "status": {"conditions": [{
                    "type": CONDITION, "status": "False", "reason": "JobCompleted",
                    "message": format!("need not leave {cluster}"),
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            }))
            .unwrap();
            let now = jiff::Timestamp::UNIX_EPOCH;
            let job = [Arc::new(job).into()];
            let progress = count(&job, &drained(), &mut BTreeSet::new(), now);
            assert_eq!((progress.stay, progress.waiting), expected, "{cluster}");
        }
    }

    #[test]
    fn each_workload_counts_once_from_waiting_to_left() {
        let (clusters, mut seen) = (drained(), BTreeSet::new());
        let now = jiff::Timestamp::UNIX_EPOCH;
        let all = json!([{"operator": "Exists"}]);
        let mut fleet = vec![
            binding("a", "m1", false, "WaitingForRate", &json!([])),
            binding("b", "m2", true, "Evicted", &json!([])),
            binding("c", "m1", false, "NowhereToGo", &json!([])),
            binding("d", "m1", false, "Tolerated", &all),
            binding("e", "m2", false, "Tolerated", &json!([])),
        ];
        let mut look = |fleet: &[AnyBinding]| count(fleet, &clusters, &mut seen, now);
        let progress = look(&fleet);
        assert_eq!(
            (
                progress.left,
                progress.replacing,
                progress.waiting,
                progress.stay
            ),
            (0, 1, 1, 1)
        );
        assert_eq!(
            progress.stuck[0].to_string(),
            "ConfigMap shop/c: has to leave m1 and stays"
        );
        assert!(!progress.is_done());
        fleet[0] = binding("a", "m2", true, "Evicted", &json!([]));
        fleet[1] = binding("b", "m2", false, "Evicted", &json!([]));
        let progress = look(&fleet);
        assert_eq!(
            (progress.left, progress.replacing, progress.waiting),
            (1, 1, 0)
        );
        fleet[0] = binding("a", "m2", false, "Evicted", &json!([]));
        let progress = look(&fleet);
        assert!(progress.is_done());
        assert_eq!(
            progress.line(true),
            "[################--------] 2 of 3 left, 0 being replaced, 0 waiting, 1 with nowhere to go"
        );
        let names = ["m1".to_owned()];
        assert!(
            progress
                .report(&names, End::Done)
                .contains("m1: drained as far as possible")
        );
        assert!(
            progress
                .report(&names, End::TimedOut)
                .contains("The drain goes on")
        );
        fleet.remove(2);
        let progress = look(&fleet);
        assert_eq!(
            progress.line(false),
            "3 of 3 left, 0 being replaced, 0 waiting, 0 with nowhere to go"
        );
        assert!(
            progress
                .report(&names, End::Done)
                .ends_with("m1: drained\n")
        );
    }
}
