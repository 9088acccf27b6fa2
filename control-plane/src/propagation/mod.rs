//! Brings templates to the clusters that were chosen for them, and their status back.
//!
//! `detector` makes a binding of each template that a policy selects, `binding` makes the Works of
//! each binding for its clusters, with what `overrides` change, and `status` collects what members
//! report. `data` says when replicated data changes its role and its workload may start.
//! `interpreters` keeps the rules by which objects are read up to date.

pub mod binding;
pub mod data;
pub mod detector;
pub(crate) mod interpreters;
pub(crate) mod overrides;
pub(crate) mod status;
