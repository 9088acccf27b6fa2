//! The record of the last renewal in the member, from which the next process of an agent knows how
//! long the member has been cut off.
//!
//! A process on the same machine compares uptimes, which no change of the calendar moves. A process
//! on another machine knows only that the record changed between two of its reads.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use muster_shared::clock::uptime;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use crate::records::DEADLINE;
use crate::records::Records;

/// Field manager of the record and of stops.
pub const FIELD_MANAGER: &str = "muster-agent-fencing";

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Boot of the machine on which the writer ran.
    pub boot: String,
    /// Uptime of that machine at which the last acknowledged renewal was sent.
    pub uptime_millis: u64,
    /// Age of that renewal when the record was written.
    pub age_millis: u64,
    /// Kinds with fenced objects.
    pub kinds: BTreeSet<String>,
}

/// The machine on which the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Identity of its present boot; empty if it is not known.
    pub boot: String,
    /// Time since that boot, including time in which the machine was suspended.
    pub uptime: Duration,
}

impl Machine {
    /// Reads boot and uptime from the kernel.
    pub fn now() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        match (boot, uptime()) {
            (Ok(boot), Some(uptime)) => Self {
                boot: boot.trim().to_owned(),
                uptime,
            },
            _ => Self::default(),
        }
    }

    /// Returns a machine that runs as long as the runtime does, whose time may be paused.
    pub fn of_runtime() -> Self {
        static BOOT: OnceLock<Instant> = OnceLock::new();
        Self {
            boot: "runtime".to_owned(),
            uptime: BOOT.get_or_init(Instant::now).elapsed(),
        }
    }
}

impl Record {
    /// Makes the record of a renewal that was sent at a time.
    pub fn of(sent: Instant, now: Instant, machine: &Machine, kinds: BTreeSet<String>) -> Self {
        let age = now.saturating_duration_since(sent);
        Self {
            boot: machine.boot.clone(),
            uptime_millis: millis(machine.uptime.saturating_sub(age)),
            age_millis: millis(age),
            kinds,
        }
    }

    /// Returns a time at or before the last renewal; `None` if nothing is known of it. `changed` is
    /// the time of the last read that showed another renewal, if there was one.
    pub fn bound(
        &self,
        machine: &Machine,
        changed: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let uptime = Duration::from_millis(self.uptime_millis);
        let is_here = !self.boot.is_empty() && self.boot == machine.boot;
        if let Some(age) = machine.uptime.checked_sub(uptime).filter(|_| is_here) {
            return now.checked_sub(age);
        }
        changed?.checked_sub(Duration::from_millis(self.age_millis) + DEADLINE)
    }

    /// Returns whether another record is about the same renewal.
    pub fn is_of_same_renewal(&self, other: &Self) -> bool {
        (&self.boot, self.uptime_millis) == (&other.boot, other.uptime_millis)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The place of the record in the member.
pub type Store = Records<Record>;

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: &str, uptime: u64) -> Machine {
        Machine {
            boot: boot.to_owned(),
            uptime: Duration::from_secs(uptime),
        }
    }

    #[test]
    fn the_next_process_on_the_machine_knows_when_the_lease_was_renewed() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let sent = now.checked_sub(s(2)).unwrap();
        let record = Record::of(sent, now, &machine("a", 1_000), BTreeSet::new());
        for (what, machine, changed, age) in [
            ("the same machine", machine("a", 1_050), None, Some(52)),
            (
                "however the record changed",
                machine("a", 1_050),
                Some(10),
                Some(52),
            ),
            ("another machine", machine("b", 1_050), None, None),
            (
                "another machine that saw it change",
                machine("b", 5),
                Some(10),
                Some(15),
            ),
            ("an uptime that cannot be", machine("a", 10), None, None),
            ("an unknown machine", machine("", 1_050), None, None),
        ] {
            let changed = changed.map(|age| now.checked_sub(s(age)).unwrap());
            let bound = record.bound(&machine, changed, now);
            assert_eq!(bound.map(|bound| (now - bound).as_secs()), age, "{what}");
        }
    }

    #[test]
    fn a_record_without_a_boot_says_nothing() {
        let record = Record::default();
        assert_eq!(record.bound(&machine("", 10), None, Instant::now()), None);
    }

    #[test]
    fn this_machine_has_a_boot_and_an_uptime() {
        let machine = Machine::now();
        assert!(!machine.boot.is_empty() && machine.uptime > Duration::ZERO);
        assert!(Machine::now().uptime >= machine.uptime);
    }
}
