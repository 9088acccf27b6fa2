//! Starting a fleet, breaking it, and waiting for what should happen.
//!
//! A scenario needs a plan (how many members, which flags), says what it does to the fleet, and awaits what must follow. Every
//! fleet has ports, a directory and (embedded) servers of its own, so scenarios run side by side. Nothing is polled and nothing
//! sleeps: conditions are asked again after each change that a watch brings.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use muster_e2e::harness::dump::dump;
//! use muster_e2e::harness::fleet::Fleet;
//! use muster_e2e::harness::provider;
//! use muster_e2e::harness::route::Effect;
//! use muster_e2e::sandbox::scenario;
//!
//! # async fn example() -> anyhow::Result<()> {
//! let mut plan = scenario::plan("target/debug/sandbox".into(), "/tmp/example".into(), 3);
//! plan.provider = provider::chosen()?;
//! let fleet = Fleet::start(plan).await?;
//! fleet.site("member1")?.to_fleet.inject(Effect::DropWatches);
//! fleet.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n").await?;
//! let outcome = fleet.observer.await_that(
//!     "member1 is told of the namespace all the same",
//!     Duration::from_secs(30) * fleet.patience,
//!     |view| match view.works.list().len() {
//!         0 => Err("there are no Works".to_owned()),
//!         _ => Ok(()),
//!     },
//! );
//! if let Err(missing) = outcome.await {
//!     // Objects, conditions, events, broken ways, and the last words of the control plane and of every agent.
//!     println!("{missing}\n{}", dump(&fleet).await);
//! }
//! fleet.end().await
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | start a fleet, cut and heal members, kill and restart processes | [`fleet`], [`process`] |
//! | break one party's way to one API, or its clock | [`route`] |
//! | choose where the APIs come from, and ask what they can do | [`provider`] |
//! | await, and watch that something stays | [`observer`] |
//! | test one part in the test's own process | [`ground`] |
//! | test the roll call of many clusters | [`roll`] |

pub mod access;
pub mod apply;
pub mod clean;
pub mod dump;
pub mod envtest;
pub mod fleet;
pub mod ground;
pub mod kubeconfig;
pub mod observer;
pub mod process;
pub mod provider;
pub mod roll;
pub mod route;
