//! Propagates the dependencies of a workload (ConfigMaps, Secrets, ...) to its clusters.
//!
//! A binding whose policy has `propagateDeps` is a *referrer*. Each template on which it depends
//! gets an *attached* binding, which has no placement but a list of its referrers with their
//! clusters. Karmada works referrer by referrer, so that a ConfigMap that a thousand workloads
//! share is written a thousand times; here a template is handled once for all its referrers.
//!
//! Workloads that take nothing along are reported where they lack what they refer to.

mod attach;
mod controller;
mod former;
mod index;
pub(super) mod missing;
mod writes;

pub(super) use controller::start;
