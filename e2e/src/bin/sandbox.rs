//! Shows a cluster failover from beginning to end on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_e2e::sandbox::execute(std::env::args_os())
}
