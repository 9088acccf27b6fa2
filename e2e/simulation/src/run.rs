//! Runs one plan in this process, on a thread of its own, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::history::{Actor, History, Phase, Process, World as Event};
use crate::network::Watch;
use crate::pairs::Pairs;
use crate::plan::Plan;
use crate::random;
use crate::world::World;

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Digest of the history.
    pub digest: String,
    /// Entries of the history.
    pub entries: usize,
    /// What was wrong, the first first.
    pub violations: Vec<Violation>,
    /// How many times each kind of fault did something.
    pub faults: BTreeMap<String, u64>,
    /// Who has watched which kinds of which servers.
    pub watches: Vec<Watch>,
    /// Writes of each process in the busy phase that carry out or report decisions.
    pub decisions: Vec<(Process, u64)>,
    /// How often each pair of features met.
    #[serde(default)]
    pub pairs: Pairs,
    /// Virtual milliseconds that passed.
    pub lasted: u64,
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hours = Duration::from_millis(self.lasted).as_secs_f64() / 3600.0;
        writeln!(f, "digest {}", self.digest)?;
        writeln!(f, "{} entries in {hours:.2} virtual hours", self.entries)?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind}: {count}")?;
        }
        for violation in &self.violations {
            writeln!(f, "violated: {}", violation.text)?;
        }
        Ok(())
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The oracle that reports it.
    pub oracle: String,
    /// When, which object and what is wrong.
    pub text: String,
}

/// Runs a plan, and returns the history as well.
///
/// One simulation a process: tokio and others number what they make by counters of the process, and
/// a second simulation would find them elsewhere than the first.
///
/// # Errors
/// When the world could not be set up, the simulation panicked, or it is not the first one.
pub fn run(plan: Plan) -> anyhow::Result<(Report, History)> {
    static RAN: AtomicBool = AtomicBool::new(false);
    anyhow::ensure!(
        !RAN.swap(true, Ordering::SeqCst),
        "a process runs one simulation: the second would not follow from its seed alone"
    );
    muster_shared::tls::install_provider();
    let simulation = std::thread::Builder::new().stack_size(STACK).spawn(|| {
        random::seed_system(plan.seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .context("making a runtime")?;
        runtime.block_on(live(plan))
    })?;
    simulation
        .join()
        .map_err(|_| anyhow::anyhow!("the simulation panicked"))?
}

/// Violations that a report names, one of each oracle about an object.
const MOST_VIOLATIONS: usize = 50;

/// Bytes of the stack of a simulation: futures of debug builds are large.
const STACK: usize = 16 << 20;

async fn live(plan: Plan) -> anyhow::Result<(Report, History)> {
    let begun = Instant::now();
    let mut world = World::set_up(plan).await?;
    let end = world.run().await;
    let recorder = world.recorder();
    let violations = recorder.end(&end);
    let mut reported = BTreeSet::new();
    let history = recorder.take_history();
    let report = Report {
        digest: history.digest(),
        entries: history.entries().len(),
        violations: violations
            .iter()
            .filter(|violation| reported.insert((violation.oracle, violation.subject.clone())))
            .take(MOST_VIOLATIONS)
            .map(|violation| Violation {
                oracle: violation.oracle.to_owned(),
                text: violation.to_string(),
            })
            .collect(),
        watches: world.network().watches(),
        decisions: decisions(&history),
        pairs: Pairs::of(&history),
        faults: world.network().faults().counts(),
        lasted: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    Ok((report, history))
}

/// Counts the writes of each process that a fault of kind `crash` counts.
fn decisions(history: &History) -> Vec<(Process, u64)> {
    let mut is_busy = false;
    let mut counts = BTreeMap::new();
    for entry in history.entries() {
        if let Some(Event::Phase(phase)) = entry.world() {
            is_busy = *phase == Phase::Busy;
        }
        if let Some(request) = entry.request().filter(|_| is_busy)
            && !["leases", "events"].contains(&request.resource.plural.as_str())
            && let Actor::Process(process) = &request.actor
        {
            *counts.entry(process.clone()).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}
