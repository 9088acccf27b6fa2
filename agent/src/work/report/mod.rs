//! Reports the states of objects in the status of their Works.

mod compose;
mod news;
mod reporter;
mod sent;

pub use self::reporter::Reporter;
