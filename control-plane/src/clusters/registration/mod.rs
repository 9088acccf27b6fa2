//! Registration: how a member's agent obtains its certificate for the fleet API.
//!
//! With a bootstrap token, a certificate can be requested. The approver approves requests that are
//! exactly those of an agent, from an author with the permission (SubjectAccessReview). `kubectl
//! muster token`, `register` and `unregister` do the rest.

pub mod access;
mod controller;
pub mod decide;
pub mod discovery;
mod roles;
pub mod token;

#[cfg(test)]
mod fuzz;

pub use controller::start;
