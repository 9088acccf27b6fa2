//! What a workload refers to (config maps, secrets, ...) goes where the workload goes.
//!
//! A binding whose policy says `propagateDeps` is a *referrer*. Each template that it refers to
//! gets an *attached* binding, which has no placement of its own but a list of its referrers with
//! their clusters. Karmada works referrer by referrer, so a config map that a thousand workloads
//! share is written a thousand times; here a template is worked on once for all its referrers.

mod attach;
mod controller;
mod index;
mod writes;

pub(super) use controller::start;
