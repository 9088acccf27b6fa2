//! From objects in the member back to the status of their Works, and from drift back to the
//! applier.
//!
//! Only kinds that Works mention are watched, and of those only objects that carry our label. An
//! object is held as long as it takes to interpret it; what stays is what its Work's status says
//! about it.

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
