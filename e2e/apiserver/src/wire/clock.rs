//! Wall clock, identities and random names of one server. A server's clock can be wrong on purpose.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A wall clock with an offset.
#[derive(Debug)]
pub struct Clock {
    calendar: fn() -> Timestamp,
    offset_millis: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl Clock {
    /// Returns a clock that reads a calendar.
    pub const fn new(calendar: fn() -> Timestamp) -> Self {
        Self {
            calendar,
            offset_millis: AtomicI64::new(0),
        }
    }

    /// Returns the present time as this server sees it.
    pub fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_millis(self.offset_millis.load(Ordering::Relaxed));
        let now = (self.calendar)();
        now.checked_add(offset).unwrap_or(now)
    }

    /// Makes the clock wrong by this much: `behind` or ahead.
    pub fn shift(&self, by: Duration, behind: bool) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.offset_millis
            .store(if behind { -millis } else { millis }, Ordering::Relaxed);
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The standard library asks the system by a function that a simulation can replace.
    let state = RandomState::new();
    for (number, piece) in bytes.chunks_mut(8).enumerate() {
        let random = state.hash_one(number).to_le_bytes();
        piece.copy_from_slice(&random[..piece.len()]);
    }
    bytes
}

/// Bytes as pairs of hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            for digit in [byte >> 4, byte & 0x0f] {
                text.extend(char::from_digit(u32::from(digit), 16));
            }
            text
        })
}

/// Returns a random serial number.
pub fn serial() -> [u8; 16] {
    random()
}

/// Returns a random (version 4) UUID.
pub fn uid() -> String {
    let mut b: [u8; 16] = random();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    [&b[..4], &b[4..6], &b[6..8], &b[8..10], &b[10..]]
        .map(hex)
        .join("-")
}

/// Returns the five characters that follow a `generateName`: no vowels, so no words.
pub fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    random::<5>()
        .iter()
        .map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]))
        .collect()
}

/// Returns random bytes for secrets, in hex.
pub fn secret() -> String {
    hex(&random::<16>())
}
