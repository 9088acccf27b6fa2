//! How wrong the clocks of the control plane can be, by what happened to the calendar of the fleet
//! API's server, which they follow. The calendars of their own machines do not matter.
//!
//! A clock that runs follows the calendar by at most a tenth of the time that passes; one that
//! begins reads it as it is in the first answer, and one that gets no answers goes on with what it
//! knows. What was written by a wrong clock stays, so that the error never becomes smaller again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::fault_kind::FaultKind;
use crate::history::{Api, Process, World};

/// One part of so many of the time that passes is how far a clock follows a calendar that jumped.
const SHARE: i32 = 10;

/// For how long answers have to contradict what a process knows of the calendar until it believes
/// them, with time to spare.
const CONFIRMED: SignedDuration = SignedDuration::from_secs(15);

/// What is known of the clocks.
#[derive(Debug, Default)]
pub struct Clocks {
    /// Jumps of the server's calendar that are not set right yet, by the numbers of the faults.
    jumps: BTreeMap<u64, SignedDuration>,
    /// What processes know of the calendar that run; by the number of the control plane.
    known: BTreeMap<u8, Known>,
    /// Faults that go on.
    faults: BTreeSet<u64>,
    /// When the last of them ended.
    calm_since: Timestamp,
    /// The furthest that any clock of the control plane was ever wrong.
    error: SignedDuration,
    /// When time passed last.
    last: Timestamp,
}

/// What a process knows of the calendar.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Whether it was answered, so that it knows the calendar. The history has writes only;
    /// while there are faults it is not certain before one.
    is_answered: bool,
    /// How far the calendar was wrong before it was set right.
    former: SignedDuration,
    /// When it was answered for the first time since then.
    since: Option<Timestamp>,
}

impl Clocks {
    /// Returns the most by which any clock of the control plane was ever wrong.
    pub const fn error(&self) -> SignedDuration {
        self.error
    }

    /// Returns how far the server's calendar is ahead of the true one at most.
    fn furthest(&self) -> SignedDuration {
        let jumps = self.jumps.values();
        jumps.fold(SignedDuration::ZERO, |sum, jump| {
            sum.saturating_add(jump.abs())
        })
    }

    /// Notes that time passes.
    pub fn pass(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.last);
        self.last = now;
        if self.known.values().any(|known| !known.is_answered) {
            self.error = self.error.max(self.furthest());
        }
        let former = self.known.values().map(|known| known.former).max();
        let furthest = self.furthest().saturating_add(former.unwrap_or_default());
        if self.error < furthest {
            self.error = furthest.min(self.error.saturating_add(passed / SHARE));
        }
        let is_calm = self.faults.is_empty();
        if is_calm && now.duration_since(self.calm_since) >= CONFIRMED {
            for known in self.known.values_mut() {
                (known.is_answered, known.former) = (true, SignedDuration::ZERO);
            }
        }
    }

    /// Notes that a write of a process of the control plane is answered by the fleet API.
    pub fn answer(&mut self, process: u8) {
        let now = self.last;
        let known = self.known.entry(process).or_default();
        known.is_answered = true;
        let since = *known.since.get_or_insert(now);
        if now.duration_since(since) >= CONFIRMED {
            known.former = SignedDuration::ZERO;
        }
    }

    /// Takes note of what happens to the world.
    pub fn happen(&mut self, world: &World) {
        match world {
            World::FaultBegins { id, detail, .. } => {
                self.faults.insert(*id);
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
                self.faults.remove(id);
                self.calm_since = self.last;
                let Some(jump) = self.jumps.remove(id) else {
                    return;
                };
                for known in self.known.values_mut() {
                    known.former = known.former.saturating_add(jump.abs());
                    known.since = None;
                }
            }
            World::Started(Process::ControlPlane(process)) => {
                let known = Known {
                    is_answered: self.faults.is_empty(),
                    ..Known::default()
                };
                self.known.insert(*process, known);
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

    fn jump(api: &Value) -> Value {
        json!({"kind": "serverClock", "api": api, "jump": -3_600})
    }

    #[test]
    fn a_clock_follows_the_servers_calendar_slowly_unless_it_begins() {
        let fleet = jump(&json!("fleet"));
        let member = jump(&json!({"member": "m1"}));
        let process = json!({"controlPlane": 0});
        let own = json!({"kind": "skew", "process": process, "jump": 3_600, "drift": 0});
        let leader = || Some(Process::ControlPlane(0));
        let other = Some(Process::ControlPlane(1));
        let agent = Some(Process::Agent("m1".into()));
        for (what, fault, started, seconds, expected) in [
            ("it runs", &fleet, None, 100, 11),
            ("it runs for long", &fleet, None, 100_000, 3_600),
            ("it begins", &fleet, other, 1, 3_600),
            ("an agent begins", &fleet, agent, 100, 11),
            ("a member's", &member, leader(), 100, 0),
            ("its machine's", &own, leader(), 100, 0),
        ] {
            let mut clocks = Clocks::default();
            clocks.pass(at(0));
            for process in [0, 1] {
                clocks.happen(&World::Started(Process::ControlPlane(process)));
                clocks.answer(process);
            }
            clocks.happen(&begins(Value::clone(fault)));
            if let Some(process) = started {
                clocks.happen(&World::Started(process));
                clocks.pass(at(0));
                clocks.answer(1);
            }
            clocks.pass(at(seconds));
            clocks.happen(&World::FaultEnds { id: 1 });
            for later in [0, 15] {
                clocks.pass(at(seconds + later));
                for process in [0, 1] {
                    clocks.answer(process);
                }
            }
            clocks.pass(at(seconds + 9_999));
            assert_eq!(clocks.error().as_secs(), expected, "{what}");
        }
    }

    #[test]
    fn a_clock_begins_with_the_first_answer_and_goes_on_without_one() {
        let other = |id| World::FaultBegins {
            id,
            kind: "x".to_owned(),
            detail: json!({}),
        };
        // Whether the process is cut off when it starts, and until when after the jump.
        for (is_cut_off, until, expected) in
            [(true, 600, 3_600), (false, 600, 61), (false, 100, 11)]
        {
            let mut clocks = Clocks::default();
            clocks.pass(at(0));
            if is_cut_off {
                clocks.happen(&other(2));
            }
            clocks.happen(&World::Started(Process::ControlPlane(0)));
            clocks.happen(&other(3));
            clocks.happen(&begins(jump(&json!("fleet"))));
            clocks.pass(at(100));
            clocks.happen(&World::FaultEnds { id: 1 });
            clocks.pass(at(until));
            clocks.answer(0);
            clocks.happen(&World::FaultEnds { id: 2 });
            clocks.happen(&World::FaultEnds { id: 3 });
            for second in [15, 9_999] {
                clocks.pass(at(until + second));
            }
            assert_eq!(clocks.error().as_secs(), expected, "{is_cut_off} {until}");
        }
    }
}
