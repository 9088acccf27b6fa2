//! Shell completion by kubectl's own mechanism: kubectl runs `kubectl_complete-muster` with the
//! words after `kubectl muster`, and reads one candidate a line and a directive (cobra's
//! `__complete`).
//!
//! The program is that one, too, under that name: a link to it in the PATH is all it takes. Where
//! an archive can hold no link, a script of that name puts the word `__complete` first.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Command;
use kube::api::{Api, ListParams};
use kube::core::ObjectList;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::failover_record::Failover;
use muster_shared::client::Head;
use muster_shared::k8s::{Client, Namespace};

use super::line;
use super::subject::word;

/// Name under which kubectl searches for the program.
const NAME: &str = "kubectl_complete-muster";
/// First word by which a script of that name asks, as programs that use cobra have it.
const WORD: &str = "__complete";
/// Directive of cobra: nothing but the candidates is offered, no files.
const NO_FILES: &str = ":4";

/// Script that kubectl runs to complete words, with what to do with it.
pub(super) const SCRIPT: &str = r#"#!/bin/sh
# kubectl completes `kubectl muster` by this script, in every shell in which it completes itself
# (`kubectl completion --help`; kubectl 1.26 and later). Put it into the PATH under this name:
#
#   kubectl muster completion > ~/.local/bin/kubectl_complete-muster
#   chmod +x ~/.local/bin/kubectl_complete-muster
#
# A link to the program does the same: ln -s "$(command -v kubectl-muster)" DIRECTORY/kubectl_complete-muster
exec kubectl-muster __complete "$@"
"#;

/// Takes the name of a shell, as other programs do: the script is the same for all.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Shell, for which the script is the same: bash, zsh, fish or powershell.
    #[arg(value_parser = ["bash", "zsh", "fish", "powershell"])]
    shell: Option<String>,
}

/// Kind of the candidates that complete a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// These words, each with its help.
    Words(Vec<(String, String)>),
    /// Names of clusters; after the last comma of the word, if the argument takes several.
    Clusters,
    /// Names of recorded failovers.
    Failovers,
    /// Names of namespaces.
    Namespaces,
    /// Bindings and templates of a namespace.
    Workloads,
}

/// Commands whose arguments are clusters.
const OF_CLUSTERS: [&str; 10] = [
    "top",
    "cordon",
    "uncordon",
    "taint",
    "drain",
    "undrain",
    "pause",
    "resume",
    "unjoin",
    "unregister",
];
/// Flags of commands whose values are clusters. `--cluster` is one of the kubeconfig elsewhere.
const CLUSTER_FLAGS: [&str; 3] = ["lost", "drain", "cluster"];

/// Returns the words that are to be completed, if the program was run for that.
pub(super) fn asked(arguments: &[OsString]) -> Option<&[OsString]> {
    let (program, words) = arguments.split_first()?;
    if Path::new(program).file_stem() == Some(OsStr::new(NAME)) {
        return Some(words);
    }
    let (first, words) = words.split_first()?;
    (first == WORD).then_some(words)
}

/// Returns the candidates for the last word of a command line, as kubectl reads them.
pub(super) async fn answer(root: &Command, words: &[OsString]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    let wanted = wanted(root, &words);
    let last = words.last().map_or("", String::as_str);
    let fleet = match wanted {
        Wanted::Words(_) => None,
        _ => fleet(&words).await,
    };
    candidates(wanted, last, fleet).await
}

/// Returns a client for the fleet API of a command line, and its namespace. `None` means that the
/// fleet API cannot be reached by it.
async fn fleet(words: &[String]) -> Option<(Client, String)> {
    let connection = line::connection(words)?;
    let config = connection.config().await.ok()?;
    let fleet = connection.client(&config).ok()?;
    let namespace = connection.namespace.unwrap_or(config.default_namespace);
    Some((fleet, namespace))
}

