//! Last seen state of the objects of each Work. An object is kept in memory while it is
//! interpreted; afterwards only what the Work's status says about it is kept.

mod interpretation;
mod statuses;

pub use self::interpretation::{Interpretation, Note, ObjectStatus, Trouble};
pub use self::statuses::ObjectStatuses;
