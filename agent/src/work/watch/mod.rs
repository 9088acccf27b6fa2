//! Watches the objects of Works in the member, has their statuses reported, and has differences
//! repaired.
//!
//! Only kinds in Works are watched, and only objects with the fleet's label. [`kinds`] keeps one
//! watch for each kind, [`stream`] follows its events, and [`compare`] compares one object with its
//! Work.

mod compare;
mod index;
mod kinds;
mod opened;
mod relist;
mod stream;
mod waiting;

pub use self::kinds::Watches;
pub use self::waiting::Room;

#[cfg(test)]
mod tests;
