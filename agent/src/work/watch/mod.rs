//! Watches the objects of Works in the member, has their statuses reported, and has differences
//! repaired.
//!
//! Only kinds in Works are watched, and only objects with the fleet's label.

mod follow;
mod index;
mod missing;
mod opened;
mod relist;
mod supervised;
mod waiting;
mod watches;

pub use self::waiting::Room;
pub use self::watches::Watches;
