//! The agent between two real API servers: what it says about its member, and what it does with Works.

mod bench;
mod report;
mod survival;
mod works;
