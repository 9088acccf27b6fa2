//! `muster-agent check`: the checks of the member's side, from within the member.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use muster_shared::check::{Asker, Report, Status, Style};
use muster_shared::client::{self, Profile};
use muster_shared::settings::Duration;
use tokio::time::Instant;

use super::Side;
use crate::COMPONENT;

/// Name of the command.
pub const COMMAND: &str = "check";
/// Pause between two runs while `--wait` lasts.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(2);

/// Checks this member: its agent, and the way to the fleet. Ends with 1 where something does not
/// work.
#[derive(Debug, Parser)]
#[command(name = COMPONENT, bin_name = "muster-agent check", version)]
struct CommandLine {
    /// Kubeconfig of the member; without it the pod's service account, or the default one.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the fleet API; without it that in the agent's Secret.
    #[arg(long, value_name = "FILE")]
    karmada_kubeconfig: Option<PathBuf>,
    /// Namespace of the agent.
    #[arg(long, short, default_value = "muster-system", value_name = "NAME")]
    namespace: String,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
    /// Names of checks that are left out.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    skip: Vec<String>,
    /// Time for which the checks are repeated until there is no error.
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    wait: Duration,
    /// Longest time for one request.
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    request_timeout: Duration,
}

/// Runs the command: checks the member, prints the results, and returns the exit code.
pub fn execute(mut arguments: Vec<OsString>) -> ExitCode {
    arguments.remove(1);
    match run(&CommandLine::parse_from(arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{COMPONENT}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(line: &CommandLine) -> anyhow::Result<bool> {
    let end = Instant::now() + *line.wait;
    let (report, server) = loop {
        let config = client::kubeconfig(line.kubeconfig.as_deref(), None).await?;
        let side = Side {
            asker: Asker::new(
                client::connect(&config, Profile::Write)?,
                *line.request_timeout,
            ),
            config,
            namespace: line.namespace.clone(),
            fleet: line.karmada_kubeconfig.clone(),
            deadline: *line.request_timeout,
        };
        let mut checks = side.check().await;
        checks.retain(|it| !line.skip.iter().any(|name| name == it.name));
        let report = Report { checks };
        if report.status() != Status::Error || Instant::now() + AGAIN > end {
            break (report, side.server());
        }
        tokio::time::sleep(AGAIN).await;
    };
    let text = if line.json {
        format!("{:#}\n", report.json(env!("CARGO_PKG_VERSION"), &server))
    } else {
        report.text(Style::of_stdout())
    };
    muster_shared::telemetry::print(&text)?;
    Ok(report.succeeds(false))
}
