//! `kubectl muster check`: whether a fleet, a member, or a cluster before an installation is as it
//! should be, and what to do where it is not.
//!
//! [`gather`] reads facts, each of which may be unknown by itself; pure functions of the other
//! modules judge them. Nothing is written.

mod clusters;
mod control_plane;
mod dependencies;
mod facts;
mod fleet_api;
mod gather;
mod pauses;
mod policies;
mod pre;
mod rights;
mod room;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration as StdDuration;

use clap::Args;
use kube::Config;
use muster_agent::check::Side;
use muster_shared::check::{Asker, Category, Report, Status, Style, Verdict};
use muster_shared::client::{self, Profile};
use muster_shared::settings::Duration;
use tokio::time::Instant;

use self::facts::Facts;
use self::fleet_api::OWN;
use super::install::NAMESPACE;
use super::output::Format;
use super::request::instead;

/// Pause between two runs while `--wait` lasts.
const AGAIN: StdDuration = StdDuration::from_secs(2);

/// Exit codes: 0 without errors, 1 with errors (with `--strict`: or warnings) or where nothing
/// could be checked, 2 for a wrong command line.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Options {
    /// Check before an installation: the cluster that is to be the host (kubeconfig of the host).
    #[arg(long)]
    pre: bool,
    /// With `--pre`: check an API of your own that is to be the fleet API
    /// (`fleetApi.mode=external`).
    #[arg(long, requires = "pre", conflicts_with = "member")]
    external: bool,
    /// Check the member's side (kubeconfig of the member); with `--pre` before its agent is
    /// installed.
    #[arg(long)]
    member: bool,
    /// With `--member`: kubeconfig of the agent for the fleet API, in place of that in its Secret.
    #[arg(long, requires = "member", value_name = "FILE")]
    fleet_kubeconfig: Option<PathBuf>,
    /// Format of the result. A document has version, server, status, counts, and checks, each with
    /// category, name, status (ok, warning, error, skipped), message and hint.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Time for which the checks are repeated until there is no error.
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    wait: Duration,
    /// Count warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Names of checks that are left out.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = known)]
    skip: Vec<String>,
    /// Longest time for one request.
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    request_timeout: Duration,
    /// Flags of the control plane, behind `--`: those that it has been given and that decide what
    /// is as it should be, such as `--leader-elect=false`. Without any, those hold that the leader
    /// publishes, with failover on.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Names of the checks, of every kind of run.
const NAMES: &str = "
    admission admission-authority agent agent-clocks agent-credentials agent-rights
    agent-versions agents another-cluster answers authority clock clusters conditions
    control-plane-credentials control-plane-rights control-plane-version dedicated definitions
    dependencies failover-policies fleet-credentials gates heartbeat join-tokens kinds
    kubernetes-versions leader leader-clock not-installed own-credentials own-rights pauses
    policies policy-parts push-tokens ready registered room served single-agent storage-class
    taint-policies taint-policy-parts taints unique verified version
";

/// Reads the name of a check.
fn known(name: &str) -> Result<String, String> {
    let names: Vec<String> = NAMES.split_whitespace().map(str::to_owned).collect();
    if names.iter().any(|it| it == name) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "there is no check {name:?}{}",
        instead(name, &names)
    ))
}

/// Checks, again and again as far as that was asked for. Returns what is printed, and whether it
/// succeeded.
pub(super) async fn carry_out(
    config: &Config,
    namespace: Option<String>,
    options: &Options,
) -> anyhow::Result<(String, bool)> {
    let namespace = namespace.unwrap_or_else(|| NAMESPACE.to_owned());
    let end = Instant::now() + *options.wait;
    let report = loop {
        // A client of its own for each run: one that waits may have been given new credentials.
        let checks = once(config, &namespace, options).await?;
        let kept = checks.into_iter();
        let kept = kept.filter(|it| !options.skip.iter().any(|name| name == it.name));
        let report = Report {
            checks: kept.collect(),
        };
        if report.status() != Status::Error || Instant::now() + AGAIN > end {
            break report;
        }
        tokio::time::sleep(AGAIN).await;
    };
    let server = client::address(config);
    let text = match options.output {
        Format::Table | Format::Wide => report.text(Style::of_stdout()),
        format => format.print(String::new, &report.json(OWN, &server))?,
    };
    Ok((text, report.succeeds(options.strict)))
}

async fn once(config: &Config, namespace: &str, options: &Options) -> anyhow::Result<Vec<Verdict>> {
    let client = client::connect(config, Profile::Write)?;
    let asker = Asker::new(client, *options.request_timeout);
    match (options.pre, options.member) {
        (true, true) => return Ok(pre::member(&asker, config).await),
        (true, false) if options.external => return Ok(pre::fleet(&asker, config).await),
        (true, false) => return Ok(pre::host(&asker, config, namespace).await),
        (false, true) => {
            let side = Side {
                asker,
                config: config.clone(),
                namespace: namespace.to_owned(),
                fleet: options.fleet_kubeconfig.clone(),
                deadline: *options.request_timeout,
            };
            return Ok(side.check().await);
        }
        (false, false) => {}
    }
    let facts = gather::gather(&asker, config, &options.flags).await?;
    Ok(judge(&facts))
}

/// Adds the verdicts of one category.
type Check = fn(&mut Category, &Facts);

/// The categories of a fleet API that answers.
const CATEGORIES: [(&str, Check); 9] = [
    ("Definitions", fleet_api::definitions),
    ("Control plane", control_plane::running),
    ("Admission", control_plane::admission),
    ("Certificates and tokens", control_plane::credentials),
    ("Movement", pauses::check),
    ("Clusters", clusters::check),
    ("Policies", policies::check),
    ("Dependencies of workloads", dependencies::check),
    ("Room for the loss of a cluster", room::check),
];

/// Judges a fleet.
fn judge(facts: &Facts) -> Vec<Verdict> {
    let mut category = Category::new("Fleet API");
    let answers = fleet_api::check(&mut category, facts);
    let mut verdicts = category.into_verdicts();
    for (title, check) in CATEGORIES.into_iter().filter(|_| answers) {
        let mut category = Category::new(title);
        check(&mut category, facts);
        verdicts.extend(category.into_verdicts());
    }
    verdicts
}
