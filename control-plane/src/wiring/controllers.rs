//! The table of all controllers, and what starts them.
//!
//! The page of this crate says what each controller watches, decides and writes.
//!
//! A controller reads the caches of [`Fleet`], asks for leadership at each act, and writes on the
//! state that it decided on.

use std::sync::Arc;

use muster_shared::tasks::Tasks;

use super::outlived;
use crate::clusters::{cluster, peers, policy_status, push, registration, taint, workloads};
use crate::fleet::Fleet;
use crate::fleet::budget;
use crate::fleet::budget::pace::Pace;
use crate::movement::{application_failover, eviction, failovers, graceful_eviction, rebalance};
use crate::propagation::{binding, detector, interpreters, status};
use crate::scheduler;
use crate::settings::{self, CONTROLLERS, Settings};
use crate::traffic;

/// Values that a controller needs to start.
struct Start<'a> {
    fleet: &'a Arc<Fleet>,
    tasks: &'a mut Tasks,
    /// The one budget of all that moves, once somebody needs it.
    budget: Option<Pace>,
    /// The evictor, once somebody needs it.
    evictor: Option<eviction::EvictorHandle>,
    /// Whether a controller of push clusters runs. They are started together: the tasks of one
    /// member share caches and connections.
    is_pushed: bool,
}

impl Start<'_> {
    /// Returns the budget, which is informed of every cluster from its first use on.
    fn budget(&mut self) -> Pace {
        let (fleet, tasks) = (self.fleet, &mut *self.tasks);
        self.budget
            .get_or_insert_with(|| budget::budget(fleet, tasks))
            .clone()
    }

    /// Returns the evictor, which judges taints if the controller of them runs.
    fn evictor(&mut self) -> eviction::EvictorHandle {
        let budget = self.budget();
        let judges_taints = self.fleet.settings.runs("taintmanager");
        let (fleet, tasks) = (self.fleet, &mut *self.tasks);
        self.evictor
            .get_or_insert_with(|| eviction::start(fleet, &budget, judges_taints, tasks))
            .clone()
    }
}

/// Starts one controller.
type Starter = fn(&mut Start<'_>);

/// Every controller by its name in `--controllers`.
const STARTERS: [(&str, Starter); CONTROLLERS.len()] = [
    ("cluster", |it| {
        cluster::start(it.fleet, it.tasks);
        peers::start(it.fleet, it.tasks);
        workloads::start(it.fleet, it.tasks);
    }),
    ("clustertaintpolicy", |it| taint::start(it.fleet, it.tasks)),
    ("policyStatus", |it| {
        policy_status::start(it.fleet, it.tasks);
    }),
    ("taintmanager", |it| {
        it.evictor();
    }),
    ("applicationFailover", |it| {
        let evictor = it.evictor();
        application_failover::start(it.fleet, &evictor, it.tasks);
    }),
    ("gracefulEviction", |it| {
        let budget = it.budget();
        graceful_eviction::start(it.fleet, &budget, it.tasks);
    }),
    ("failoverHistory", |it| failovers::start(it.fleet, it.tasks)),
    ("scheduler", |it| {
        let budget = it.budget();
        scheduler::controller::start(it.fleet, budget, it.tasks);
    }),
    ("detector", |it| detector::start(it.fleet, it.tasks)),
    ("binding", |it| binding::start(it.fleet, it.tasks)),
    ("bindingStatus", |it| status::start(it.fleet, it.tasks)),
    ("traffic", |it| traffic::start(it.fleet, it.tasks)),
    ("namespace", |it| {
        binding::start_namespaces(it.fleet, it.tasks);
    }),
    ("clusterStatus", |it| it.is_pushed = true),
    ("execution", |it| it.is_pushed = true),
    ("workStatus", |it| it.is_pushed = true),
    ("workloadRebalancer", |it| {
        let budget = it.budget();
        rebalance::start(it.fleet, budget, it.tasks);
    }),
    ("agentcsrapproving", |it| {
        registration::start(it.fleet, it.tasks);
    }),
];

/// Starts the controllers that `--controllers` names.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    let mut start = Start {
        fleet,
        tasks,
        budget: None,
        evictor: None,
        is_pushed: false,
    };
    // Whoever moves workloads asks, whichever program makes the Works.
    binding::answer_overrides(fleet);
    for (name, starter) in STARTERS {
        if settings.runs(name) {
            starter(&mut start);
        }
    }
    // Whoever writes what bindings report ends what others do not write any more.
    if settings.runs("bindingStatus") {
        outlived::start(fleet, start.tasks);
    }
    if start.is_pushed {
        push::start(fleet, start.tasks);
    }
    if settings.runs("binding") || settings.runs("bindingStatus") {
        interpreters::start(fleet, start.tasks);
    }
}

/// Logs which controllers run, and which gate stops what.
pub fn say_what_runs(settings: &Settings) {
    for (name, owns) in CONTROLLERS {
        let running = settings.runs(name);
        tracing::info!(controller = name, running, owns, "controller");
    }
    if !settings.gate(&settings::FAILOVER) {
        tracing::info!("feature gate Failover is off: no taint moves any workload");
        if !settings.follows_taint_policies() {
            tracing::info!(
                "ClusterTaintPolicies put no taints on: with --preview-cluster-taint-policies they do"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{self, Bench};

    #[tokio::test(start_paused = true)]
    async fn taints_move_workloads_where_the_controller_that_judges_them_runs() {
        for is_judged in [true, false] {
            let settings = Settings {
                enable_taint_manager: is_judged,
                feature_gates: "Failover=true".parse().unwrap(),
                ..Settings::default()
            };
            let mut failed = testing::cluster("m1");
            failed["spec"]["taints"] = json!([{
                "key": "down", "effect": "NoExecute", "timeAdded": "2024-01-01T00:00:00Z",
            }]);
            let well = ["m2", "m3", "m4"].map(|it| ("clusters", testing::cluster(it)));
            let workload = ("resourcebindings", testing::binding());
            let objects = well.into_iter().chain([("clusters", failed), workload]);
            let mut bench = Bench::with(settings, objects);
            Start {
                fleet: &bench.fleet,
                tasks: &mut bench.tasks,
                budget: None,
                evictor: None,
                is_pushed: false,
            }
            .evictor();
            bench.follow_for(60).await;
            let workload = bench.api.binding("web-deployment");
            let has_left = workload["spec"]["clusters"][0]["name"] != "m1";
            assert_eq!(has_left, is_judged, "{workload}");
        }
    }

    #[test]
    fn every_controller_that_may_be_named_can_be_started() {
        let startable = STARTERS.map(|(name, _)| name);
        let named = CONTROLLERS.map(|(name, _)| name);
        assert_eq!(startable, named);
    }

    #[test]
    fn the_page_of_the_crate_names_every_controller() {
        let page = include_str!("../lib.rs");
        for (name, _) in CONTROLLERS {
            assert!(page.contains(&format!("//! * `{name}` watches ")), "{name}");
        }
    }

    // A controller that the chart's schema does not name cannot be chosen in its values.
    #[test]
    fn the_schema_of_the_chart_names_every_controller() {
        let schema = include_str!("../../../charts/control-plane/values.schema.json");
        let names: Vec<&str> = schema.split(['(', ')', '|']).collect();
        for (name, _) in CONTROLLERS {
            assert!(names.contains(&name), "{name}");
        }
    }
}
