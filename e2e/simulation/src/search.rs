//! Searches seeds for violations, and shrinks what is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::child::Child;
use crate::generate::{self, Scale};
use crate::pairs::Pairs;
use crate::people::Mix;
use crate::plan::Plan;
use crate::run::{Report, Violation};
use crate::shrink::shrink;
use crate::sieve;

/// What to search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The program that runs plans.
    pub child: Child,
    /// How large plans are; their mix follows from the seed.
    pub scale: Scale,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds; none for as many as there is time for.
    pub count: Option<u64>,
    /// Seconds after which no seed is begun any more; none for no limit.
    pub seconds: Option<f64>,
    /// Processes at a time.
    pub jobs: usize,
    /// Runs that may be spent on shrinking one failure; 0 to shrink nothing.
    pub attempts: usize,
    /// Directory for the plans that failed.
    pub directory: Option<PathBuf>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Seeds that were run.
    pub seeds: u32,
    /// Virtual time.
    pub virtual_time: Duration,
    /// How many times each kind of fault did something.
    pub faults: BTreeMap<String, u64>,
    /// How often each pair of features met.
    pub pairs: Pairs,
    /// Failures by seed.
    pub failures: BTreeMap<u64, String>,
    /// Seconds that the search took.
    pub took: f64,
}

/// Returns the plan of a seed. People wish for much or for little, in turn.
pub fn plan_of(seed: u64, scale: Scale) -> Plan {
    let mixes = [Mix::DRAINS, Mix::OPERATIONS, Mix::EVERYTHING];
    let mix = mixes[usize::try_from(seed % 3).unwrap_or_default()];
    generate::plan(seed, Scale { mix, ..scale })
}

/// Seconds since the machine was started. The clocks of the standard library stand still in a
/// program that can simulate.
pub fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let first = text.split_whitespace().next().unwrap_or_default();
    first.parse().unwrap_or_default()
}

impl Search {
    /// Runs seeds until there are no more of them, or no more time.
    pub fn run(&self) -> Findings {
        self.search(uptime(), |number, findings| {
            let is_left = self.count.is_none_or(|count| number < count);
            if is_left {
                let seed = self.seed + number;
                let plan = plan_of(seed, self.scale);
                self.try_plan(seed, &format!("seed {seed}"), &plan, findings);
            }
            is_left
        })
    }

    /// Runs each perturbation of a plan, with the name of each.
    ///
    /// # Errors
    /// When the undisturbed plan cannot be run, or violates a promise by itself.
    pub fn sieve(&self, plan: &Plan) -> anyhow::Result<Findings> {
        let begun = uptime();
        let report = self.child.run(plan)?;
        let first = report.violations.first();
        anyhow::ensure!(first.is_none(), "undisturbed: {first:?}");
        let plans = sieve::plans(plan, &report);
        Ok(self.search(begun, |number, findings| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let found = plans.get(at);
            if let Some((name, plan)) = found {
                self.try_plan(number, name, plan, findings);
            }
            found.is_some()
        }))
    }

    /// Makes attempts by their numbers, several at a time, until one says that there are no more,
    /// or there is no more time since `begun`.
    fn search(
        &self,
        begun: f64,
        attempt: impl Fn(u64, &Mutex<Findings>) -> bool + Sync,
    ) -> Findings {
        let (next, findings) = (AtomicU64::new(0), Mutex::new(Findings::default()));
        let is_late = || self.seconds.is_some_and(|limit| uptime() - begun > limit);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while !is_late() && attempt(next.fetch_add(1, Ordering::Relaxed), &findings) {}
                });
            }
        });
        let mut findings = findings.into_inner();
        findings.took = uptime() - begun;
        findings
    }

    fn try_plan(&self, seed: u64, name: &str, plan: &Plan, findings: &Mutex<Findings>) {
        let outcome = self.child.run(plan);
        let failure = match &outcome {
            Ok(report) if report.violations.is_empty() => None,
            Ok(report) => Some(self.describe(name, plan, report)),
            Err(error) => Some(format!("{name}: {error:#}")),
        };
        let mut findings = findings.lock();
        findings.seeds += 1;
        if let Ok(report) = outcome {
            findings.virtual_time += Duration::from_millis(report.lasted);
            for (kind, count) in report.faults {
                *findings.faults.entry(kind).or_default() += count;
            }
            findings.pairs.add(&report.pairs);
        }
        if let Some(failure) = failure {
            eprintln!("{failure}");
            findings.failures.insert(seed, failure);
        }
    }

    /// Shrinks a failure and says what it is.
    fn describe(&self, name: &str, plan: &Plan, report: &Report) -> String {
        let mut text = format!("{name}: {} violations\n", report.violations.len());
        for violation in first_of_each(&report.violations) {
            let _ = writeln!(text, "  {}", violation.text);
        }
        if self.attempts == 0 {
            return text;
        }
        let oracle = &report.violations[0].oracle;
        let small = shrink(plan, self.attempts, |plan| {
            let report = self.child.run(plan);
            report.is_ok_and(|report| report.violations.iter().any(|it| it.oracle == *oracle))
        });
        let _ = writeln!(
            text,
            "  the shortest plan that violates {oracle}: {} faults, {} steps, {} objects",
            small.faults.len(),
            small.steps.len(),
            small.objects.len()
        );
        for fault in &small.faults {
            let fault = serde_json::to_string(fault).unwrap_or_default();
            let _ = writeln!(text, "    {fault}");
        }
        for step in &small.steps {
            let step = serde_json::to_string(step).unwrap_or_default();
            let _ = writeln!(text, "    {step}");
        }
        if let Some(directory) = &self.directory {
            let path = directory.join(format!("seed-{}.json", plan.seed));
            let json = serde_json::to_string(&small).unwrap_or_default();
            let saved =
                std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, json));
            let _ = match saved {
                Ok(()) => writeln!(
                    text,
                    "  who did what: simulate plan --story < {}",
                    path.display()
                ),
                Err(error) => writeln!(text, "  {} cannot be written: {error}", path.display()),
            };
        }
        text
    }
}

/// Returns the first violation of each oracle.
fn first_of_each(violations: &[Violation]) -> impl Iterator<Item = &Violation> {
    let mut reported = BTreeSet::new();
    violations
        .iter()
        .filter(move |it| reported.insert(&it.oracle))
}

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hours = self.took / 3600.0;
        let virtual_hours = self.virtual_time.as_secs_f64() / 3600.0;
        writeln!(
            f,
            "{} seeds in {:.0} s ({:.0} an hour), {virtual_hours:.1} virtual hours, {} failures",
            self.seeds,
            self.took,
            f64::from(self.seeds) / hours,
            self.failures.len()
        )?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind}: {count}")?;
        }
        write!(f, "{}", self.pairs)?;
        let seeds: Vec<String> = self.failures.keys().map(u64::to_string).collect();
        if !seeds.is_empty() {
            writeln!(f, "failed: {}", seeds.join(" "))?;
        }
        Ok(())
    }
}
