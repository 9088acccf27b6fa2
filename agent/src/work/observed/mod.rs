//! Last seen state of the objects of each Work. An object is kept in memory while it is
//! interpreted; afterwards only what the Work's status says about it is kept.

mod look;
mod statuses;

pub use self::look::{Look, Note, ObjectStatus, Trouble};
pub use self::statuses::ObjectStatuses;
