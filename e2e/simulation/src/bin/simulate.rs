//! Runs simulations of a fleet.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use muster_simulation::child::Child;
use muster_simulation::generate::Scale;
use muster_simulation::search::{Search, plan_of};
use muster_simulation::{clock, run, scenarios, story};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// A simulation is one thread that makes and drops small objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the real control plane and the real agents in a simulated world, in virtual time.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs seeds, and says which of them violate a promise, with the shortest plan that does.
    Search {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of seeds; as many as there is time for if it is not given.
        #[arg(long)]
        count: Option<u64>,
        /// Minutes after which no seed is begun any more.
        #[arg(long)]
        minutes: Option<f64>,
        /// Processes at a time.
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// How large the plans are.
        #[arg(long, default_value = "small")]
        size: Named,
        /// Runs that may be spent on shrinking one failure.
        #[arg(long, default_value_t = 60)]
        attempts: usize,
        /// Directory for the plans that failed.
        #[arg(long)]
        directory: Option<PathBuf>,
        /// File for how often each pair of features met during each kind of fault (CSV).
        #[arg(long)]
        pairs: Option<PathBuf>,
        /// Fail where a pair of features was met too rarely during a kind of fault.
        #[arg(long)]
        all_pairs: bool,
    },
    /// Runs a failover once for each write of each process that is killed there, and for each watch
    /// that is behind or has a gap.
    Sieve {
        /// Minutes after which no run is begun any more.
        #[arg(long)]
        minutes: Option<f64>,
        /// Processes at a time.
        #[arg(long, default_value_t = 1)]
        jobs: usize,
    },
    /// Runs the plan (JSON) that it reads from its input, and prints a report (JSON).
    Plan {
        /// File for the lines of the history.
        #[arg(long)]
        history: Option<PathBuf>,
        /// Say on standard error who did what.
        #[arg(long)]
        story: bool,
        /// Show on standard error what the processes log, as far as this filter lets it through
        /// (`muster_control_plane=debug`, for example).
        #[arg(long, value_name = "FILTER")]
        log: Option<String>,
    },
    /// Runs one seed, and prints the digest of its history: the same on every machine.
    Run {
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How large the plan is.
        #[arg(long, default_value = "small")]
        size: Named,
    },
    /// Prints the plan of a seed.
    Draw {
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How large the plan is.
        #[arg(long, default_value = "small")]
        size: Named,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Named {
    /// As those of `cargo test`.
    Brief,
    /// Three members for half an hour.
    Small,
    /// Three members, and people who set and unset features of policies and orders.
    Features,
    /// People who hold several workloads where they are, ask for moves meanwhile, and let go.
    Holds,
    /// Data that follows workloads between members.
    Data,
    /// The host of the fleet API dies and comes back, and a standby is promoted meanwhile.
    Hosts,
    /// Members that watch each other, over links that fail, and one that lies.
    Witnesses,
}

impl Named {
    const fn scale(self) -> Scale {
        match self {
            Self::Brief => Scale::BRIEF,
            Self::Small => Scale::SMALL,
            Self::Features => Scale::FEATURES,
            Self::Holds => Scale::HOLDS,
            Self::Data => Scale::DATA,
            Self::Hosts => Scale::HOSTS,
            Self::Witnesses => Scale::WITNESSES,
        }
    }
}

/// Writes the time of the simulated world into lines of the log.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        write!(line, "{:.3}", clock::now())
    }
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Task::Search {
            seed,
            count,
            minutes,
            jobs,
            size,
            attempts,
            directory,
            pairs,
            all_pairs,
        } => {
            let search = Search {
                child: Child::new(std::env::current_exe()?),
                scale: size.scale(),
                seed,
                count: if minutes.is_none() {
                    count.or(Some(1))
                } else {
                    count
                },
                seconds: minutes.map(|minutes| minutes * 60.0),
                jobs,
                attempts,
                directory,
            };
            let findings = search.run();
            print!("{findings}");
            if let Some(path) = pairs {
                std::fs::write(path, findings.pairs.csv())?;
            }
            let is_rare = all_pairs && !findings.pairs.rare_during_faults().is_empty();
            if is_rare || !findings.failures.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Task::Sieve { minutes, jobs } => {
            let search = Search {
                child: Child::new(std::env::current_exe()?),
                scale: Scale::SMALL,
                seed: 1,
                count: None,
                seconds: minutes.map(|minutes| minutes * 60.0),
                jobs,
                attempts: 0,
                directory: None,
            };
            let findings = search.sieve(&scenarios::short_failover(1))?;
            print!("{findings}");
            if !findings.failures.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Task::Plan {
            history,
            story,
            log,
        } => {
            if let Some(filter) = log {
                tracing_subscriber::fmt()
                    .with_env_filter(filter)
                    .with_ansi(false)
                    .with_timer(VirtualTime)
                    .with_writer(std::io::stderr)
                    .init();
            }
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            let (report, entries) = run::run(serde_json::from_str(&text)?)?;
            if let Some(path) = history {
                let mut file = BufWriter::new(std::fs::File::create(path)?);
                for entry in entries.entries() {
                    writeln!(file, "{}", entry.line())?;
                }
                file.flush()?;
            }
            if story {
                let mut out = BufWriter::new(std::io::stderr().lock());
                for line in entries.entries().iter().filter_map(story::line) {
                    writeln!(out, "{line}")?;
                }
                out.flush()?;
            }
            println!("{}", serde_json::to_string(&report)?);
        }
        Task::Run { seed, size } => {
            let (report, _) = run::run(plan_of(seed, size.scale()))?;
            print!("{report}");
            if !report.violations.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Task::Draw { seed, size } => {
            let plan = plan_of(seed, size.scale());
            println!("{}", serde_json::to_string(&plan)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}
