//! Certificates by which the fleet API knows an agent: a key and a request for one, what a request
//! asks for, and what became of it.
//!
//! Both sides need it: an agent renews its certificate, `kubectl muster register` asks for the
//! first one, and the control plane approves what is exactly right. Pure, but for the randomness of
//! a key.

pub mod answer;
mod der;
pub mod reading;
pub mod request;
pub mod subject;
pub mod validity;

pub use self::der::pem;
