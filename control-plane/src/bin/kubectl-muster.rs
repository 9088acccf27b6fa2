//! The plug-in `kubectl muster`.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_control_plane::kubectl::execute(std::env::args_os())
}
