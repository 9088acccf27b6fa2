//! The command line: how it is read, and what is said of a wrong one.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue, Error};
use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _};
use strsim::levenshtein;

use super::CommandLine;
use super::chosen::KIND;
use super::connection::Connection;

/// Begins the name of a flag of the connection in a command that has one of that name itself.
const OTHERWISE: &str = "kubeconfig-";

/// The commands, in the order in which an operator needs them.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "What is going on",
        &[
            "status", "explain", "history", "get", "top", "simulate", "ui",
        ],
    ),
    (
        "Orders",
        &[
            "drain",
            "undrain",
            "cordon",
            "uncordon",
            "taint",
            "pause",
            "resume",
            "promote",
            "rebalance",
        ],
    ),
    (
        "Set up a fleet and its members",
        &["check", "token", "register", "unregister", "join", "unjoin"],
    ),
    ("Inspect", &["interpret", "version", "report", "completion"]),
];

/// Returns the command with all its subcommands.
pub(super) fn command() -> Command {
    let root = CommandLine::command().mut_args(|it| it.global(true));
    let globals: Vec<Arg> = root.get_arguments().cloned().collect();
    let help = overview(&root);
    let root = root.help_template(help);
    root.mut_subcommands(|it| keep_own(it, &globals))
}

/// Returns the template of the help about all commands.
fn overview(root: &Command) -> String {
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (head, names) in GROUPS {
        let _ = write!(text, "\n{head}:\n");
        let commands = names.iter().filter_map(|it| root.find_subcommand(it));
        for command in commands {
            let about = command.get_about().map(ToString::to_string);
            let _ = writeln!(
                text,
                "  {:11} {}",
                command.get_name(),
                about.unwrap_or_default()
            );
        }
    }
    text.push_str("\nConnection, for every command:\n{options}\n");
    let examples = examples(&[
        "status",
        "simulate --lost member1",
        "drain member1 --wait",
        "help drain",
    ]);
    let _ = write!(text, "\n{examples}");
    text
}

/// Returns the examples below the help of a command.
pub(super) fn examples(commands: &[&str]) -> String {
    let lines = commands.iter().map(|it| format!("\n  kubectl muster {it}"));
    format!("Examples:{}", lines.collect::<String>())
}

/// Gives way to the flags that a command has itself: the flag of the connection has another name
/// there.
fn keep_own(command: Command, globals: &[Arg]) -> Command {
    let mut command = command;
    for global in globals {
        let long = global.get_long();
        let is_taken = command.get_arguments().any(|it| it.get_long() == long);
        if let Some(long) = long.filter(|_| is_taken) {
            let renamed = global.clone().long(format!("{OTHERWISE}{long}"));
            command = command.arg(renamed.short(None).hide(true));
        }
    }
    if command.get_arguments().any(|it| it.get_id() == "dry_run") {
        command = command.mut_arg("dry_run", as_kubectl);
    }
    command.mut_subcommands(|it| keep_own(it, globals))
}

/// Has `--dry-run` take the values that kubectl gives it.
fn as_kubectl(dry_run: Arg) -> Arg {
    let meant = |word: &str| match word {
        "client" | "server" => Ok(true),
        "none" => Ok(false),
        _ => Err("write --dry-run, or --dry-run=client, server or none"),
    };
    let dry_run = dry_run.action(ArgAction::Set).value_parser(meant);
    let dry_run = dry_run
        .num_args(0..=1)
        .require_equals(true)
        .hide_default_value(true);
    dry_run
        .default_value("none")
        .default_missing_value("client")
}

/// Returns the words with what follows `get` as the command has it: `clusters NAME` for
/// `cluster/NAME`, and `workloads KIND/NAME` for whatever else is written so.
fn typed(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut words = arguments;
    let at = words.iter().position(|it| it == "get").map(|at| at + 1);
    let first = at.and_then(|at| words.get(at)?.to_str());
    let kind = first.and_then(|it| Some(it.split_once('/')?.0));
    if let (Some(at), Some(kind)) = (at, kind) {
        let is_cluster = KIND.contains(&kind);
        let what = if is_cluster { "clusters" } else { "workloads" };
        words.insert(at, what.into());
    }
    words
}

/// Reads a command line, the name of the program first.
pub(super) fn parse<T>(arguments: impl IntoIterator<Item = T>) -> Result<CommandLine, Error>
where
    T: Into<OsString> + Clone,
{
    let mut command = command();
    let arguments = arguments.into_iter().map(Into::into);
    let matches = command.try_get_matches_from_mut(typed(arguments.collect()));
    let line = matches.and_then(|it| CommandLine::from_arg_matches(&it));
    line.map_err(|error| mended(error).format(&mut command))
}

