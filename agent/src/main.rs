//! The program `muster-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_agent::execute(std::env::args_os())
}
