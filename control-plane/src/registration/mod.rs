//! Registration: how a member's agent gets the certificate by which the fleet API knows it.
//!
//! A bootstrap token lets somebody ask for a certificate; the approver lets through what is exactly an agent's, asked for by
//! somebody who may (SubjectAccessReview). The rest of it is done by `kubectl muster token`, `register` and `unregister`.

pub mod access;
mod controller;
pub mod decide;
pub mod discovery;
pub mod token;

pub use controller::start;
