//! A fleet whose processes are killed (SIGKILL) at random moments of failovers.
//!
//! Real processes against APIs over TCP. In each round a member is cut off from the fleet, its
//! workloads move, and it returns; all the while processes are killed and started again at once.
//! Kills come after a random number of changes, or after a random time. At each change of a binding
//! or of a member the [`oracle`] searches for workloads that are lost or doubled, and at the end of
//! each round it demands that everything runs just where it is placed.
//!
//! The simulation (`e2e/simulation`) kills at every API call, in virtual time; here the programs
//! are the ones that are shipped, with real sockets, files and clocks.

pub mod cast;
pub mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cast::{Key, Scene};
use muster_sandbox::scenario;
use muster_test_fleet::harness::dump::dump;
use muster_test_fleet::harness::fleet::Fleet;
use muster_test_fleet::harness::process::{Launch, Process, Program};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Members of the fleet.
const MEMBERS: usize = 4;
/// How long a step may take once nothing is killed any more.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long the state at the end of a round must last.
const QUIET: Duration = Duration::from_secs(1);
/// The longest time between two kills. Shorter than the monitor's grace period (8 s), so that a
/// member whose agent is killed again and again is not taken for silent.
const LONGEST_GAP: Duration = Duration::from_millis(1500);
/// The most changes between two kills.
const MOST_CHANGES: u32 = 25;
/// Share of a round's kills that come while the member is away; the others come after its return.
const AWAY: (usize, usize) = (2, 3);

/// What to run.
pub struct Options {
    /// The program that becomes agents and control plane when its first argument names one.
    pub binary: PathBuf,
    /// Where kubeconfigs and logs go.
    pub directory: PathBuf,
    /// Kills in all.
    pub kills: usize,
    /// Kills in a round.
    pub kills_a_round: usize,
    /// Workloads of the fleet.
    pub workloads: usize,
    /// Whether there is a second control plane, which takes over from the first. Without one, there
    /// is no election either, and the control plane acts again at once after each kill.
    pub standby: bool,
    /// What the random choices follow from. The moments of real processes do not: the same seed
    /// gives the same choices, not the same history.
    pub seed: u64,
    /// Gets what happens, a line at a time.
    pub print: fn(&str),
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rounds, each with a cluster lost and back.
    pub rounds: usize,
    /// Kills by program.
    pub kills: BTreeMap<String, usize>,
    /// Placements that were moved.
    pub moved: usize,
    /// Moments at which the oracle was asked.
    pub observations: u64,
    /// Workloads that had too few ready copies.
    pub lost: Vec<String>,
    /// Workloads that had too many copies.
    pub doubled: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills: usize = self.kills.values().sum();
        let of: Vec<String> = self
            .kills
            .iter()
            .map(|(program, count)| format!("{program} {count}"))
            .collect();
        write!(
            f,
            "{kills} kills ({}) in {} failovers; {} placements moved; {} moments looked at; {} workloads lost, {} doubled",
            of.join(", "),
            self.rounds,
            self.moved,
            self.observations,
            self.lost.len(),
            self.doubled.len()
        )
    }
}

/// Runs it. An error is a fleet that did not come to rest; what was lost or doubled is in the
/// report.
pub async fn run(options: Options) -> anyhow::Result<Report> {
    let mut run = Run::start(options).await?;
    let outcome = run.rounds().await;
    let report = run.report();
    if outcome.is_err() || !report.lost.is_empty() || !report.doubled.is_empty() {
        (run.options.print)(&dump(&run.fleet).await);
    }
    run.fleet.end().await?;
    outcome.map(|()| report)
}

/// What the oracle saw so far.
#[derive(Default)]
struct Seen {
    round: usize,
    failed: String,
    /// Workloads that had to leave a second cluster in this round: one whose agent was killed too
    /// often counts as silent. They may be in one more cluster until the round ends.
    disturbed: BTreeSet<Key>,
    observations: u64,
    lost: Vec<String>,
    doubled: Vec<String>,
}

