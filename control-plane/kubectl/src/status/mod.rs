//! `kubectl muster status`: the state of the fleet on one screen, read-only.
//!
//! Each part is read by itself: what cannot be read is said, and the rest is shown.

mod decide;
mod print;
mod summary;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::join;
use muster_control_plane::settings::FAILOVER;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client};
use terminal_size::Width;

use self::decide::{Report, Snapshot, decide, is_suspended};
use super::list::{all, bindings, tokens, works};
use super::output::{Format, Reply, plain};
use super::running::{Running, Source};
use super::suspension::{authors, policies_of};
use super::view::{self, View};

/// Pause between two reads of `--watch`.
const PAUSE: Duration = Duration::from_secs(2);
/// Moves the cursor to the corner and clears the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Beginning of the line between two reads where the screen cannot be cleared.
const SEPARATOR: &str = "--- ";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// How the answer is printed; with `--watch` JSON is one document a line, and each document in
    /// YAML begins with `---`.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Refreshes every two seconds until it is stopped; on a terminal `*` marks the lines that have
    /// changed since the last refresh.
    #[arg(long, short)]
    watch: bool,
    /// What does not count for the exit code: with `orders` clusters that people drained or
    /// cordoned, pauses, and what waits for no other reason.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    ignore: Vec<Ignored>,
    /// Entries of each list in JSON and YAML at most; `counts` has the numbers of all.
    #[arg(long, value_name = "NUMBER")]
    most: Option<usize>,
    /// Adds to JSON and YAML the clusters, all of them, as `get clusters` prints them.
    #[arg(long)]
    clusters: bool,
    /// Flags of the control plane, behind `--`, in place of those that its leader publishes on its
    /// lease, such as `--feature-gates=Failover=true --resource-eviction-rate=5`.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Findings that may be left out of the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ignored {
    /// What people ordered.
    Orders,
}

/// Returns the report on the fleet API at an address; the exit code is 1 if something needs
/// attention, and 2 if too little could be read.
pub(super) async fn carry_out(
    client: Client,
    server: &str,
    options: &Options,
) -> anyhow::Result<Reply> {
    let mut last = None;
    loop {
        let snapshot = Box::pin(read(&client, server, &options.flags)).await?;
        let mut report = decide(&snapshot);
        if options.clusters {
            report.cluster_list = snapshot.cluster_rows();
        }
        let code = report.code_without(options.ignore.contains(&Ignored::Orders));
        let reply = Reply {
            text: text(report, options)?,
            code,
        };
        if !options.watch {
            return Ok(reply);
        }
        let clock = print::clock(calendar(), PAUSE);
        let text = match options.output {
            Format::Json | Format::Yaml => reply.text,
            _ if std::io::stdout().is_terminal() => {
                let marked = print::marked(&reply.text, last.as_deref());
                last = Some(reply.text);
                format!("{CLEAR}{clock}{marked}")
            }
            Format::Table | Format::Wide => format!("{}{SEPARATOR}{clock}", reply.text),
        };
        if !muster_shared::telemetry::is_read(&text)? {
            let (text, code) = (String::new(), reply.code);
            return Ok(Reply { text, code });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn text(mut report: Report, options: &Options) -> anyhow::Result<String> {
    if matches!(options.output, Format::Table | Format::Wide) {
        let now = calendar();
        let terminal = terminal_size::terminal_size_of(std::io::stdout());
        let terminal = terminal.filter(|_| options.output == Format::Table);
        let text = match terminal {
            Some((Width(columns), _)) => {
                let marks = if options.watch { print::MARK } else { 0 };
                print::screen(&report, now, usize::from(columns).saturating_sub(marks))
            }
            None => print::table(&report, now),
        };
        return Ok(plain(&text));
    }
    report.limit(options.most.unwrap_or(usize::MAX));
    Ok(match options.output {
        Format::Json if options.watch => format!("{}\n", serde_json::to_string(&report)?),
        Format::Yaml if options.watch => {
            format!("---\n{}", Format::Yaml.print(String::new, &report)?)
        }
        format => format.print(String::new, &report)?,
    })
}

async fn read(client: &Client, server: &str, flags: &[String]) -> anyhow::Result<Snapshot> {
    let given = Running::of(flags, None)?;
    let (view, bindings, works, pause, tokens, policies) = join!(
        View::read(client, &given.settings),
        bindings(client),
        works(Api::all(client.clone())),
        view::pause(client),
        tokens(client),
        all::<ClusterTaintPolicy>(Api::all(client.clone())),
    );
    let View {
        leader,
        clusters,
        leases,
    } = view;
    let suspended = bindings.iter().flatten().filter(|it| is_suspended(it));
    let suspending = policies_of(suspended.map(AsRef::as_ref));
    let suspensions = authors(client, suspending).await;
    let lease = leader.as_ref().ok().and_then(Option::as_ref);
    let Running {
        settings,
        source,
        unknown,
    } = Running::of(flags, lease)?;
    Ok(Snapshot {
        now: calendar(),
        server: server.to_owned(),
        leader,
        leases,
        clusters,
        bindings,
        works,
        failover: (source != Source::Defaults).then(|| settings.gate(&FAILOVER)),
        source,
        unknown,
        pause,
        tokens: match tokens {
            Ok(found) => Ok(found),
            // Whoever may not read secrets gets all else.
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Vec::new()),
            Err(error) => Err(format!("list tokens: {}", client::brief(&error))),
        },
        settings,
        suspensions,
        taint_policies: policies.ok(),
    })
}
