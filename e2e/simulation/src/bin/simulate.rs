//! Runs simulations of a fleet.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use muster_simulation::{run, scenarios};

/// Runs the real control plane and the real agents in a simulated world, in virtual time.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs the plan (JSON) that it reads from its input, and prints a report (JSON).
    Plan {
        /// File for the lines of the history.
        #[arg(long)]
        history: Option<PathBuf>,
    },
    /// Prints the plan of a small scenario.
    Scenario {
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Task::Plan { history } => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            let plan = serde_json::from_str(&text)?;
            let (report, entries) = run::run(plan)?;
            if let Some(path) = history {
                let mut file = BufWriter::new(std::fs::File::create(path)?);
                for entry in entries.entries() {
                    writeln!(file, "{}", entry.line())?;
                }
                file.flush()?;
            }
            println!("{}", serde_json::to_string(&report)?);
        }
        Task::Scenario { seed } => {
            println!("{}", serde_json::to_string(&scenarios::one_failover(seed))?);
        }
    }
    Ok(())
}