impl Seen {
    fn observe(&mut self, scene: &Scene) {
        self.observations += 1;
        let disturbed = scene.workloads.iter().filter(|(_, workload)| {
            let mut leaving = workload.leaving.iter();
            leaving.any(|cluster| *cluster != self.failed)
        });
        self.disturbed.extend(disturbed.map(|(key, _)| key.clone()));
        let (lost, doubled) = (
            oracle::lost(scene),
            oracle::doubled(scene, &self.failed, &self.disturbed),
        );
        for (list, found) in [(&mut self.lost, lost), (&mut self.doubled, doubled)] {
            for line in found {
                let line = format!("round {}: {line}", self.round);
                if !list.contains(&line) {
                    list.push(line);
                }
            }
        }
    }

    /// Notes that a round begins or ends with this cluster cut off, or with none.
    fn begin(&mut self, round: usize, failed: &str) {
        self.round = round;
        failed.clone_into(&mut self.failed);
        self.disturbed.clear();
    }
}

struct Run {
    options: Options,
    fleet: Arc<Fleet>,
    standby: Option<Process>,
    workloads: Vec<Key>,
    seen: Arc<Mutex<Seen>>,
    random: StdRng,
    report: Report,
}

impl Run {
    /// Starts the fleet, and waits until the workloads run.
    async fn start(options: Options) -> anyhow::Result<Self> {
        let mut plan = scenario::plan(options.binary.clone(), options.directory.clone(), MEMBERS);
        plan.control_plane
            .push(format!("--leader-elect={}", options.standby));
        // An agent that is started again waits for no lease of its former self: members whose
        // agents are killed are not to be silent for longer than the monitor's grace period.
        plan.agent.push("--leader-elect=false".to_owned());
        // A rate that does not make each round last: what is tested is not the pace.
        plan.control_plane
            .retain(|flag| !flag.starts_with("--resource-eviction-rate"));
        plan.control_plane
            .push("--resource-eviction-rate=20".to_owned());
        let mut launch = Launch {
            binary: plan.binary.clone(),
            program: Program::ControlPlane,
            arguments: plan.control_plane.clone(),
            log: options.directory.join("logs/standby.log"),
        };
        let fleet = Fleet::start(plan).await?;
        let standby = if options.standby {
            let access = options.directory.join("kube/control-plane.kubeconfig");
            launch
                .arguments
                .insert(0, format!("--kubeconfig={}", access.display()));
            Some(Process::start(launch)?)
        } else {
            None
        };
        let run = Self {
            workloads: cast::workloads(options.workloads),
            random: StdRng::seed_from_u64(options.seed),
            options,
            fleet,
            standby,
            seen: Arc::default(),
            report: Report::default(),
        };
        let joined = |scene: &Scene| {
            muster_sandbox::expect::joined(&muster_sandbox::picture::Picture {
                clusters: scene.clusters.clone(),
                ..Default::default()
            })
        };
        run.await_that("all members are ready", joined).await?;
        let [(_, taints), ..] = scenario::MANIFESTS;
        run.fleet.apply(taints).await?;
        run.fleet.apply(&cast::manifests(&run.workloads)).await?;
        run.await_that("all workloads run", oracle::at_rest).await?;
        run.watch();
        Ok(run)
    }

    /// Asks the oracle after each change, from now on.
    fn watch(&self) {
        let (seen, workloads) = (Arc::clone(&self.seen), self.workloads.clone());
        self.fleet.observer.on_each_change(move |view| {
            let scene = Scene::of(view, &workloads);
            let mut seen = seen.lock();
            seen.observe(&scene);
        });
    }

    async fn rounds(&mut self) -> anyhow::Result<()> {
        while self.killed() < self.options.kills {
            let left = self.options.kills - self.killed();
            self.round(left.min(self.options.kills_a_round)).await?;
        }
        let lost = self.fleet.lost_processes();
        // A control plane that cannot renew its lease in time ends on purpose.
        let by_itself = self.standby.is_none() && !lost.is_empty();
        anyhow::ensure!(!by_itself, "processes ended by themselves: {lost:?}");
        Ok(())
    }

