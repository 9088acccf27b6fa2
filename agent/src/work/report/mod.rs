//! Reports the states of objects in the status of their Works.

mod compose;
mod events;
mod reporter;

pub use self::reporter::Reporter;
