//! Fencing: no second copy of a workload before the first one is removed or certainly stopped.
//!
//! The agent of a cluster that is cut off stops the copy there (see the agent's crate). The control
//! plane waits twice. The eviction of a cluster that is not ready waits, so that nothing moves when
//! the cluster is back in time ([`eviction`](crate::movement::eviction)). And no Work is made,
//! whoever asked for it, while the Work of a cluster that is left is there and its copy may run
//! ([`binding`](crate::propagation::binding)).
//!
//! The second wait holds against an agent that returns in the same moment: the old Work is deleted
//! first, and then the lease is read from the API. An agent that returns renews the lease first,
//! and then reads its Works. One of the two sees what the other has written.

pub mod decide;
pub mod subject;
pub mod telling;

pub use decide::{Verdict, of_work};
pub use subject::{asked, needs_rule, orders, runs_nothing};
