//! The agent between two real API servers: what it says about its member, and what it does with
//! Works.

mod at_rest;
mod bench;
mod bootstrap;
mod census;
mod cluster;
mod credentials;
mod election;
mod fleets;
mod held;
mod interpreters;
mod losses;
mod meter;
mod odd;
mod outages;
mod peers;
mod process;
mod report;
mod restart;
mod rotation;
mod secrets;
mod survival;
mod twins;
mod works;
