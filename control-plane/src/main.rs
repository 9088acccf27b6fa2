//! The program `muster-control-plane`.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_control_plane::execute(std::env::args_os())
}
