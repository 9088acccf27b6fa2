//! An agent process between two embedded APIs.

use std::path::Path;

use muster_e2e::apiserver::Running;
use muster_e2e::harness::kubeconfig;
use muster_e2e::harness::process::{Launch, Process, Program};

use super::Scratch;

/// Name of the member.
pub const MEMBER: &str = "m1";

/// Starts the agent (the one inside this program, or the binary that is given) with further flags.
/// Without a member the flags have to name one. Its log is `agent.log` in the scratch directory.
pub fn start(
    scratch: &Scratch,
    fleet: &Running,
    member: Option<&Running>,
    given: Option<&Path>,
    flags: impl IntoIterator<Item = String>,
) -> anyhow::Result<Process> {
    let mut arguments = vec![
        format!("--cluster-name={MEMBER}"),
        "--report-secrets=None".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
    ];
    let servers = [("karmada-kubeconfig", Some(fleet)), ("kubeconfig", member)];
    for (flag, server) in servers {
        let Some(server) = server else { continue };
        let path = scratch.path().join(flag);
        kubeconfig::write(&server.kubeconfig("agent", &["system:masters"])?, &path)?;
        arguments.push(format!("--{flag}={}", path.display()));
    }
    arguments.extend(flags);
    Process::start(Launch {
        binary: super::binary(scratch, given)?,
        program: Program::Agent,
        arguments,
        log: scratch.path().join("agent.log"),
    })
}
