//! What the failover scenarios share: a fleet in a directory of its own, and a dump when something
//! is missing.

use std::io::Write as _;
use std::sync::Arc;

use muster_e2e::harness::fleet::{Fleet, Plan};
use muster_e2e::harness::provider::{self, Ability, Provider};
use muster_e2e::sandbox::scenario;
use muster_e2e::sandbox::screen::Screen;
use muster_e2e::sandbox::story::{Failure, Story};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::Place;

/// How a scenario differs from the demonstration.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Names the directory of its logs.
    pub name: &'static str,
    /// How many members: three are enough for the placements, five are what the seed has.
    pub members: usize,
    /// What the clusters have to be able to do. The scenario is skipped where they are not.
    pub needs: &'static [Ability],
    /// Changes how the fleet is started.
    pub plan: fn(&mut Plan),
    /// Changes what is applied.
    pub manifest: fn(&str) -> String,
}

impl Setting {
    /// Makes the setting of the demonstration with three members.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            members: 3,
            needs: &[],
            plan: |_| {},
            manifest: unhurried,
        }
    }
}

/// Taints a little later than the demonstration: scenarios run side by side on machines that are
/// busy with other tests, and a member that was merely slow for a moment is not to be declared
/// failed.
pub fn unhurried(manifest: &str) -> String {
    manifest.replace("addOnMatchSeconds: 2", "addOnMatchSeconds: 5")
}

/// Runs a scenario on a fleet of its own, from the moment when the workloads run.
pub async fn scenario(setting: Setting, steps: impl AsyncFnOnce(&Story) -> Result<(), Failure>) {
    muster_shared::tls::install_provider();
    let place = Place::new(setting.name);
    let binary = env!("CARGO_BIN_EXE_sandbox").into();
    let provider = provider::chosen().expect("a provider");
    if let Some(why) = provider::lacking(&*provider, setting.members, setting.needs) {
        return skip(setting.name, &why);
    }
    let _turn = alone_if_heavy(&*provider).await;
    let mut plan = scenario::plan(binary, place.to_path_buf(), setting.members);
    plan.provider = provider;
    (setting.plan)(&mut plan);
    let manifests = scenario::MANIFESTS.map(|(_, manifest)| (setting.manifest)(manifest));
    let scenario = Fleet::run(plan, async |fleet| {
        let story = Story::begin_with(Arc::clone(fleet), Screen::silent(), manifests).await?;
        steps(&story).await
    });
    scenario.await;
}

/// Says that a scenario does not run, past the test harness, which shows the output of failed tests
/// only.
fn skip(name: &str, why: &str) {
    // There is nobody to whom this could be reported.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}

/// Fleets of real servers start one after the other: a handful of them is what a machine can bear.
async fn alone_if_heavy(provider: &dyn Provider) -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::const_new(());
    match provider.patience() {
        1 => None,
        _ => Some(TURN.lock().await),
    }
}
