//! Kills the product's processes at random moments of failovers, and searches for workloads that
//! are lost or doubled.
//!
//! With the binaries as they are shipped:
//!
//! ```text
//! cargo build --release -p muster-control-plane -p muster-agent
//! cargo bench -p muster-e2e --bench kills -- --kills 1000 \
//!     --control-plane "$PWD/target/release/muster-control-plane" \
//!     --agent "$PWD/target/release/muster-agent"
//! ```
//!
//! Ends with an error when anything was lost or doubled, or did not come to rest.

mod common;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use common::Scratch;
use muster_e2e::kills::{Options, run};

#[derive(Parser)]
struct Arguments {
    /// Processes to kill in all.
    #[arg(long, default_value_t = 1000)]
    kills: usize,
    /// Of them in each failover.
    #[arg(long, default_value_t = 45)]
    kills_a_round: usize,
    /// Workloads in the fleet.
    #[arg(long, default_value_t = 16)]
    workloads: usize,
    /// Run a second control plane, which takes over when the first is killed.
    #[arg(long)]
    standby: bool,
    /// What the random choices follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A muster-control-plane to run instead of the one inside this program; with --agent.
    #[arg(long, requires = "agent")]
    control_plane: Option<PathBuf>,
    /// A muster-agent to run instead of the one inside this program; with --control-plane.
    #[arg(long, requires = "control_plane")]
    agent: Option<PathBuf>,
}

fn main() -> ExitCode {
    common::measure("kills", kill)
}

#[tokio::main(worker_threads = 2)]
async fn kill(arguments: &Arguments) -> anyhow::Result<()> {
    muster_shared::tls::install_provider();
    let scratch = Scratch::new("kills")?;
    let binary = match (&arguments.control_plane, &arguments.agent) {
        (Some(control_plane), Some(agent)) => both(&scratch, control_plane, agent)?,
        _ => std::env::current_exe()?,
    };
    let options = Options {
        binary,
        directory: scratch.path().to_owned(),
        kills: arguments.kills,
        kills_a_round: arguments.kills_a_round,
        workloads: arguments.workloads,
        standby: arguments.standby,
        seed: arguments.seed,
        print: |line| println!("{line}"),
    };
    let report = run(options).await?;
    println!("{report}");
    let wrong: Vec<&String> = report.lost.iter().chain(&report.doubled).collect();
    anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Writes a program that runs one of two programs, as its first argument says, and returns its
/// path.
fn both(scratch: &Scratch, control_plane: &Path, agent: &Path) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let whole = |path: &Path| {
        path.canonicalize()
            .with_context(|| format!("finding {}", path.display()))
    };
    let (control_plane, agent) = (whole(control_plane)?, whole(agent)?);
    let script = format!(
        "#!/bin/sh\nprogram=$1\nshift\ncase $program in\nmuster-agent) exec '{}' \"$@\" ;;\n*) exec '{}' \"$@\" ;;\nesac\n",
        agent.display(),
        control_plane.display()
    );
    let path = scratch.path().join("start");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    Ok(path)
}
