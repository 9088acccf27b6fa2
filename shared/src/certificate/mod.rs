//! Client certificates of agents: keys, signing requests, and their validation.
//!
//! An agent renews its certificate, `kubectl muster register` requests the first one, and the
//! control plane approves requests. Everything is pure, except that a key needs randomness.

pub mod answer;
mod der;
pub mod hash;
pub mod kubeconfig;
pub mod reading;
pub mod request;
pub mod subject;
pub mod validity;

pub use self::der::pem;
