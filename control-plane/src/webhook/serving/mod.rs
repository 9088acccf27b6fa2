//! The certificate of the admission server, made and renewed by the control plane itself.
//!
//! The leader makes an authority with a certificate, names the authority to the fleet API in the webhook configurations, and then puts
//! certificate and key into a Secret of the fleet API, from which every replica serves. In this order, and with the authorities of older
//! certificates kept until they end, every certificate that any replica shows is trusted at any time.

mod controller;
mod decide;
mod issue;

pub(crate) use self::controller::start;
