//! The table of all tasks of the agent, and the code that starts them.
//!
//! The page of this crate says what each task watches, decides and writes.
//!
//! A task waits until the join has the state that the task needs. It uses the values of
//! [`Context`], and asks for leadership at each act.

use futures::future::BoxFuture;
use muster_shared::tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::{access, leases, registration, status, works};
use crate::fleet_id;
use crate::fleet_server::Obeyed;
use crate::join::JoinState;
use crate::settings::{CERT_ROTATION, Settings};

/// A task that runs until shutdown.
pub(super) type Made = anyhow::Result<BoxFuture<'static, ()>>;

/// One row of the table of tasks.
struct Task {
    /// Name in the log, in the metric `muster_task_up`, and on the page of this crate.
    name: &'static str,
    /// Whether the settings ask for the task.
    runs: fn(&Settings) -> bool,
    /// Phase of the agent from which the task runs.
    phase: Phase,
    /// Phase from which the task runs for a member that the control plane manages; `None` if it
    /// does not.
    hosted: Option<Phase>,
    /// Makes the task.
    make: fn(&Context) -> Made,
}

/// Returns a task of an agent that runs whatever the settings say.
const fn task(name: &'static str, phase: Phase, make: fn(&Context) -> Made) -> Task {
    Task {
        name,
        runs: |_| true,
        phase,
        hosted: None,
        make,
    }
}

impl Task {
    /// Returns the task, which runs only if the settings ask for it.
    const fn only_if(self, runs: fn(&Settings) -> bool) -> Self {
        Self { runs, ..self }
    }

    /// Returns the task, which runs for a member that the control plane manages as well.
    const fn hosted(mut self, phase: Phase) -> Self {
        self.hosted = Some(phase);
        self
    }
}

/// Phase of the agent from which a task runs.
#[derive(Clone, Copy)]
enum Phase {
    /// From the start.
    Start,
    /// From the start, until all other tasks have ended.
    StartToEnd,
    /// From the registration: the fleet API has the Cluster.
    Registered,
    /// From the moment at which Works may be applied.
    Member,
    /// As [`Phase::Member`], and after the first read of the fleet's id, from a store that may be
    /// obeyed.
    Identified,
}

/// Every task by its name.
const TASKS: [Task; 25] = [
    // The first that is made: it holds all requests to the fleet API until a server was chosen.
    task("fleet server", Phase::Start, access::fleet_server),
    task("cluster informer", Phase::Registered, |context| {
        let shutdown = context.base.shutdown.clone();
        Ok(Box::pin(context.clusters.clone().run(shutdown)))
    })
    .hosted(Phase::Start),
    task("registration", Phase::Start, registration::registration),
    task("fleet id", Phase::Registered, registration::fleet_id).hosted(Phase::Registered),
    task("leases", Phase::StartToEnd, leases::leases),
    task("pulse of the leases", Phase::Start, |context| {
        Ok(leases::pulse(context))
    }),
    task("probe", Phase::Registered, status::probe)
        .only_if(|settings| settings.runs("clusterStatus"))
        .hosted(Phase::Member),
    task("collector", Phase::Registered, status::collector)
        .only_if(|settings| settings.runs("clusterStatus"))
        .hosted(Phase::Member),
    task("names", Phase::Registered, |context| {
        Ok(status::names(context))
    })
    .only_if(|settings| settings.runs("clusterStatus") && !settings.cluster_dns_name.is_empty()),
    task("egress", Phase::Registered, |context| {
        Ok(status::egress(context))
    })
    .only_if(|settings| {
        settings.runs("clusterStatus") && !settings.cluster_egress_address.is_empty()
    }),
    task("peers", Phase::Registered, |context| {
        Ok(status::peers(context))
    })
    .only_if(|settings| settings.runs("clusterStatus")),
    task("census", Phase::Registered, status::census)
        .only_if(|settings| {
            settings.runs("clusterStatus") && settings.enable_cluster_resource_modeling
        })
        .hosted(Phase::Member),
    task("status report", Phase::Registered, status::status_report)
        .only_if(|settings| settings.runs("clusterStatus"))
        .hosted(Phase::Registered),
    task("credentials", Phase::Member, access::credentials),
    // From the start: the fleet API rejects an expired certificate, and the Secret may have a valid
    // one.
    task("certificate rotation", Phase::Start, access::rotation)
        .only_if(|settings| settings.runs(CERT_ROTATION)),
    task("bootstrap", Phase::Start, |context| {
        Ok(access::keep_bootstrap(context))
    })
    .only_if(|settings| settings.bootstrap_kubeconfig.is_some()),
    task("member watches", Phase::Identified, works::member_watches)
        .only_if(|settings| settings.runs("workStatus"))
        .hosted(Phase::Identified),
    task("work status", Phase::Member, works::work_status)
        .only_if(|settings| settings.runs("workStatus"))
        .hosted(Phase::Member),
    task("applier", Phase::Identified, works::applier)
        .only_if(|settings| settings.runs("execution"))
        .hosted(Phase::Identified),
    // From the start: an agent that is restarted while its member is cut off cannot register.
    task("fencing", Phase::Start, works::fencing).only_if(|settings| settings.runs("execution")),
    task("objects without a Work", Phase::Identified, works::orphans)
        .only_if(|settings| settings.runs("execution"))
        .hosted(Phase::Member),
    task("retries", Phase::Member, |context| {
        Ok(works::retries(context))
    })
    .only_if(uses_works)
    .hosted(Phase::Member),
    task("works readiness", Phase::Member, |context| {
        Ok(works::readiness(context))
    })
    .only_if(uses_works),
    task("work informer", Phase::Member, |context| {
        let shutdown = context.base.shutdown.clone();
        Ok(Box::pin(context.works.clone().run(shutdown)))
    })
    .only_if(uses_works)
    .hosted(Phase::Member),
    task("interpreters", Phase::Member, |context| {
        Ok(works::interpreters(context))
    })
    .only_if(uses_works),
];

