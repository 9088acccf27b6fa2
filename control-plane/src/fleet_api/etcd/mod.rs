//! `muster-control-plane check-etcd-member`: decides whether a member of etcd may start. It runs
//! before etcd in each pod of a store of several members.
//!
//! etcd makes a new and empty cluster of every member whose volume is empty and whose peers do not
//! know it, also beside a member that has served data for months. So a member with an empty volume
//! waits here until every other member says that its own is empty, too.
//!
//! * [`judge`]: what the answers of the other members mean. Pure.
//! * [`peers`]: asks the other members, and answers them.

mod judge;
mod peers;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use futures::future::join_all;
use muster_shared::clock;
use muster_shared::serve::listen;

use self::judge::{Joining, Rounds};
use self::peers::{Identity, Peer};

/// Name of the command.
pub(crate) const COMMAND: &str = "check-etcd-member";
/// Description of the command.
pub(crate) const ABOUT: &str =
    "Wait until a member of etcd may start: a second cluster beside one with data is never made";

/// Pause between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(1);

/// State of the cluster that a member with an empty volume starts in, as etcd's flag of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClusterState {
    /// The members make a cluster.
    New,
    /// The member was added to a cluster that runs.
    Existing,
}

#[derive(Debug, Parser)]
#[command(about = ABOUT)]
struct Options {
    /// Name of the member.
    #[arg(long)]
    name: String,
    /// Data directory of the member.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: PathBuf,
    /// Names and peer URLs of all members, as etcd is given them.
    #[arg(long, value_name = "LIST")]
    initial_cluster: String,
    /// Token of the cluster, as etcd is given it.
    #[arg(long, value_name = "TOKEN")]
    initial_cluster_token: String,
    /// State of the cluster, as etcd is given it.
    #[arg(long, value_enum, default_value = "new")]
    initial_cluster_state: ClusterState,
    /// Address at which other members learn that the volume of this one is empty.
    #[arg(long, default_value = "0.0.0.0:2380", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Directory with the certificate of the member: ca.crt, tls.crt, tls.key.
    #[arg(long, value_name = "DIRECTORY")]
    tls_directory: PathBuf,
}

/// Runs the command: reads arguments, and ends when etcd may start, or with an error when it may
/// not.
pub(crate) fn execute(mut arguments: Vec<OsString>) -> ExitCode {
    arguments.remove(1);
    let options = Options::parse_from(arguments);
    match start(&options) {
        Ok(why) => {
            println!("etcd may start: {why}");
            ExitCode::SUCCESS
        }
        Err(error) => crate::settings::refuse(&format!("{error:#}")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn start(options: &Options) -> anyhow::Result<String> {
    run(options).await
}

/// Waits until the member may start, and returns why it may.
async fn run(options: &Options) -> anyhow::Result<String> {
    if has_data(&options.data_dir)? {
        return Ok("the volume of this member has its data".to_owned());
    }
    let mut peers = Peer::list(&options.initial_cluster)?;
    let is_own = |it: &Peer| it.name == options.name;
    let own = peers.iter().position(is_own).with_context(|| {
        format!(
            "--initial-cluster names no member {:?}: {}",
            options.name, options.initial_cluster
        )
    })?;
    let url = peers.remove(own).url;
    let joining = Joining {
        id: judge::initial_id(&url, &options.initial_cluster_token),
        url,
        is_added: options.initial_cluster_state == ClusterState::Existing,
    };
    let identity = Identity::read(&options.tls_directory)?;
    let listener = listen(options.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", options.listen))?;
    let answering = clock::spawn(peers::answer(listener, identity.acceptor()));
    let mut said = String::new();
    let mut rounds = Rounds::default();
    let verdict = loop {
        let answers = join_all(peers.iter().map(|it| it.ask(&identity))).await;
        let answers = peers.iter().map(|it| it.name.as_str()).zip(answers);
        let verdict = judge::judge(&joining, &answers.collect::<Vec<_>>());
        match rounds.settle(verdict) {
            ControlFlow::Break(outcome) => break outcome.map_err(anyhow::Error::msg),
            ControlFlow::Continue(why) if why != said => {
                println!("waiting: {why}");
                said = why;
            }
            ControlFlow::Continue(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    };
    answering.abort();
    verdict
}

/// Returns whether etcd has written its log, by which it goes on as the member that it is and reads
/// no flag about its cluster.
fn has_data(directory: &Path) -> anyhow::Result<bool> {
    let log = directory.join("member/wal");
    let entries = match std::fs::read_dir(&log) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("read {}", log.display())),
    };
    for entry in entries {
        let path = entry
            .with_context(|| format!("read {}", log.display()))?
            .path();
        if path.extension().is_some_and(|it| it == "wal") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
