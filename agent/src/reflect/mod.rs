//! Watches the objects of Works in the member, reports their statuses in the status of the Works,
//! and has differences repaired.
//!
//! Only kinds in Works are watched, and only objects with the fleet's label. An object is kept in
//! memory while it is interpreted; afterwards only what the Work's status says about it is kept.

mod compose;
mod follow;
mod index;
mod look;
mod missing;
mod news;
mod opened;
mod relist;
mod reporter;
mod sent;
mod statuses;
mod supervised;
mod waiting;
mod watches;

pub use self::look::{Look, ObjectStatus};
pub use self::missing::has_run;
pub use self::news::Trouble;
pub use self::reporter::Reporter;
pub use self::statuses::ObjectStatuses;
pub use self::waiting::Room;
pub use self::watches::Watches;
