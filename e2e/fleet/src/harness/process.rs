//! The product's binaries as child processes, so that killing one is real and its memory can be
//! read.
//!
//! A child is this very binary, started again under a hidden name (see [`become_program`]). It ends
//! when its standard input ends, which it does even when the parent was killed: no run leaves
//! processes behind.

use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A program that the sandbox binary can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `muster-control-plane`
    ControlPlane,
    /// `muster-agent`
    Agent,
}

impl Program {
    /// Returns the name of the program's binary, which is also the hidden subcommand.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "muster-control-plane",
            Self::Agent => "muster-agent",
        }
    }
}

/// Returns ports of loopback that nobody uses at this moment.
pub fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    // All are held until all are known, so that they differ.
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("finding a free port")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// Runs a product binary in this process when the arguments (without the program's own name) ask
/// for one.
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

/// How a program is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The sandbox binary.
    pub binary: PathBuf,
    /// What it becomes.
    pub program: Program,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Where its log is appended.
    pub log: PathBuf,
}

impl Launch {
    fn start(&self) -> anyhow::Result<(Child, Option<ChildStdin>)> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut child = Command::new(&self.binary)
            .arg(self.program.name())
            .args(&self.arguments)
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // An interrupt from the keyboard is for the sandbox, which then ends its children in
            // order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {} as {}",
                    self.binary.display(),
                    self.program.name()
                )
            })?;
        // Waiting for a child closes the standard input that tokio holds for it, which would ask
        // the child to end.
        let input = child.stdin.take();
        Ok((child, input))
    }
}

/// A program that is started again when it ends, as a pod is. Dropping it kills it.
///
/// That matters: a program that loses its leadership ends on purpose, and counts on somebody to
/// start it again.
#[derive(Debug)]
pub struct Process {
    wanted: watch::Sender<bool>,
    state: watch::Receiver<State>,
    keeper: JoinHandle<()>,
}

/// How a program fares.
#[derive(Clone, Debug, Default)]
struct State {
    id: Option<u32>,
    /// How often it ended although it was wanted, and how the last time.
    lost: Vec<String>,
}

/// Pause before a program that ended is started again. A kubelet begins with ten seconds and
/// doubles them.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

impl Process {
    /// Starts a program and keeps it running.
    pub fn start(launch: Launch) -> anyhow::Result<Self> {
        // The first start is not left to the keeper, so that a binary that cannot be started is
        // reported to whoever asked.
        let child = launch.start()?;
        let first = State {
            id: child.0.id(),
            lost: Vec::new(),
        };
        let (reports, state) = watch::channel(first);
        let (wanted, asked) = watch::channel(true);
        let keeper = tokio::spawn(keep(launch, child, asked, reports));
        Ok(Self {
            wanted,
            state,
            keeper,
        })
    }

    /// Returns the process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.state.borrow().id
    }

    /// Returns how the process ended, each time that nobody had asked it to.
    pub fn lost(&self) -> Vec<String> {
        self.state.borrow().lost.clone()
    }

    /// Kills it at once (SIGKILL); returns when it is gone. It stays so until
    /// [`resume`](Self::resume).
    pub async fn kill(&self) {
        self.wanted.send_replace(false);
        // An error means that the keeper ended, and the child with it.
        let _ = self
            .state
            .clone()
            .wait_for(|state| state.id.is_none())
            .await;
    }

    /// Starts it again after a kill.
    pub fn resume(&self) {
        self.wanted.send_replace(true);
    }

    /// Returns the resident memory in bytes, where the system says it (`/proc`).
    pub fn resident_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn keep(
    launch: Launch,
    first: (Child, Option<ChildStdin>),
    mut wanted: watch::Receiver<bool>,
    reports: watch::Sender<State>,
) {
    let mut running = Some(first);
    loop {
        let ended = match &mut running {
            Some((child, _input)) => tokio::select! {
                status = child.wait() => match status {
                    Ok(status) => Some(status.to_string()),
                    Err(error) => Some(error.to_string()),
                },
                () = until(&mut wanted, false) => {
                    // Killing fails only if it is gone already.
                    let _ = child.kill().await;
                    None
                }
            },
            None => None,
        };
        running = None;
        reports.send_modify(|state| {
            state.id = None;
            state.lost.extend(ended.clone());
        });
        if ended.is_some() {
            tokio::time::sleep(RESTART_PAUSE).await;
        }
        until(&mut wanted, true).await;
        match launch.start() {
            Ok(child) => {
                reports.send_modify(|state| state.id = child.0.id());
                running = Some(child);
            }
            Err(error) => reports.send_modify(|state| state.lost.push(format!("{error:#}"))),
        }
    }
}

async fn until(wanted: &mut watch::Receiver<bool>, value: bool) {
    if wanted.wait_for(|wanted| *wanted == value).await.is_err() {
        // Whoever could want something is gone, and aborts us.
        std::future::pending::<()>().await;
    }
}

/// Returns the last lines of a log, for reports.
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
