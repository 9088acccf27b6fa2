//! Measures the duration of each step of a schedule.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Filtering of clusters.
    Filter,
    /// Scoring of clusters.
    Score,
    /// Estimating capacity, and selecting under the spread constraints.
    Select,
    /// Dividing replicas.
    AssignReplicas,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 4] = [
        Self::Filter,
        Self::Score,
        Self::Select,
        Self::AssignReplicas,
    ];

    /// Returns the name, as Karmada has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "Filter",
            Self::Score => "Score",
            Self::Select => "Select",
            Self::AssignReplicas => "AssignReplicas",
        }
    }
}

/// The time that each step took over all attempts of a pass; nothing for a step that was not
/// finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent([Option<Duration>; Step::ALL.len()]);

impl Spent {
    /// Returns the steps that were finished, with the time that each took.
    pub fn iter(&self) -> impl Iterator<Item = (Step, Duration)> {
        let all = Step::ALL.into_iter().zip(self.0);
        all.filter_map(|(step, spent)| Some((step, spent?)))
    }
}

/// Takes the time of steps that follow each other.
#[derive(Debug)]
pub struct StepTimer {
    last: Cell<Instant>,
    spent: Cell<Spent>,
}

impl StepTimer {
    /// Starts the timer: the first step begins.
    pub fn start() -> Self {
        Self {
            last: Cell::new(Instant::now()),
            spent: Cell::default(),
        }
    }

    /// Ends a step, and begins the next one.
    pub fn lap(&self, step: Step) {
        let now = Instant::now();
        let lap = now.duration_since(self.last.replace(now));
        let mut spent = self.spent.get();
        let sum = &mut spent.0[step as usize];
        *sum = Some(sum.unwrap_or_default() + lap);
        self.spent.set(spent);
    }

    /// Returns the time taken so far.
    pub fn spent(&self) -> Spent {
        self.spent.get()
    }
}
