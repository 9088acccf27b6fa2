//! `kubectl muster`: questions that `kubectl get` cannot answer.

mod explain;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use muster_shared::client::{self, Profile};
use muster_shared::settings::Words;
use muster_shared::tls;

use crate::scheduler::Options;
use crate::scheduler::capacity::GradeRule;

/// Asks the fleet API about failover and placement.
#[derive(Debug, Parser)]
#[command(name = "kubectl-muster", bin_name = "kubectl muster", version)]
struct CommandLine {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Args)]
struct Connection {
    /// Kubeconfig of the fleet API; KUBECONFIG or the default one without it.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context within the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace; that of the context without it.
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Why something is where it is.
    Explain {
        #[command(subcommand)]
        what: What,
        /// How the answer is printed.
        #[arg(long, short, global = true, value_enum, default_value_t)]
        output: explain::Format,
        /// The filters and scores in force, where the control plane has been given `--plugins`.
        #[arg(long, global = true, default_value = "*", value_name = "LIST")]
        plugins: Words,
        /// What a node of a grade is taken to hold, where the control plane has been given `--node-grades`.
        #[arg(long, global = true, default_value_t, value_name = "RULE")]
        node_grades: GradeRule,
    },
}

#[derive(Debug, Subcommand)]
enum What {
    /// For each cluster: does it fit or which filter refuses it and why, its score, its room, and what it is given.
    #[command(visible_alias = "rb")]
    Binding {
        /// Name of the ResourceBinding.
        name: String,
    },
    /// The same for a cluster-scoped binding.
    #[command(visible_alias = "crb")]
    ClusterBinding {
        /// Name of the ClusterResourceBinding.
        name: String,
    },
}

/// The program: answers one question and ends.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    tls::install_provider();
    let command_line = CommandLine::parse_from(arguments);
    match answer(command_line) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kubectl muster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn answer(command_line: CommandLine) -> anyhow::Result<String> {
    let Connection {
        kubeconfig,
        context,
        namespace,
    } = command_line.connection;
    let config = client::kubeconfig(kubeconfig.as_deref(), context.as_deref()).await?;
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    let client = client::connect(&config, Profile::Write)?;
    let Question::Explain {
        what,
        output,
        plugins,
        node_grades,
    } = command_line.question;
    let options = Options {
        grade_rule: node_grades,
        ..Options::default().with_plugins(&plugins)?
    };
    let answer = match what {
        What::Binding { name } => explain::binding(client, &namespace, &name, &options).await,
        What::ClusterBinding { name } => explain::cluster_binding(client, &name, &options).await,
    };
    answer?.print(output)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_binding_is_explained_in_its_namespace() {
        let line = CommandLine::parse_from([
            "kubectl-muster",
            "explain",
            "rb",
            "web-deployment",
            "-n",
            "shop",
            "-o",
            "json",
        ]);
        assert_eq!(line.connection.namespace.as_deref(), Some("shop"));
        let Question::Explain { what, output, .. } = line.question;
        assert!(matches!(what, What::Binding { name } if name == "web-deployment"));
        assert_eq!(output, explain::Format::Json);
    }
}
