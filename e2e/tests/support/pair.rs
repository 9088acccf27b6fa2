//! Fleets of two members, for what must not run twice.

use std::sync::Arc;
use std::time::Duration;

use muster_e2e::harness::fleet::Fleet;
use muster_e2e::harness::observer::View;
use muster_e2e::harness::provider;
use muster_e2e::sandbox::picture::Picture;
use muster_e2e::sandbox::{expect, scenario};

use super::Place;

/// Longest time until the members are ready.
const SOON: Duration = Duration::from_mins(2);

/// Runs a fleet of two members and hands it over when both are ready. Its fences have a margin of
/// 5 s.
pub async fn pair(name: &str, tell: impl AsyncFnOnce(&Arc<Fleet>) -> anyhow::Result<()>) {
    muster_shared::tls::install_provider();
    let directory = Place::new(name);
    let binary = env!("CARGO_BIN_EXE_sandbox").into();
    let mut plan = scenario::plan(binary, directory.to_path_buf(), 2);
    plan.provider = provider::chosen().expect("a provider");
    plan.control_plane.push("--fencing-margin=5s".to_owned());
    let run = Fleet::run(plan, async |fleet| {
        until_ready(fleet).await?;
        tell(fleet).await
    });
    run.await;
}

/// Waits until all members are ready, and free of taints.
pub async fn until_ready(fleet: &Fleet) -> anyhow::Result<()> {
    let (what, patience) = ("all members are ready", SOON * fleet.patience);
    let joined = |view: &View| expect::joined(&Picture::of(view));
    Ok(fleet.observer.await_that(what, patience, joined).await?)
}
