//! The answer as text.

use std::fmt;

use muster_control_plane::movement::eviction::explain::CONDITION;
use muster_shared::conditions;
use muster_shared::k8s::Condition;

use super::{Answer, Leaving, Unavailable};
use crate::table::{argument, count, title};

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.cluster, self.reason)?;
        if let Some(replicas) = self.replicas {
            write!(f, ", {}", count(replicas, "replica"))?;
        }
        if let Some(since) = &self.since {
            write!(f, ", since {}", since.0)?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.iter().map(|it| format!("{it}/"));
        let name: String = namespace.chain([self.name.clone()]).collect();
        write!(f, "{} {name}: {}", self.kind, self.workload)?;
        match self.replicas {
            Some(replicas) => writeln!(f, ", {}", count(replicas, "replica"))?,
            None => writeln!(f)?,
        }
        let each = self.clusters.iter().map(|it| match self.replicas {
            Some(_) => format!("{} ({})", it.name, it.replicas),
            None => it.name.clone(),
        });
        let each: Vec<String> = each.collect();
        let placed = if each.is_empty() {
            "no cluster".to_owned()
        } else {
            each.join(", ")
        };
        if let Some(placed_by) = &self.placed_by {
            writeln!(f, "Placed by: {placed_by}")?;
        }
        if let Some(priority) = self.priority {
            writeln!(f, "Priority: {priority}")?;
        }
        writeln!(f, "Placed on: {placed}")?;
        for Unavailable { cluster, reason } in &self.unavailable {
            writeln!(f, "Not available: {cluster} {reason}")?;
        }
        for leaving in &self.leaving {
            writeln!(f, "Leaving: {leaving}")?;
            for waits_for in &leaving.waits_for {
                writeln!(f, "  its copy there waits: {waits_for}")?;
            }
        }
        list(f, "Old copy", &self.old_copies)?;
        for condition in &self.conditions {
            let Condition {
                type_,
                status,
                reason,
                message,
                last_transition_time,
                ..
            } = condition;
            let since = last_transition_time.0;
            writeln!(f, "{type_}={status} since {since}: {reason} {message}")?;
        }
        list(f, "Moved", &self.moves)?;
        if let Some(nobody) = &self.nobody_leads {
            writeln!(
                f,
                "Leader: {nobody}: nothing of what follows is done before a control plane does"
            )?;
        }
        if let Some(paused) = &self.paused {
            writeln!(f, "Stays where it is: {paused}")?;
        }
        if let Some(unread) = &self.pause_unread {
            writeln!(f, "Pause: {unread}")?;
        }
        if let Some(suspended) = &self.suspended {
            writeln!(f, "Suspended: {suspended}")?;
        }
        list(f, "Data", &self.data)?;
        list(f, "Would help", &self.would_help)?;
        list(f, "Failback", &self.returns)?;
        if let Some(held_back) = &self.held_back {
            writeln!(f, "Not scheduled here: {held_back}")?;
        }
        if self.attempts.is_empty() {
            return writeln!(f, "\n{}", self.verdict);
        }
        writeln!(f, "{}", self.verdict)?;
        for attempt in &self.attempts {
            let group = &attempt.group;
            if !group.is_empty() {
                write!(f, "\nAffinity group {group}:")?;
            }
            write!(f, "\n{attempt}")?;
        }
        Ok(())
    }
}

impl Answer {
    /// Returns what will become of the workload, in a sentence before the attempts to schedule it.
    pub(super) fn judged(&self) -> String {
        let is_down = !self.unavailable.is_empty();
        let words = match &self.need {
            _ if self.attempts.is_empty() => match &self.placed_by {
                Some(_) if !self.clusters.is_empty() => {
                    "It is placed where the workloads that refer to it are."
                }
                _ => "It has no placement: no policy has been applied to it yet.",
            },
            _ if conditions::is_true(&self.conditions, CONDITION) => {
                "It has to leave a cluster; EvictionPending above says what for and when. Where it could go:"
            }
            None if is_down => {
                return format!(
                    "So far nothing moves it off the clusters that are not available; kubectl muster status says what comes next there. If it were scheduled now ({}):",
                    self.rebalance()
                );
            }
            Some(_) if self.settled && is_down => {
                "So far nothing moves it off the clusters that are not available; kubectl muster status says what comes next there. A new schedule would change nothing."
            }
            None => {
                return format!(
                    "It stays where it is. If somebody asked for it ({}), it would be placed so:",
                    self.rebalance()
                );
            }
            Some(_) if self.settled => {
                "It is where it should be: a new schedule would change nothing."
            }
            Some(need) => return format!("To be scheduled: {need}"),
        };
        words.to_owned()
    }

    /// Returns the command that has the workload placed anew.
    fn rebalance(&self) -> String {
        let (kind, name) = self.workload.split_once(' ').unwrap_or_default();
        let title = title(kind, self.namespace.as_deref(), name);
        format!("kubectl muster rebalance {}", argument(&title))
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    lines
        .iter()
        .try_for_each(|line| writeln!(f, "{title}: {line}"))
}
