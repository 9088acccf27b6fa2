//! When each milestone was reached.

use std::time::Duration;

use tokio::time::Instant;

/// A point of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Since the start.
    pub at: Duration,
    /// What happened.
    pub what: String,
}

/// The milestones so far.
#[derive(Clone, Debug)]
pub struct Timeline {
    begun: Instant,
    milestones: Vec<Milestone>,
}

impl Timeline {
    /// Begins now.
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
            milestones: Vec::new(),
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes a milestone, now.
    pub fn reach(&mut self, what: impl Into<String>) {
        self.milestones.push(Milestone {
            at: self.begun.elapsed(),
            what: what.into(),
        });
    }

    /// Returns the milestones with their distances, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut before = Duration::ZERO;
        let mut lines = Vec::new();
        for Milestone { at, what } in &self.milestones {
            let step = at.saturating_sub(before);
            lines.push(format!(
                "{:>6.1} s  {:>8}  {what}",
                at.as_secs_f64(),
                format!("+{:.1} s", step.as_secs_f64())
            ));
            before = *at;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn milestones_show_the_time_and_the_distance() {
        let mut timeline = Timeline::begin();
        tokio::time::advance(Duration::from_millis(1500)).await;
        timeline.reach("cut");
        tokio::time::advance(Duration::from_secs(5)).await;
        timeline.reach("unknown");
        assert_eq!(
            timeline.lines(),
            ["   1.5 s    +1.5 s  cut", "   6.5 s    +5.0 s  unknown"]
        );
    }
}