    /// Plays one round: a member is lost, its workloads move, it returns.
    async fn round(&mut self, kills: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        let names: Vec<String> = self.fleet.members.keys().cloned().collect();
        let failed = self.one_of(&names).context("there are no members")?;
        let held = self.scene().placed_on(&failed);
        self.begin(&failed);
        self.fleet.cut(&failed)?;

        let away = kills * AWAY.0 / AWAY.1;
        self.kill_until(away, |scene| oracle::moved(scene, &failed))
            .await;
        let what = format!("everything has left {failed}");
        self.await_that(&what, |scene| oracle::moved(scene, &failed))
            .await?;
        self.report.moved += held;

        self.fleet.heal(&failed)?;
        let most = kills.saturating_sub(away);
        self.kill_until(most, |_| Err(String::new())).await;
        self.await_that("the fleet is at rest", oracle::at_rest)
            .await?;
        let workloads = &self.workloads;
        self.fleet
            .observer
            .holds_for("the fleet stays at rest", QUIET, |view| {
                oracle::at_rest(&Scene::of(view, workloads))
            })
            .await?;
        self.report.rounds += 1;
        self.begin("");
        (self.options.print)(&format!(
            "round {}: {failed} lost and back in {:.0} s, {held} placements moved, {} kills so far",
            self.report.rounds,
            begun.elapsed().as_secs_f64(),
            self.killed()
        ));
        Ok(())
    }

    /// Kills processes at random moments, so many at most, until a state is reached.
    async fn kill_until(&mut self, most: usize, done: impl Fn(&Scene) -> Result<(), String>) {
        for _ in 0..most {
            self.random_moment().await;
            if done(&self.scene()).is_ok() {
                return;
            }
            self.kill_one().await;
        }
    }

    /// Waits for a random number of changes, or for a random time, whichever is chosen.
    async fn random_moment(&mut self) {
        let longest = u64::try_from(LONGEST_GAP.as_millis()).unwrap_or(u64::MAX);
        if self.random.random_bool(0.5) {
            let gap = Duration::from_millis(self.random.random_range(0..longest));
            return tokio::time::sleep(gap).await;
        }
        let number = self.random.random_range(1..=MOST_CHANGES);
        let mut changes = self.fleet.observer.changes();
        let so_many = async {
            for _ in 0..number {
                // The sender is the fleet's, which outlives this.
                let _ = changes.changed().await;
            }
        };
        // Where nothing changes any more, the longest time is the moment.
        let _ = tokio::time::timeout(LONGEST_GAP, so_many).await;
    }

    /// Kills a process and starts it again: a control plane half of the time.
    async fn kill_one(&mut self) {
        let names: Vec<String> = self.fleet.members.keys().cloned().collect();
        let choice = if self.random.random_bool(0.5) {
            None
        } else {
            self.one_of(&names)
        };
        let (program, process) = match choice.and_then(|name| self.fleet.members.get(&name)) {
            Some(member) => ("agent", &member.agent),
            None => match &self.standby {
                Some(standby) if self.random.random_bool(0.5) => ("control plane", standby),
                _ => ("control plane", &self.fleet.control_plane),
            },
        };
        // One that is just about to be started again has not been killed.
        if process.id().is_none() {
            return;
        }
        process.kill().await;
        process.resume();
        *self.report.kills.entry(program.to_owned()).or_default() += 1;
    }

    fn one_of(&mut self, names: &[String]) -> Option<String> {
        let number = self.random.random_range(0..names.len().max(1));
        names.get(number).cloned()
    }

    async fn await_that(
        &self,
        what: &str,
        mut condition: impl FnMut(&Scene) -> Result<(), String>,
    ) -> anyhow::Result<()> {
        let patience = PATIENCE * self.fleet.patience;
        let holds = self.fleet.observer.await_that(what, patience, |view| {
            condition(&Scene::of(view, &self.workloads))
        });
        Ok(holds.await?)
    }

    fn scene(&self) -> Scene {
        Scene::of(&self.fleet.observer.view, &self.workloads)
    }

    fn begin(&self, failed: &str) {
        let mut seen = self.seen.lock();
        seen.begin(self.report.rounds + 1, failed);
    }

    fn killed(&self) -> usize {
        self.report.kills.values().sum()
    }

    fn report(&self) -> Report {
        let seen = self.seen.lock();
        Report {
            observations: seen.observations,
            lost: seen.lost.clone(),
            doubled: seen.doubled.clone(),
            ..self.report.clone()
        }
    }
}
