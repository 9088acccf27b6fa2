//! Changes resources on their way to certain clusters, as OverridePolicies and
//! ClusterOverridePolicies say (Karmada: `pkg/util/overridemanager`).
//!
//! ClusterOverridePolicies come first, then the OverridePolicies of the resource's namespace; among
//! each, the least specific selector first, then by name, so that the most specific policy has the
//! last word ([`mod@select`]). OverridePolicies select by the labels that ClusterOverridePolicies
//! leave. Each rule that applies to the cluster changes the manifest ([`mod@apply`]): images,
//! commands, arguments, labels, annotations, embedded documents, then plain patches.
//!
//! An override must not change what identifies the resource: its API version, kind, namespace and
//! name. Karmada accepts that, and then no longer finds the status of the resource.

mod apply;
mod containers;
mod image;
mod limits;
mod patch;
mod pointer;
mod select;
mod yaml;

#[cfg(test)]
mod fuzz;

pub use self::apply::{Applied, apply};
pub use self::containers::path_of_containers;
#[cfg(test)]
pub use self::limits::DEEPEST_MANIFEST;
pub use self::limits::{check, shallow};
pub use self::pointer::fault as pointer_fault;
pub use self::select::{Policies, Selected, concerns};
