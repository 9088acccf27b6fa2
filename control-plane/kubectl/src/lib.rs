//! `kubectl muster`: checks installations, explains placements, tries interpreters, adds and
//! removes members, and gives a person's orders about clusters.

mod author;
mod check;
mod chosen;
mod cluster_row;
mod completion;
mod connection;
mod dependencies;
mod evicting;
mod explain;
#[cfg(test)]
mod fixtures;
mod follow;
mod forecast;
mod get;
mod held_back;
mod history;
mod install;
mod interpret;
mod jobs;
mod join;
mod leader;
mod line;
mod list;
mod old_copies;
mod orders;
mod output;
mod pace;
mod rebalance;
mod register;
mod removal;
mod report;
mod request;
mod rows;
mod running;
mod simulate;
mod standstill;
mod status;
mod subject;
mod suspension;
mod table;
mod token;
mod top;
pub mod ui;
mod unregister;
mod version;
mod view;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kube::Config;
use muster_shared::client;
use muster_shared::k8s::Client;
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::tls;

use self::connection::Connection;
pub use self::output::Reply;

/// Asks the fleet API about failover and placement, and lets members join and leave.
#[derive(Debug, Parser)]
#[command(name = "kubectl-muster", bin_name = "kubectl muster", version)]
struct CommandLine {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// The state of the fleet on one screen.
    ///
    /// Leader, gate, pace, clusters that are not well, what moves, what waits, and what is
    /// stranded. Behind a pipe and with -o wide nothing is cut.
    ///
    /// Exit codes: 0 all is well, 1 something needs attention (--ignore orders: other than what
    /// people ordered), 2 too little could be read.
    #[command(after_help = line::examples(&[
        "status --watch",
        "status -o json | jq .summary.severity",
        "status --ignore orders",
    ]))]
    Status(status::Options),
    /// Explains why a workload is where it is, and where else it could go.
    ///
    /// Shows what its old copies wait for, and for each cluster whether it fits or which filter
    /// refuses it and why, its score, its room, and what it is given.
    #[command(after_help = line::examples(&["explain deployment/web -n shop", "explain rb/web-deployment"]))]
    Explain(explain::Options),
    /// Lists past failovers, or shows one of them with its timeline.
    ///
    /// Shows when and why each began, how many workloads moved or could not, and how long it took.
    History(history::Options),
    /// Clusters, and workloads with where they are and why one waits.
    #[command(after_help = line::examples(&[
        "get clusters -l region=eu -o wide",
        "get workloads deployment/web -n shop",
        "get workloads -A --cluster member1 --watch",
    ]))]
    Get(get::Options),
    /// Shows how full the clusters are.
    ///
    /// Compares what pods request with what nodes offer, in processors, memory, pods and other
    /// resources, and how many pods have no node yet.
    Top(top::Options),
    /// Forecasts what would move, be stranded and stay if clusters were lost or drained.
    ///
    /// Reads the live fleet and changes nothing. Exits with 1 if something would have to leave and
    /// could not.
    #[command(after_help = line::examples(&["simulate --lost member1,member2", "simulate -l region=eu"]))]
    Simulate(simulate::Options),
    /// Serves the fleet as a page for a browser on this machine, with your own rights.
    ///
    /// Shows fleet, clusters, queue, history and what-if, live, and the same as JSON for programs.
    /// The command prints the address, and serves the page on loopback until it is stopped. The
    /// address holds a secret: anyone who has it reads the fleet with your rights for as long as
    /// the command runs.
    Ui(ui::Options),
    #[command(flatten)]
    Order(orders::Command),
    /// Has workloads placed anew, once: for example to bring them home after a failover.
    ///
    /// Nothing moves back by itself unless its policy says so. Workloads move at the rate of
    /// evictions, after these; each old copy stays until the new ones are healthy, unless the
    /// policy forbids two copies. A workload that a new placement would not move is left alone.
    ///
    /// Exit codes: 0 done, 1 error, 2 wrong command line, 3 a named workload cannot be placed anew,
    /// 4 not done within --timeout, 130 interrupted (the moves go on).
    #[command(after_help = line::examples(&["rebalance deployment/web -n shop", "rebalance --cluster member1 --dry-run"]))]
    Rebalance(rebalance::Options),
    /// Checks whether everything is as it should be, and says what to do where it is not.
    ///
    /// Run it with the kubeconfig of the fleet API.
    ///
    /// Exit codes: 0 without errors, 1 with errors (with --strict also with warnings) and where
    /// nothing could be checked, 2 for a wrong command line.
    Check(check::Options),
    /// Bootstrap tokens, by which members join.
    Token {
        #[command(subcommand)]
        what: token::What,
    },
    /// Joins a member by its agent (sync mode Pull), with the member's kubeconfig.
    Register(register::Options),
    /// Takes a member that joined by its agent out of the fleet.
    ///
    /// Run it with the kubeconfig of the fleet API.
    Unregister(unregister::Options),
    /// Joins a member that the control plane connects to (sync mode Push).
    ///
    /// Run it with the kubeconfig of the fleet API.
    Join(join::Options),
    /// Takes a member that the control plane connects to out of the fleet.
    ///
    /// Run it with the kubeconfig of the fleet API.
    Unjoin(join::Leaving),
    /// Shows what scripts of interpreters, or the built-in rules, say about an object.
    ///
    /// Scripts are those of a ResourceInterpreterCustomization.
    Interpret(interpret::Options),
    /// Versions of this program, the control plane and the agents, and what does not fit.
    Version(version::Options),
    /// Writes an archive for a request for support, without secrets.
    ///
    /// It holds Muster's own objects, leases and events, redacted, and the output of status, check
    /// and version.
    Report(report::Options),
    /// Prints the script with which kubectl completes these commands, and how to use it.
    Completion(completion::Options),
}