/// Returns whether a controller uses Works.
pub(super) fn uses_works(settings: &Settings) -> bool {
    settings.runs("execution") || settings.runs("workStatus")
}

/// Starts the tasks that the settings ask for; for a member that the control plane manages, those
/// that run there.
///
/// # Errors
/// When a client or a thread cannot be made.
pub(super) fn start(context: &Context, tasks: &mut Tasks) -> anyhow::Result<()> {
    // The control plane updates the interpreters of the members that it manages.
    let is_hosted = context.feeds.is_none();
    let phase = |task: &Task| {
        if is_hosted {
            task.hosted
        } else {
            Some(task.phase)
        }
    };
    let wanted = TASKS
        .iter()
        .filter(|task| (task.runs)(&context.base.settings))
        .filter_map(|task| phase(task).map(|phase| (task, phase)));
    for (task, phase) in wanted {
        let made = (task.make)(context)?;
        if matches!(phase, Phase::StartToEnd) {
            tasks.spawn_last(task.name, made);
        } else {
            let (join_state, fleet_id) = (context.join_state.subscribe(), context.fleet_id.clone());
            let shutdown = context.base.shutdown.clone();
            let waits = reached(phase, join_state, context.obeyed.subscribe(), fleet_id);
            tasks.spawn(task.name, run_after(waits, made, shutdown));
        }
    }
    Ok(())
}

/// Runs a task after another future returned `true`. Does not run it after `false`, or shutdown.
async fn run_after(
    waits: impl Future<Output = bool>,
    task: BoxFuture<'static, ()>,
    shutdown: CancellationToken,
) {
    if shutdown.run_until_cancelled(waits).await == Some(true) {
        task.await;
    }
}

/// Waits for a phase of the agent. Returns `false` if it cannot come any more, because the
/// registration has ended.
async fn reached(
    phase: Phase,
    mut join_state: watch::Receiver<JoinState>,
    mut obeyed: watch::Receiver<Obeyed>,
    fleet_id: fleet_id::Known,
) -> bool {
    let least = match phase {
        Phase::Start | Phase::StartToEnd => JoinState::Unregistered,
        Phase::Registered => JoinState::Registered,
        Phase::Member | Phase::Identified => JoinState::Member,
    };
    if join_state.wait_for(|it| *it >= least).await.is_err() {
        return false;
    }
    if matches!(phase, Phase::Identified) {
        if obeyed.wait_for(Result::is_ok).await.is_err() {
            return false;
        }
        fleet_id.settled().await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the names of the tasks on the page of the crate.
    fn on_the_page() -> Vec<&'static str> {
        let page = include_str!("../lib.rs");
        let entries = page.lines().filter_map(|line| line.strip_prefix("//! * `"));
        entries
            .filter_map(|entry| entry.split_once('`').map(|(name, _)| name))
            .collect()
    }

    #[test]
    fn the_page_of_the_crate_names_the_tasks_of_the_table_in_its_order() {
        assert_eq!(on_the_page(), TASKS.map(|task| task.name));
    }

    #[test]
    fn the_page_says_of_each_task_what_it_watches_decides_and_writes() {
        let page = include_str!("../lib.rs").replace("\n//!   ", " ");
        for name in on_the_page() {
            let prefix = format!("//! * `{name}` watches ");
            let entry = page.lines().find(|line| line.starts_with(&prefix));
            let entry = entry.unwrap_or_else(|| panic!("{name} has no entry"));
            for word in ["; decides ", "; writes "] {
                assert!(entry.contains(word), "{word:?} in {entry}");
            }
        }
    }

    #[test]
    fn names_are_unique_because_metrics_have_them() {
        let names: BTreeSet<_> = TASKS.iter().map(|task| task.name).collect();
        assert_eq!(names.len(), TASKS.len());
    }

    #[test]
    fn a_controller_that_is_off_has_no_tasks() {
        let with = |controllers: &str| {
            let settings = Settings {
                controllers: controllers.parse().unwrap(),
                ..Settings::default()
            };
            let wanted = TASKS.iter().filter(|task| (task.runs)(&settings));
            wanted.map(|task| task.name).collect::<BTreeSet<_>>()
        };
        let all = with("*");
        for (controllers, missing) in [
            (
                "*,-clusterStatus",
                &["census", "collector", "peers", "probe", "status report"][..],
            ),
            (
                "*,-execution",
                &["applier", "fencing", "objects without a Work"],
            ),
            ("*,-workStatus", &["member watches", "work status"]),
            (
                "*,-execution,-workStatus",
                &[
                    "applier",
                    "fencing",
                    "interpreters",
                    "member watches",
                    "objects without a Work",
                    "retries",
                    "work informer",
                    "work status",
                    "works readiness",
                ],
            ),
        ] {
            let off: Vec<_> = all.difference(&with(controllers)).copied().collect();
            assert_eq!(off, missing, "{controllers}");
        }
    }
}
