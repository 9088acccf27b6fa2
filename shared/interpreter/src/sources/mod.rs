//! Follows the users' interpreters, which are objects of the fleet API, and feeds
//! [`Interpreters`](crate::Interpreters).

mod confirmed;
mod customizations;
mod interpreter_webhooks;
mod readable;

pub use customizations::{Customizations, FAILED, scripts};
pub use interpreter_webhooks::InterpreterWebhooks;
