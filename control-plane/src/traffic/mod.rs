//! Keeps host names pointing at the clusters in which a workload is healthy: a `DNSEndpoint` of
//! external-dns for each Service or Ingress template that asks for one by an annotation
//! (`--traffic-dns-endpoints`).
//!
//! The addresses are those that the members report of their load balancers. A name that was
//! published never loses its last address: while no copy is known to serve, the last known
//! addresses stay, and a condition and an event say so.
//!
//! - [`request`]: what a template asks for.
//! - [`copies`]: where a copy serves, and with which addresses.
//! - [`decide`]: which addresses the name gets.
//! - [`endpoint`]: the object that says so.
//! - [`explain`]: what is reported on the binding.
//! - `write`: the writes.

mod controller;
mod copies;
mod decide;
mod endpoint;
mod explain;
mod hostnames;
mod request;
mod write;

pub use controller::start;
