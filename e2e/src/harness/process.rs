//! The product's binaries as child processes, so that killing one is real and its memory can be read.
//!
//! A child is this very binary, started again under a hidden name (see [`become_program`]). It ends when its standard input
//! ends, which it does even when the parent was killed: no run leaves processes behind.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::Context;
use tokio::process::{Child, Command};

/// A program that the sandbox binary can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `muster-control-plane`
    ControlPlane,
    /// `muster-agent`
    Agent,
}

impl Program {
    /// The name of the program's binary, which is also the hidden subcommand.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "muster-control-plane",
            Self::Agent => "muster-agent",
        }
    }
}

/// Runs a product binary in this process when the arguments (without the program's own name) ask for one.
///
/// `None`: they do not.
pub fn become_program(arguments: &[OsString]) -> Option<ExitCode> {
    let name = arguments.first()?;
    let program = [Program::ControlPlane, Program::Agent]
        .into_iter()
        .find(|program| name == program.name())?;
    std::thread::spawn(end_with_parent);
    let arguments = arguments.to_vec();
    Some(match program {
        Program::ControlPlane => muster_control_plane::execute(arguments),
        Program::Agent => muster_agent::execute(arguments),
    })
}

/// Ends the process when its standard input ends.
fn end_with_parent() {
    let mut nothing = [0; 64];
    let mut input = std::io::stdin().lock();
    while !matches!(input.read(&mut nothing), Ok(0) | Err(_)) {}
    std::process::exit(0);
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; its log is appended to `log`.
    pub fn start(
        binary: &Path,
        program: Program,
        arguments: &[String],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(binary)
            .arg(program.name())
            .args(arguments)
            .env("RUST_BACKTRACE", "1")
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            // An interrupt from the keyboard is for the sandbox, which then ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} as {}", binary.display(), program.name()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where it logs to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it at once (SIGKILL) and waits until it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the process")
    }

    /// Resident memory in bytes, where the system tells (`/proc`).
    pub fn resident_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}

/// The last lines of a log, for reports.
pub fn last_lines(log: &Path, lines: usize) -> Vec<String> {
    // A log is read whole: a run of minutes writes little, and a report is rare.
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}
