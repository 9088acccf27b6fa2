//! `muster-control-plane crds`: the definitions of our kinds, to be applied by hand.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use kube::ResourceExt;
use muster_shared::k8s::CustomResourceDefinition;
use muster_shared::telemetry;

use crate::settings::refuse;

/// Name of the command.
pub const COMMAND: &str = "crds";
/// Description of the command, as its help shows it.
pub const ABOUT: &str = "Print the custom resource definitions as YAML";

/// Message where all of them are printed.
const WARNING: &str = "warning: all definitions are for an API of Muster's own. On Karmada's API the one of Clusters would stand beside Karmada's, and \
    its deletion would delete every Cluster: name the definitions that are missing there, such as failovers.failover.muster.io (see MIGRATE.md)";

#[derive(Debug, Parser)]
#[command(name = "muster-control-plane crds", about = ABOUT)]
struct Arguments {
    /// Definitions to print, such as failovers.failover.muster.io; all without any.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Prints the definitions, ready for `kubectl apply --server-side -f -`.
pub fn execute(arguments: Vec<OsString>) -> ExitCode {
    // The name of the program comes before that of the command.
    let arguments = Arguments::parse_from(arguments.into_iter().skip(1));
    let all = muster_shared::api::crds();
    let chosen = match choose(all, &arguments.names) {
        Ok(chosen) => chosen,
        Err(error) => return refuse(&error),
    };
    if arguments.names.is_empty() {
        eprintln!("{WARNING}");
    }
    let mut text = String::new();
    for crd in chosen {
        match serde_saphyr::to_string(&crd) {
            Ok(one) => text.extend(["---\n", one.trim_end(), "\n"]),
            Err(error) => return refuse(&error),
        }
    }
    match telemetry::print(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

/// Returns the definitions of these names; all of them if no name is given.
fn choose(
    all: Vec<CustomResourceDefinition>,
    names: &[String],
) -> Result<Vec<CustomResourceDefinition>, String> {
    let known: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!(
            "there is no definition {unknown:?}: there are {known}"
        ));
    }
    let is_chosen =
        |it: &CustomResourceDefinition| names.is_empty() || names.contains(&it.name_any());
    Ok(all.into_iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_chosen_by_their_names() {
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|it| (*it).to_owned()).collect();
            let chosen = choose(muster_shared::api::crds(), &asked)?;
            Ok::<_, String>(chosen.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), muster_shared::api::crds().len());
        let one = "failovers.failover.muster.io";
        assert_eq!(names(&[one]).unwrap(), [one]);
        let error = names(&["failovers"]).unwrap_err();
        assert!(
            error.contains("\"failovers\"") && error.contains(one),
            "{error}"
        );
    }
}