/// Runs the program: carries out one command and returns its exit code.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let asked = Asked::of(arguments).unwrap_or_else(|error| error.exit());
    let failure = match &asked {
        Asked::Question(line) if matches!(line.question, Question::Status(_)) => {
            ExitCode::from(output::UNREAD)
        }
        _ => ExitCode::FAILURE,
    };
    match block_on(asked) {
        Ok(Reply { text, code }) => match muster_shared::telemetry::print(&text) {
            Ok(()) => ExitCode::from(code),
            Err(error) => {
                eprintln!("kubectl muster: cannot write the answer: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("kubectl muster: {}", output::plain(&format!("{error:#}")));
            failure
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn block_on(asked: Asked) -> anyhow::Result<Reply> {
    Box::pin(reply(asked)).await
}

/// Purpose for which the program was run.
enum Asked {
    Question(Box<CommandLine>),
    /// The words of a command line that kubectl completes.
    Completion(Vec<OsString>),
}

impl Asked {
    fn of<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        Ok(match completion::asked(&arguments) {
            Some(words) => Self::Completion(words.into()),
            None => Self::Question(Box::new(line::parse(arguments)?)),
        })
    }
}

async fn reply(asked: Asked) -> anyhow::Result<Reply> {
    match asked {
        Asked::Question(line) => Box::pin(carry_out(*line)).await,
        Asked::Completion(words) => Ok(completion::answer(&line::command(), &words).await.into()),
    }
}

/// Returns what the program prints for a command line, its own name first, and its exit code. Needs
/// the TLS provider of the process.
///
/// # Errors
/// When the command line is wrong, or what the program would say.
pub async fn outcome<T>(arguments: impl IntoIterator<Item = T>) -> anyhow::Result<Reply>
where
    T: Into<OsString> + Clone,
{
    Box::pin(reply(Asked::of(arguments)?)).await
}

/// Carries out an order over a connection that the caller has made, and returns what the program
/// prints.
///
/// # Errors
/// When the command line is wrong or has no order, or what the program would say.
pub async fn order<T>(
    client: Client,
    config: &Config,
    arguments: impl IntoIterator<Item = T>,
) -> anyhow::Result<String>
where
    T: Into<OsString> + Clone,
{
    let Question::Order(command) = line::parse(arguments)?.question else {
        anyhow::bail!("the command is no order");
    };
    Ok(orders::carry_out(client, config, command).await?.text)
}

/// Opens the page of `kubectl muster ui`, which is not served yet. Needs the TLS provider of the
/// process.
///
/// # Errors
/// When the command line is wrong or not one of `ui`, or the port is taken.
pub async fn page<T>(arguments: impl IntoIterator<Item = T>) -> anyhow::Result<ui::Page>
where
    T: Into<OsString> + Clone,
{
    let line = line::parse(arguments)?;
    let Question::Ui(options) = line.question else {
        anyhow::bail!("the command is not `ui`");
    };
    let config = line.connection.config().await?;
    let client = line.connection.client(&config)?;
    ui::Page::open(client, &client::address(&config), &options).await
}

async fn carry_out(command_line: CommandLine) -> anyhow::Result<Reply> {
    let connection = command_line.connection;
    match &command_line.question {
        Question::Interpret(options) => return interpret::carry_out(options).map(Reply::from),
        Question::Completion(_) => return Ok(completion::SCRIPT.to_owned().into()),
        Question::Version(options) => {
            if let Some(own) = options.own() {
                return own.map(Reply::from);
            }
        }
        _ => {}
    }
    let config = connection.config().await?;
    let client = connection.client(&config)?;
    let given = connection.namespace.clone();
    let namespace = given.as_ref().unwrap_or(&config.default_namespace);
    let text = match command_line.question {
        Question::Check(options) => {
            let (text, succeeds) = check::carry_out(&config, given, &options).await?;
            let code = u8::from(!succeeds);
            return Ok(Reply { text, code });
        }
        Question::Token { what } => token::carry_out(client, &config, what).await,
        Question::Register(options) => {
            let namespace = given.unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned());
            register::carry_out(client, &namespace, &options).await
        }
        Question::Join(options) => join::carry_out(client, &options).await,
        Question::Unjoin(leaving) => join::leave(client, &leaving).await,
        Question::Unregister(options) => unregister::carry_out(client, &options).await,
        Question::Report(options) => {
            let said = Box::pin(said(&client, &config)).await;
            report::carry_out(&client, &options, said).await
        }
        Question::Ui(options) => {
            return Box::pin(ui::carry_out(client, &connection, &config, &options)).await;
        }
        Question::Rebalance(options) => {
            return rebalance::carry_out(client, &config, namespace, &options).await;
        }
        Question::Order(command) => return orders::carry_out(client, &config, command).await,
        question => {
            let server = client::address(&config);
            return Box::pin(read_fleet(&client, &server, namespace, question)).await;
        }
    };
    text.map(Reply::from)
}

/// Returns what a command says that reads the fleet at an address and needs nothing else.
async fn read_fleet(
    client: &Client,
    server: &str,
    namespace: &str,
    question: Question,
) -> anyhow::Result<Reply> {
    let text = match question {
        Question::Status(options) => {
            return status::carry_out(client.clone(), server, &options).await;
        }
        Question::Simulate(options) => return simulate::carry_out(client.clone(), &options).await,
        Question::Version(options) => version::carry_out(client, &options).await,
        Question::History(options) => history::carry_out(client.clone(), &options).await,
        Question::Top(options) => top::carry_out(client, &options).await,
        Question::Get(options) => Box::pin(get::carry_out(client, namespace, &options)).await,
        Question::Explain(options) => {
            Box::pin(explain::carry_out(client.clone(), namespace, &options)).await
        }
        other => anyhow::bail!("{other:?} asks for more than the fleet"),
    };
    text.map(Reply::from)
}

/// Returns what other commands say, for a report. One that fails says why.
async fn said(client: &Client, config: &Config) -> Vec<report::File> {
    let mut files = Vec::new();
    for words in REPORTED {
        let line = line::parse(["kubectl-muster"].iter().chain(words));
        let text = match line.map(|it| it.question) {
            Ok(Question::Check(options)) => {
                let check = check::carry_out(config, None, &options).await;
                check.map(|(text, _)| text)
            }
            Ok(question) => Box::pin(read_fleet(client, &client::address(config), "", question))
                .await
                .map(|it| it.text),
            Err(error) => Err(error.into()),
        };
        let name: Vec<&str> = words
            .iter()
            .copied()
            .filter(|it| !it.starts_with('-'))
            .collect();
        files.push(report::File {
            name: format!("commands/{}.txt", name.join("-")),
            content: text.unwrap_or_else(|error| format!("{error:#}\n")),
        });
    }
    files
}

/// Commands of which a report has what they say.
const REPORTED: [&[&str]; 7] = [
    &["status", "--output=wide"],
    &["version"],
    &["check"],
    &["history"],
    &["top"],
    &["get", "clusters", "--output=wide"],
    &["get", "workloads", "--all-namespaces", "--output=wide"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_has_what_the_commands_of_its_table_say() {
        let client = fixtures::api(|_| (403, serde_json::json!({})));
        for words in REPORTED {
            let line = line::parse(["kubectl-muster"].iter().chain(words)).unwrap();
            if matches!(line.question, Question::Check(_)) {
                continue;
            }
            let said = Box::pin(read_fleet(&client, "", "", line.question)).await;
            let said = said.map_or_else(|error| error.to_string(), |it| it.text);
            assert!(!said.contains("asks for more"), "{words:?}: {said}");
        }
    }
}
