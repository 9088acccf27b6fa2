//! Limits of one call of a script, and their enforcement.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mlua::Error as LuaError;

/// Limits of one call of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, those of the object that it is given included.
    pub memory: usize,
    /// Instructions of Lua's virtual machine. Work inside library functions counts as instructions
    /// in proportion to its size.
    pub instructions: u64,
    /// Time by the wall clock.
    pub time: Duration,
}

impl Default for Limits {
    /// Returns limits of 64 MiB, 20 million instructions, and the one second of Karmada. A status
    /// of 100,000 entries takes a few percent of each.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            instructions: 20_000_000,
            time: Duration::from_secs(1),
        }
    }
}

/// Limit that a script ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of memory.
    Memory(usize),
    /// Instructions of the virtual machine.
    Instructions(u64),
    /// Time by the wall clock.
    Time(Duration),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => write!(f, "{} KiB of memory", bytes >> 10),
            Self::Instructions(count) => write!(f, "{count} instructions"),
            Self::Time(time) => write!(f, "{} ms", time.as_millis()),
        }
    }
}

const WITHIN: u8 = 0;
const MEMORY: u8 = 1;
const INSTRUCTIONS: u8 = 2;
const TIME: u8 = 3;

/// What the present call may still use. Shared between a state and the functions that it calls.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    left: AtomicU64,
    /// Microseconds of [`now`] at which the call ends.
    deadline: AtomicU64,
    exceeded: AtomicU8,
}

/// Returns this moment, by the clock that measures how long scripts run: never a paused one, by
/// which they would have no limit.
#[allow(clippy::disallowed_methods)] // the one place
pub(crate) fn moment() -> Instant {
    Instant::now()
}

/// Microseconds since the first call of this function.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(moment).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        let budget = Self {
            limits,
            left: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            exceeded: AtomicU8::new(WITHIN),
        };
        budget.start();
        budget
    }

    /// Begins a call.
    pub(crate) fn start(&self) {
        let time = u64::try_from(self.limits.time.as_micros()).unwrap_or(u64::MAX);
        self.left.store(self.limits.instructions, Ordering::Relaxed);
        self.deadline
            .store(now().saturating_add(time), Ordering::Relaxed);
        self.exceeded.store(WITHIN, Ordering::Relaxed);
    }

    /// Takes instructions from the call; an error if there are not so many left, or no time. Once a
    /// limit was exceeded, every further call of this is an error.
    pub(crate) fn spend(&self, instructions: u64) -> Result<(), LuaError> {
        self.within()?;
        let left = self.left.load(Ordering::Relaxed);
        if left < instructions {
            return self.exceed(INSTRUCTIONS);
        }
        self.left.store(left - instructions, Ordering::Relaxed);
        if now() > self.deadline.load(Ordering::Relaxed) {
            return self.exceed(TIME);
        }
        Ok(())
    }

    /// Returns an error if a limit was exceeded before.
    pub(crate) fn within(&self) -> Result<(), LuaError> {
        match self.limit() {
            None => Ok(()),
            Some(limit) => Err(LuaError::RuntimeError(format!("limit of {limit}"))),
        }
    }

    /// Notes that memory ran out.
    pub(crate) fn exceed_memory(&self) {
        self.exceeded.store(MEMORY, Ordering::Relaxed);
    }

    fn exceed(&self, what: u8) -> Result<(), LuaError> {
        self.exceeded.store(what, Ordering::Relaxed);
        self.within()
    }

    /// Returns the limit that the call has exceeded.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self.exceeded.load(Ordering::Relaxed) {
            MEMORY => Some(Limit::Memory(self.limits.memory)),
            INSTRUCTIONS => Some(Limit::Instructions(self.limits.instructions)),
            TIME => Some(Limit::Time(self.limits.time)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_was_exceeded_stays_exceeded_until_the_next_call() {
        let budget = Budget::new(Limits {
            instructions: 10,
            ..Limits::default()
        });
        assert!(budget.spend(10).is_ok());
        assert!(budget.spend(1).is_err());
        assert!(budget.spend(0).is_err());
        assert_eq!(budget.limit(), Some(Limit::Instructions(10)));
        budget.start();
        assert!(budget.spend(1).is_ok());
        assert_eq!(budget.limit(), None);
    }

    #[test]
    fn limits_are_reported_in_their_units() {
        let said = [
            Limit::Memory(64 << 20),
            Limit::Instructions(5),
            Limit::Time(Duration::from_secs(1)),
        ]
        .map(|limit| limit.to_string());
        assert_eq!(said, ["65536 KiB of memory", "5 instructions", "1000 ms"]);
    }
}
