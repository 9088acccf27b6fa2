//! Runs plans in processes of their own, one for each.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::plan::Plan;
use crate::run::Report;

/// The argument that makes the program run the plan that it reads from its input.
pub const ARGUMENT: &str = "plan";

/// The program `simulate` and what it is to write beside its report.
#[derive(Clone, Debug)]
pub struct Child {
    /// Path of the program.
    pub program: PathBuf,
    /// File for the lines of the history.
    pub history: Option<PathBuf>,
}

impl Child {
    /// Returns the program as it is run to write its report alone.
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            history: None,
        }
    }

    /// Runs a plan.
    ///
    /// # Errors
    /// When the process could not be started or ended without a report.
    pub fn run(&self, plan: &Plan) -> anyhow::Result<Report> {
        let mut command = Command::new(&self.program);
        command.arg(ARGUMENT);
        if let Some(history) = &self.history {
            command.arg("--history").arg(history);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting a simulation")?;
        let input = serde_json::to_vec(plan)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&input)?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "the simulation of seed {} ended: {}",
                plan.seed,
                output.status
            );
        }
        serde_json::from_slice(&output.stdout).context("reading the report of a simulation")
    }
}
