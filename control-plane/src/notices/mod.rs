//! Notifies people and programs of failovers: CloudEvents or messages for chats over HTTP, to the
//! receivers of `--notice-receivers`, when a failover begins, is held, resumes, is healed, when its
//! cause is over, and when it ends.
//!
//! The records of failovers are what is reported; nothing is decided by whether it was.
//!
//! - [`due`]: which notice is due, by the record and by what a receiver was sent.
//! - [`event`], [`body`]: what it says, and in which form.
//! - [`pacing`]: whether it is sent now.
//! - [`sending`], [`signature`]: the request.

mod body;
mod controller;
mod due;
mod event;
mod pacing;
mod sending;
mod signature;
#[cfg(test)]
mod testing;

pub use controller::start;
use muster_shared::settings::Error;

use crate::settings::Settings;

/// Checks the templates of the receivers, which the settings alone cannot.
///
/// # Errors
/// When one cannot be used; the error names the receiver.
pub fn check(settings: &Settings) -> Result<(), Error> {
    for receiver in &settings.notice_receivers.0 {
        body::check(receiver).map_err(|problem| receiver.refused(&problem))?;
    }
    Ok(())
}