/// Returns what can complete the last of these words.
pub(super) fn wanted(root: &Command, words: &[String]) -> Wanted {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let flag = last.split_once('=').map(|(flag, _)| flag);
    let previous = before.last().map(String::as_str);
    let mut command = root;
    let mut path: Vec<&str> = Vec::new();
    for word in before {
        if let Some(next) = command.find_subcommand(word) {
            command = next;
            path.push(word);
        }
    }
    let long = flag.or(previous).and_then(|it| it.strip_prefix("--"));
    let is_own = |it: &clap::Arg| it.get_long() == long && !it.is_global_set();
    if long.is_some_and(|it| CLUSTER_FLAGS.contains(&it)) && command.get_arguments().any(is_own) {
        return Wanted::Clusters;
    }
    if long == Some("namespace") || previous == Some("-n") {
        return Wanted::Namespaces;
    }
    if last.starts_with('-') {
        return Wanted::Words(flags(root, command));
    }
    if let Some(values) = previous.and_then(|it| values(root, command, it)) {
        return Wanted::Words(values);
    }
    let commands: Vec<(String, String)> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set())
        .map(|it| (it.get_name().to_owned(), help(it.get_about())))
        .collect();
    match path.first() {
        _ if !commands.is_empty() => Wanted::Words(commands),
        Some(first) if OF_CLUSTERS.contains(first) => Wanted::Clusters,
        Some(&"get") if command.get_name() == "clusters" => Wanted::Clusters,
        Some(&"get") if command.get_name() == "workloads" => Wanted::Workloads,
        Some(&"history") => Wanted::Failovers,
        Some(first) if ["explain", "rebalance"].contains(first) => Wanted::Workloads,
        _ => Wanted::Words(Vec::new()),
    }
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn flags(root: &Command, command: &Command) -> Vec<(String, String)> {
    let all = command.get_arguments().chain(root.get_arguments());
    let mut flags: Vec<(String, String)> = all
        .filter(|it| !it.is_hide_set())
        .filter_map(|it| Some((format!("--{}", it.get_long()?), help(it.get_help()))))
        .collect();
    flags.sort();
    flags.dedup_by(|a, b| a.0 == b.0);
    flags
}

/// Returns the possible values of a flag, if it takes one of a few.
fn values(root: &Command, command: &Command, flag: &str) -> Option<Vec<(String, String)>> {
    let all = command.get_arguments().chain(root.get_arguments());
    let is_it = |it: &&clap::Arg| {
        let long = it.get_long().map(|it| format!("--{it}"));
        let short = it.get_short().map(|it| format!("-{it}"));
        long.as_deref() == Some(flag) || short.as_deref() == Some(flag)
    };
    let argument = all.into_iter().find(is_it)?;
    let values = argument.get_possible_values();
    let values = values
        .iter()
        .map(|it| (it.get_name().to_owned(), help(it.get_help())));
    argument
        .get_action()
        .takes_values()
        .then(|| values.collect())
}

/// Returns the candidates for the last word, as the fleet has them. If the fleet does not answer,
/// there are none.
pub(super) async fn candidates(
    wanted: Wanted,
    last: &str,
    fleet: Option<(Client, String)>,
) -> String {
    let all = ListParams::default();
    let words = match (wanted, fleet) {
        (Wanted::Words(words), _) => words,
        (Wanted::Clusters, Some((client, _))) => {
            named(Head::<Cluster>::list(&Api::all(client), &all).await, last)
        }
        (Wanted::Failovers, Some((client, _))) => {
            named(Head::<Failover>::list(&Api::all(client), &all).await, last)
        }
        (Wanted::Namespaces, Some((client, _))) => {
            named(Head::<Namespace>::list(&Api::all(client), &all).await, last)
        }
        (Wanted::Workloads, Some((client, namespace))) => {
            let api: Api<ResourceBinding> = Api::namespaced(client, &namespace);
            let found = api.list(&all).await;
            let found = found.map(|it| it.items).unwrap_or_default();
            let names = found.iter().map(|it| word(&it.spec.resource));
            let before = before(last, &[',']);
            let names = names.map(|it| (format!("{before}{it}"), String::new()));
            names.collect()
        }
        (_, None) => Vec::new(),
    };
    print(&words, last)
}

