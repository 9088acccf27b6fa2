//! What the failover scenarios share: a fleet in a directory of its own, and a dump when something is missing.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use muster_e2e::harness::dump::dump;
use muster_e2e::harness::fleet::{Fleet, Plan};
use muster_e2e::sandbox::scenario;
use muster_e2e::sandbox::screen::Screen;
use muster_e2e::sandbox::story::{Failure, Story};

/// A directory that is removed when the test has passed.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Runs a scenario on a fleet of five, after its workloads have come up. `adjust` changes how the fleet is set up.
pub async fn scenario<F, Fut>(name: &str, adjust: impl FnOnce(&mut Plan), tell: F)
where
    F: FnOnce(Arc<Story>) -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    muster_shared::tls::install_provider();
    let directory =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory for the test");
    let place = Place(directory);
    let mut plan = scenario::plan(env!("CARGO_BIN_EXE_sandbox").into(), place.0.clone(), 5);
    adjust(&mut plan);
    let fleet = Fleet::start(plan).await.expect("a fleet on this machine");
    let outcome = async {
        let story = Story::begin(Arc::clone(&fleet), Screen::silent()).await?;
        tell(Arc::new(story)).await
    }
    .await;
    if let Err(failure) = outcome {
        let dump = dump(&fleet).await;
        panic!(
            "{failure}\n{dump}\nlogs: {}",
            place.0.join("logs").display()
        );
    }
}
