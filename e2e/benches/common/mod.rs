//! What the benchmarks share: figures in a table beside their budgets, and what a process uses.

// Each benchmark is a program of its own and uses a part of this.
#![allow(dead_code)]

pub mod agent;
pub mod fleet;
pub mod objects;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use muster_e2e::harness::process::become_program;
pub use muster_e2e::harness::test_bed::Scratch;

/// Serves as the `main` of a benchmark: reads its arguments, without the `--bench` that cargo adds,
/// and runs it. The products that a benchmark starts are its own program again: where the arguments
/// name one, that is run instead.
pub fn measure<A: Parser>(name: &str, run: impl FnOnce(&A) -> anyhow::Result<()>) -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = become_program(&arguments) {
        return code;
    }
    let line = std::env::args_os().filter(|it| it != "--bench");
    match run(&A::parse_from(line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name} benchmark: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ticks of the kernel's CPU accounting per second, the same on every Linux (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What a process has used and uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident: u64,
    /// The part of it that is not shared with the program's file.
    pub anonymous: u64,
    /// The most that was resident at any time, in bytes.
    pub peak: u64,
    /// CPU time of all threads since the start, in seconds, to a hundredth.
    pub cpu: f64,
}

/// Reads what a process uses, from `/proc`.
pub fn usage(process: u32) -> anyhow::Result<Usage> {
    let status = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&status).with_context(|| format!("reading {status}"))?;
    let kibibytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse::<u64>().ok())
            .with_context(|| format!("{key} in {status}"))
    };
    let stat = format!("/proc/{process}/stat");
    let line = std::fs::read_to_string(&stat).with_context(|| format!("reading {stat}"))?;
    // The name in parentheses may hold blanks: the fields are counted from behind it. User and
    // system time are the 14th and 15th of all.
    let fields = line.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(Usage {
        resident: kibibytes("VmRSS:")? * 1024,
        anonymous: kibibytes("RssAnon:")? * 1024,
        peak: kibibytes("VmHWM:")? * 1024,
        cpu: ticks / TICKS,
    })
}

/// Processes that want to run, averaged over the last minute: how much of the machine a benchmark
/// had for itself.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first
        .and_then(|number| number.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Bytes as megabytes (of a million bytes), for people.
#[expect(clippy::cast_precision_loss)]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Returns a count as a number to calculate with.
#[expect(clippy::cast_precision_loss)]
pub fn number(count: usize) -> f64 {
    count as f64
}

/// How much of a budget may be used.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// The figure is to be at most this.
    AtMost(f64),
    /// The figure is to be at least this.
    AtLeast(f64),
    /// There is none.
    None,
}

/// Figures beside their budgets.
pub struct Table {
    title: String,
    rows: Vec<[String; 3]>,
}

impl Table {
    /// Returns an empty table.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a figure with its unit.
    pub fn figure(&mut self, what: impl Into<String>, figure: f64, unit: &str, budget: Budget) {
        let (limit, met) = match budget {
            Budget::AtMost(limit) => (format!("at most {}", short(limit)), figure <= limit),
            Budget::AtLeast(limit) => (format!("at least {}", short(limit)), figure >= limit),
            Budget::None => (String::new(), true),
        };
        let verdict = match budget {
            Budget::None => String::new(),
            _ if met => format!("{limit}: met"),
            _ => format!("{limit}: MISSED"),
        };
        self.rows
            .push([what.into(), format!("{} {unit}", short(figure)), verdict]);
    }

    /// Adds a figure that is a text.
    pub fn text(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.rows.push([what.into(), text.into(), String::new()]);
    }

    /// Prints it.
    pub fn print(&self) {
        let width = |column: usize| {
            let lengths = self.rows.iter().map(|row| row[column].chars().count());
            lengths.max().unwrap_or(0)
        };
        let (first, second) = (width(0), width(1));
        let mut text = format!("\n{}\n", self.title);
        for [what, figure, budget] in &self.rows {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {what:first$}  {figure:>second$}  {budget}");
        }
        println!("{text}");
    }
}

/// Returns a figure with three significant digits, as far as they are behind the point.
fn short(figure: f64) -> String {
    let size = figure.abs();
    if size >= 100.0 || figure.fract() == 0.0 {
        format!("{figure:.0}")
    } else if size >= 10.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.2}")
    }
}

/// Returns what to start as the product: this very program, or a binary built elsewhere (stripped,
/// or as it is shipped).
///
/// A launch names the program in its first argument; a shell between drops it for a binary that is
/// that program already.
pub fn binary(scratch: &Scratch, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(given) = given else {
        return Ok(std::env::current_exe()?);
    };
    let given = given
        .canonicalize()
        .with_context(|| format!("finding {}", given.display()))?;
    let script = scratch.path().join("start");
    let path = given.display();
    std::fs::write(&script, format!("#!/bin/sh\nshift\nexec '{path}' \"$@\"\n"))?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    Ok(script)
}

/// Waits until something is so, checking every `pause`; the time that took.
pub async fn until(
    what: &str,
    patience: Duration,
    pause: Duration,
    mut holds: impl FnMut() -> bool,
) -> anyhow::Result<Duration> {
    let start = std::time::Instant::now();
    while !holds() {
        anyhow::ensure!(
            start.elapsed() < patience,
            "waited {patience:?} in vain: {what}"
        );
        tokio::time::sleep(pause).await;
    }
    Ok(start.elapsed())
}