/// Returns the way to the API that words of a command line name, which is not complete yet.
pub(super) fn connection(words: &[String]) -> Option<Connection> {
    let program = std::iter::once("kubectl-muster");
    let words = program.chain(words.iter().map(String::as_str));
    let matches = command().ignore_errors(true).try_get_matches_from(words);
    Connection::from_arg_matches(&matches.ok()?).ok()
}

/// Returns an error with the advice that helps: the command that is nearest to a misspelt one, and
/// nothing about words behind `--`, which are flags of the control plane.
fn mended(mut error: Error) -> Error {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let tips = tips.into_iter();
        let tips: Vec<_> = tips
            .filter(|it| !it.to_string().contains("as a value"))
            .collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let wrong = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) => wrong.clone(),
        _ => return error,
    };
    if let Some(ContextValue::Strings(mut near)) = error.remove(ContextKind::SuggestedSubcommand) {
        let nearest = near.iter().map(|it| levenshtein(&wrong, it)).min();
        near.retain(|it| Some(levenshtein(&wrong, it)) == nearest);
        let near = ContextValue::Strings(near);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(words: &str) -> String {
        let words = format!("kubectl-muster {words}");
        parse(words.split(' ')).unwrap_err().to_string()
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help_with_a_short_sentence() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|it| it.1).copied().collect();
        let mut root = command();
        let known: Vec<String> = root
            .get_subcommands()
            .map(|it| it.get_name().to_owned())
            .collect();
        for command in root.get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().unwrap().to_string();
            assert!(about.len() <= 85, "{name}: {about}");
            let times = grouped.iter().filter(|it| **it == name).count();
            assert_eq!(times, 1, "{name}");
        }
        assert_eq!(grouped.len(), known.len());
        let help = root.render_help().to_string();
        let at = |part: &str| help.find(part).unwrap_or_else(|| panic!("{part}: {help}"));
        let places = [
            "\n  status",
            "\n  drain",
            "\n  token",
            "\n  report",
            "--as <USER>",
            "Examples:",
        ]
        .map(at);
        assert!(places.is_sorted(), "{help}");
    }

    #[test]
    fn every_example_is_a_command_line() {
        fn lines(command: &mut Command, found: &mut Vec<String>) {
            let help = command.render_long_help().to_string();
            let examples = help
                .lines()
                .filter_map(|it| it.strip_prefix("  kubectl muster "));
            found.extend(examples.map(str::to_owned));
            command
                .get_subcommands_mut()
                .for_each(|it| lines(it, found));
        }
        let mut found = Vec::new();
        lines(&mut command(), &mut found);
        assert!(found.len() > 20, "{found:?}");
        for words in found {
            let words = words
                .split(" | ")
                .next()
                .unwrap()
                .replace("\'an upgrade\'", "upgrade");
            let words = words.replace("\'change freeze\'", "freeze");
            let line = format!("kubectl-muster {words}");
            if !words.starts_with("help ") {
                parse(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    #[test]
    fn get_takes_type_and_name_in_one_word() {
        for (words, expected) in [
            ("get cluster/m1 -o wide", "get clusters cluster/m1 -o wide"),
            ("get -A wl", "get -A wl"),
            (
                "-n shop get deploy/web,db",
                "-n shop get workloads deploy/web,db",
            ),
            ("get clusters cl/m1", "get clusters cl/m1"),
            ("get", "get"),
        ] {
            let words = words.split(' ').map(OsString::from).collect();
            assert_eq!(typed(words).join(" ".as_ref()), OsString::from(expected));
        }
    }

    #[test]
    fn a_dry_run_is_written_as_for_kubectl() {
        for command in [
            "drain m1",
            "taint m1 a:NoSchedule",
            "rebalance --all",
            "promote",
        ] {
            for (flag, expected) in [
                ("", Some(false)),
                (" --dry-run", Some(true)),
                (" --dry-run=client", Some(true)),
                (" --dry-run=server", Some(true)),
                (" --dry-run=none", Some(false)),
                (" --dry-run=maybe", None),
            ] {
                let line = format!("kubectl-muster {command}{flag}");
                let words = line.split(' ');
                let read = super::command().try_get_matches_from(words).ok();
                let read = read.and_then(|it| it.subcommand()?.1.get_one("dry_run").copied());
                assert_eq!(read, expected, "{line}");
            }
        }
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_nearest_and_no_wrong_advice() {
        let misspelt = reported("stauts");
        assert!(misspelt.contains("'status'"), "{misspelt}");
        assert!(!misspelt.contains("'taint'"), "{misspelt}");
        for words in ["simulate -x", "status --nonsense"] {
            let text = reported(words);
            assert!(text.contains("unexpected argument"), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
    }

    #[test]
    fn what_is_completed_knows_the_way_to_the_api() {
        let words = ["drain", "--user", "jane", "--context=prod", "m"];
        let found = connection(&words.map(str::to_owned)).unwrap();
        assert_eq!(found.user.as_deref(), Some("jane"));
        assert_eq!(found.context.as_deref(), Some("prod"));
    }
}
