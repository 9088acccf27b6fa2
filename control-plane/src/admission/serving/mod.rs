//! Certificate of the admission server, created and renewed by the control plane.
//!
//! The leader creates an authority and a certificate, publishes the authority in the webhook
//! configurations, and then stores certificate and key in a Secret of the fleet API, from which
//! every replica serves. In this order, and with older authorities kept until they expire, every
//! certificate that a replica serves is trusted at any time.

mod controller;
mod decide;
mod issue;

pub(crate) use self::controller::start;
