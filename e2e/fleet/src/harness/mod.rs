//! Starting a fleet, breaking it, and waiting for what should happen.
//!
//! A scenario needs a plan (how many members, which flags), says what it does to the fleet, and
//! awaits what must follow. Every fleet has ports, a directory and (embedded) servers of its own,
//! so scenarios run side by side. Nothing is polled and nothing sleeps: conditions are asked again
//! after each change that a watch brings.
//!
//! The page of the crate `muster-e2e` has an example.
//!
//! | to | see |
//! |---|---|
//! | start a fleet, cut and heal members, kill and restart processes | [`fleet`], [`process`] |
//! | break one party's way to one API, or its clock | [`route`] |
//! | have an embedded API answer 500, hang, or cut somebody off | `muster_test_apiserver::faults` |
//! | choose where the APIs come from, and ask what they can do | [`provider`] |
//! | await, and watch that something stays | [`observer`] |
//! | test one part in the test's own process | [`test_bed`] |
//! | write objects, and read events about them | [`objects`] |
//! | send requests as they are, and read metrics | [`raw`], [`metrics`] |
//! | answer about custom resources | [`interpreter_webhook`] |
//! | test the heartbeats of many clusters | [`heartbeat_fleet`] |

pub mod access;
pub mod apply;
pub mod clean;
pub mod dump;
pub mod envtest;
pub mod fleet;
pub mod heartbeat_fleet;
pub mod interpreter_webhook;
pub mod kubeconfig;
pub mod metrics;
pub mod objects;
pub mod observer;
pub mod process;
pub mod provider;
pub mod raw;
pub mod route;
pub mod test_bed;
