//! The plug-in `kubectl muster`.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_kubectl::execute(std::env::args_os())
}
