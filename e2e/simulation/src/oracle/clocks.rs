//! How wrong the clocks of the control plane can be, by what happened to the calendar of the fleet
//! API's server, which they follow. The calendars of their own machines do not matter.
//!
//! A clock that runs follows the calendar by at most a tenth of the time that passes; one that
//! begins reads it as it is. What was written by a wrong clock stays, so that the error never
//! becomes smaller again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::fault_kind::FaultKind;
use crate::history::{Api, Process, World};

/// One part of so many of the time that passes is how far a clock follows a calendar that jumped.
const SHARE: i32 = 10;

/// What is known of the clocks.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Jumps of the server's calendar that are not set right yet, by the numbers of the faults.
    jumps: BTreeMap<u64, SignedDuration>,
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

    /// How far the server's calendar is ahead of the true one at most.
    fn furthest(&self) -> SignedDuration {
        let jumps = self.jumps.values();
        jumps.fold(SignedDuration::ZERO, |sum, jump| {
            sum.saturating_add(jump.abs())
        })
    }

    /// Time passes.
    pub fn pass(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.last);
        self.last = now;
        let furthest = self.furthest();
        if self.error < furthest {
            self.error = furthest.min(self.error.saturating_add(passed / SHARE));
        }
    }

    /// Takes note of what happens to the world.
    pub fn happen(&mut self, world: &World) {
        match world {
            World::FaultBegins { id, detail, .. } => {
                let kind = serde_json::from_value::<FaultKind>(Value::clone(detail)).ok();
                if let Some(FaultKind::ServerClock {
                    api: Api::Fleet,
                    jump,
                }) = kind
                {
                    self.jumps.insert(*id, SignedDuration::from_secs(jump));
                }
            }
            World::FaultEnds { id } => {
                self.jumps.remove(id);
            }
            World::Started(Process::ControlPlane(_)) => {
                self.error = self.error.max(self.furthest());
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
    fn a_clock_follows_the_servers_calendar_slowly_unless_it_begins() {
        let server = |api: Value| json!({"kind": "serverClock", "api": api, "jump": -3_600});
        let fleet = server(json!("fleet"));
        let member = server(json!({"member": "m1"}));
        let own =
            json!({"kind": "skew", "process": {"controlPlane": 0}, "jump": 3_600, "drift": 0});
        for (what, fault, started, seconds, expected) in [
            ("it runs", &fleet, None, 100, 10),
            ("it runs for long", &fleet, None, 100_000, 3_600),
            (
                "it begins",
                &fleet,
                Some(Process::ControlPlane(1)),
                1,
                3_600,
            ),
            (
                "an agent begins",
                &fleet,
                Some(Process::Agent("m1".into())),
                100,
                10,
            ),
            (
                "a member's",
                &member,
                Some(Process::ControlPlane(0)),
                100,
                0,
            ),
            (
                "its machine's",
                &own,
                Some(Process::ControlPlane(0)),
                100,
                0,
            ),
        ] {
            let mut clocks = Clocks::default();
            clocks.pass(at(0));
            clocks.happen(&begins(Value::clone(fault)));
            if let Some(process) = started {
                clocks.happen(&World::Started(process));
            }
            clocks.pass(at(seconds));
            clocks.happen(&World::FaultEnds { id: 1 });
            clocks.pass(at(seconds + 9_999));
            assert_eq!(clocks.error().as_secs(), expected, "{what}");
        }
    }
}
