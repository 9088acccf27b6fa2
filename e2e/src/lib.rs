//! Scenarios (`tests/`) and benches (`benches/`) that prove Muster, and the program `sandbox`.
//!
//! | crate | what it holds |
//! |---|---|
//! | [`apiserver`] | an embedded Kubernetes API server, which knows nothing of Muster |
//! | [`harness`], [`member`] | fleets of simulated members, network faults, waits |
//! | [`sandbox`] | the demo, and the scenario that it shows |
//! | [`kills`] | a fleet whose processes are killed at random moments of failovers |
//!
//! A scenario:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use muster_e2e::harness::dump::dump;
//! use muster_e2e::harness::fleet::Fleet;
//! use muster_e2e::harness::provider;
//! use muster_e2e::sandbox::scenario;
//!
//! # async fn example() -> anyhow::Result<()> {
//! let mut plan = scenario::plan("target/debug/sandbox".into(), "/tmp/example".into(), 3);
//! plan.provider = provider::chosen()?;
//! let fleet = Fleet::start(plan).await?;
//! fleet.cut("member1")?;
//! fleet.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n").await?;
//! let outcome = fleet.observer.await_that(
//!     "Works of the namespace are made all the same",
//!     Duration::from_secs(30) * fleet.patience,
//!     |view| match view.works.list().len() {
//!         0 => Err("there are no Works".to_owned()),
//!         _ => Ok(()),
//!     },
//! );
//! if let Err(missing) = outcome.await {
//!     // Objects, conditions, events, broken ways, and the last words of all processes.
//!     println!("{missing}\n{}", dump(&fleet).await);
//! }
//! fleet.end().await
//! # }
//! ```

pub mod kills;

pub use muster_sandbox as sandbox;
pub use muster_test_apiserver as apiserver;
pub use muster_test_fleet::{harness, member};
