//! Chooses the server of the fleet API that the agent obeys, of several, and remembers the newest
//! epoch of the fleet's store.
//!
//! The agent has one connection to the fleet API, which is switched as a whole ([`controller`]). An
//! address of the same store takes the place of one that has not answered for a while. Another
//! store is obeyed only if its epoch is higher than any that the agent has seen ([`decide`]): the
//! agent then begins anew, because its caches are those of another store.

mod controller;
mod decide;
mod servers;

pub use controller::{Choice, Restart, Setup};
