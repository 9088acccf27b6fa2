//! How wrong the clocks of the control plane can be, by what happened to their calendars.
//!
//! A clock that runs follows its calendar by at most a tenth of the time that passes; one that
//! begins reads it as it is. What was written by a wrong clock stays, so that the error never
//! becomes smaller again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::clock::Skew;
use crate::fault_kind::FaultKind;
use crate::history::{Process, World};

/// One part of so many of the time that passes is how far a clock follows a calendar that jumped.
const SHARE: i32 = 10;

/// What is known of the clocks.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Calendars that are wrong now, by the numbers of the faults.
    skews: BTreeMap<u64, Skew>,
    /// The furthest that any clock of the control plane was ever wrong.
    error: SignedDuration,
    /// When time passed last.
    last: Timestamp,
}

impl Clocks {
    /// The furthest that any clock of the control plane was ever wrong.
    pub const fn error(&self) -> SignedDuration {
        self.error
    }

    /// Time passes.
    pub fn pass(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.last);
        self.last = now;
        let of_control_plane = |skew: &&Skew| {
            let process = skew.process.as_ref();
            process.is_none_or(|it| matches!(it, Process::ControlPlane(_)))
        };
        let skews = self.skews.values().filter(of_control_plane);
        let (mut furthest, mut is_any) = (SignedDuration::ZERO, false);
        for skew in skews {
            furthest = furthest.saturating_add(skew.at(now).abs());
            is_any = true;
        }
        if is_any && self.error < furthest {
            self.error = furthest.min(self.error.saturating_add(passed / SHARE));
        }
    }

    /// Takes note of what happens to the world.
    pub fn happen(&mut self, world: &World, now: Timestamp) {
        match world {
            World::FaultBegins { id, detail, .. } => {
                let skew = serde_json::from_value::<FaultKind>(Value::clone(detail)).ok();
                if let Some(skew) = skew.and_then(|kind| kind.skew(now)) {
                    self.skews.insert(*id, skew);
                }
            }
            World::FaultEnds { id } => {
                self.skews.remove(id);
            }
            World::Started(process @ Process::ControlPlane(_)) => {
                let skews = self.skews.values().filter(|it| it.concerns(process));
                let ahead = skews.fold(SignedDuration::ZERO, |sum, skew| {
                    sum.saturating_add(skew.at(now))
                });
                self.error = self.error.max(ahead.abs());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn begins(detail: Value) -> World {
        let kind = "x".to_owned();
        World::FaultBegins {
            id: 1,
            kind,
            detail,
        }
    }

    #[test]
    fn a_clock_follows_its_calendar_slowly_unless_it_begins() {
        let process = |name: &str, number: Value| json!({ name: number });
        let leader = process("controlPlane", json!(0));
        let agent = process("agent", json!("m1"));
        for (what, whose, started, seconds, expected) in [
            ("it runs", &leader, None, 100, 10),
            ("it runs for long", &leader, None, 100_000, 3_600),
            (
                "it begins",
                &leader,
                Some(Process::ControlPlane(0)),
                1,
                3_600,
            ),
            (
                "another begins",
                &leader,
                Some(Process::ControlPlane(1)),
                100,
                10,
            ),
            ("an agent's", &agent, None, 100_000, 0),
        ] {
            let mut clocks = Clocks::default();
            clocks.pass(at(0));
            let skew = json!({"kind": "skew", "process": whose, "jump": -3_600, "drift": 0});
            clocks.happen(&begins(skew), at(0));
            if let Some(process) = started {
                clocks.happen(&World::Started(process), at(0));
            }
            clocks.pass(at(seconds));
            clocks.happen(&World::FaultEnds { id: 1 }, at(seconds));
            clocks.pass(at(seconds + 9_999));
            assert_eq!(clocks.error().as_secs(), expected, "{what}");
        }
    }
}
