//! Random numbers of a simulation: all of them follow from its seed.
//!
//! Two sources exist. Decisions of the simulation come from generators that are made here, one for
//! each purpose, so that leaving one decision out leaves all others as they were. What programs ask
//! of the operating system (keys of hash maps, jitter, names) comes from `mad-turmoil`, which
//! answers `getrandom` in its place.

use std::sync::Once;

use mad_turmoil::rand as system;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::people::Dice;

/// A generator for one purpose.
#[derive(Debug)]
pub struct Random(StdRng);

impl Random {
    /// Returns the generator of a seed for a purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a: the same on every machine.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let purpose = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        Self(StdRng::seed_from_u64(seed ^ purpose))
    }

    /// Returns a number from 0 to below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        self.0.random_range(0..end)
    }

    /// Returns whether something happens that happens so often in 1,000.
    pub fn per_mille(&mut self, share: u16) -> bool {
        self.below(1000) < u64::from(share)
    }
}

/// Lets all random numbers that programs of this process ask of the operating system follow from a
/// seed, from now on.
pub fn seed_system(seed: u64) {
    static SET: Once = Once::new();
    SET.call_once(|| system::set_rng(StdRng::seed_from_u64(seed)));
    *system::get_rng() = StdRng::seed_from_u64(seed);
}

impl Dice for Random {
    fn below(&mut self, end: u64) -> u64 {
        Self::below(self, end)
    }
}
