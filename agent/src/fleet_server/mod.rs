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

/// The epoch of the store that is obeyed, once the record in the member says nothing against it:
/// the next process would otherwise obey an older store. Until then the reason, before which no
/// Work is applied.
pub type Obeyed = Result<u64, String>;

/// Returns that nothing is known of the store yet.
pub fn unknown() -> Obeyed {
    Err("the agent has not found out yet which server of the fleet API it may obey".to_owned())
}