/// Returns the names of objects as words that begin as the last one does.
fn named<K: Clone, E>(found: Result<ObjectList<Head<K>>, E>, last: &str) -> Vec<(String, String)> {
    let found = found.map(|it| it.items).unwrap_or_default();
    let names = found.into_iter().filter_map(|it| it.metadata.name);
    let before = before(last, &[',', '=', '/']);
    let words = names.map(|it| (format!("{before}{it}"), String::new()));
    words.collect()
}

/// Returns the beginning of a word, up to the name that is to be completed.
fn before<'a>(last: &'a str, separators: &[char]) -> &'a str {
    &last[..last.rfind(separators).map_or(0, |at| at + 1)]
}

fn print(words: &[(String, String)], last: &str) -> String {
    let mut lines: Vec<String> = words
        .iter()
        .filter(|(word, _)| word.starts_with(last))
        .map(|(word, help)| match help.as_str() {
            "" => word.clone(),
            help => format!("{word}\t{help}"),
        })
        .collect();
    lines.push(NO_FILES.to_owned());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(line: &str) -> Wanted {
        let root = line::command();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&root, &words)
    }

    fn words(line: &str) -> Vec<String> {
        match wants(line) {
            Wanted::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_flags_values_clusters_and_workloads_are_offered_where_they_belong() {
        assert!(words("").contains(&"status".to_owned()));
        assert_eq!(words("get "), ["clusters", "workloads"]);
        assert!(words("status --").contains(&"--watch".to_owned()));
        assert!(words("status --").contains(&"--kubeconfig".to_owned()));
        assert_eq!(words("status -o "), ["table", "wide", "json", "yaml"]);
        for line in [
            "drain ",
            "drain m1 ",
            "simulate --lost ",
            "simulate --lost=m1,",
            "cordon m",
            "get clusters ",
            "get cl m",
            "top ",
            "history --cluster ",
        ] {
            assert_eq!(wants(line), Wanted::Clusters, "{line}");
        }
        for line in ["explain ", "get wl ", "rebalance a,"] {
            assert_eq!(wants(line), Wanted::Workloads, "{line}");
        }
        for line in ["explain -n ", "get wl --namespace=", "--namespace "] {
            assert_eq!(wants(line), Wanted::Namespaces, "{line}");
        }
        assert_eq!(wants("history "), Wanted::Failovers);
        for (last, expected) in [
            ("m", ""),
            ("m1,m", "m1,"),
            ("--lost=m", "--lost="),
            ("cluster/m", "cluster/"),
        ] {
            assert_eq!(before(last, &[',', '=', '/']), expected);
        }
        assert_ne!(wants("status --cluster "), Wanted::Clusters);
    }

    #[test]
    fn a_link_of_that_name_and_a_script_with_that_word_complete_and_nothing_else_does() {
        for (line, expected) in [
            ("kubectl_complete-muster get cl", Some("get cl")),
            ("/a/b/kubectl_complete-muster", Some("")),
            ("kubectl_complete-muster.exe drain m", Some("drain m")),
            ("kubectl-muster __complete get cl", Some("get cl")),
            ("kubectl-muster get __complete", None),
            ("kubectl-muster", None),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let found = asked(&arguments).map(|it| it.join(OsStr::new(" ")));
            assert_eq!(found, expected.map(OsString::from), "{line}");
        }
    }

    #[test]
    fn candidates_end_with_the_directive_of_cobra() {
        let words = vec![
            ("status".to_owned(), "The state".to_owned()),
            ("simulate".to_owned(), String::new()),
            ("drain".to_owned(), String::new()),
        ];
        assert_eq!(print(&words, "s"), "status\tThe state\nsimulate\n:4\n");
    }
}
