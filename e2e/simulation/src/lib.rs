//! A simulation of a fleet: the real control plane and the real agents in one process, in virtual
//! time, from a seed, with faults, and with oracles that check the safety contract at each write.
//!
//! * [`history`] holds what happened: each request to an API with the object before and after, and
//!   each event of the world (faults, processes, networks, steps of people). The same seed gives
//!   the same history, which its digest shows.
//! * [`oracle`] checks a history. An oracle is a pure fold: it is shown entry after entry and tells
//!   violations. It knows the promises of the README and no code of the product.
//! * [`people`] draws fleets, and what users and operators do to them.
//! * [`generate`] draws whole plans from seeds.
//! * [`plan`] says what a simulation is made of, [`faults`] what can go wrong, [`world`] lives it,
//!   [`run`](mod@run) runs one in this process, and [`child`] each in a process of its own.
//! * [`found`] holds plans that find bugs which were fixed.
//! * [`network`] carries requests in memory, and [`recorder`] writes the history.

pub mod child;
pub mod clock;
pub mod faults;
pub mod found;
pub mod generate;
pub mod history;
pub mod network;
pub mod oracle;
pub mod people;
pub mod plan;
pub mod random;
pub mod recorder;
pub mod run;
pub mod scenarios;
pub mod search;
pub mod shrink;
pub mod sieve;
pub mod story;
pub mod world;
