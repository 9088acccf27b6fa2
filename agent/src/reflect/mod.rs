//! Reports the state of objects in the member in the status of their Works, and notifies the
//! applier of drift.
//!
//! Only kinds in Works are watched, and only objects with the fleet's label. An object is kept in
//! memory while it is interpreted; afterwards only what the Work's status says about it is kept.

mod compose;
mod known;
mod look;
mod news;
mod reflections;
mod reporter;
mod sent;
mod supervised;
mod watches;

pub use self::look::{Look, Reflection};
pub use self::news::Trouble;
pub use self::reflections::Reflections;
pub use self::reporter::Reporter;
pub use self::watches::Watches;
