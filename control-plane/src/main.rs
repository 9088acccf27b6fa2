//! `muster-control-plane`, the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_control_plane::execute(std::env::args_os())
}
