//! What proves Muster: an embedded Kubernetes API, simulated members, faults, scenarios and benches, and the
//! sandbox that shows a newcomer a real failover.

pub mod apiserver;
pub mod harness;
pub mod member;
pub mod sandbox;
