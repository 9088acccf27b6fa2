//! `kubectl muster interpret`: asks the interpreters about objects in files, and checks
//! customizations before they are applied. It connects to nothing.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use muster_interpreter::lua::{Customization, Error as ScriptError, Limits, check, conflict};
use muster_interpreter::webhook::Hooks;
use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::binding::AggregatedStatusItem;
use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use muster_shared::clock::calendar;
use serde_json::{Value, json};

/// Line between the answers about customizations.
const RULE: &str = "-----------------------------------";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Files with ResourceInterpreterCustomizations and ResourceInterpreterWebhookConfigurations,
    /// `-` for the standard input. Without them the built-in rules answer. No webhook is asked: the
    /// output says where one would answer.
    #[arg(long = "filename", short = 'f', value_name = "FILE")]
    filenames: Vec<PathBuf>,
    /// Check them: each script must be Lua and define the function of its operation, and each
    /// webhook must have an address and authorities that can be used.
    #[arg(long, requires = "filenames", conflicts_with_all = ["operation", "observed", "desired", "status", "replicas"])]
    check: bool,
    /// Operation to carry out: InterpretReplica, InterpretComponent, ReviseReplica, Retain,
    /// AggregateStatus, InterpretDependency, InterpretStatus or InterpretHealth.
    #[arg(long, value_name = "NAME", value_parser = operation, required_unless_present = "check")]
    operation: Option<Operation>,
    /// File with the object: as it is in the member (InterpretHealth, InterpretStatus, Retain), or
    /// the template.
    #[arg(
        long = "observed-file",
        visible_alias = "observed",
        value_name = "FILE"
    )]
    observed: Option<PathBuf>,
    /// File with the object as the fleet wants it, for Retain.
    #[arg(long = "desired-file", visible_alias = "desired", value_name = "FILE")]
    desired: Option<PathBuf>,
    /// File with the items of `status.aggregatedStatus` of a binding, for AggregateStatus: one or
    /// more documents, each an item, a list of them, or the binding.
    #[arg(long = "status-file", visible_alias = "status", value_name = "FILE")]
    status: Option<PathBuf>,
    /// Number of replicas, for ReviseReplica.
    #[arg(long = "desired-replica", value_name = "NUMBER")]
    replicas: Option<i32>,
}

/// Reads an operation by its name, in any spelling of upper and lower case.
fn operation(text: &str) -> Result<Operation, String> {
    let all = Operation::ALL.into_iter();
    let mut found = all.filter(|one| one.to_string().eq_ignore_ascii_case(text));
    found.next().ok_or_else(|| {
        let names = Operation::ALL.map(|one| one.to_string());
        format!("is none of {}", names.join(", "))
    })
}

/// Returns what the program prints.
///
/// # Errors
/// When a file cannot be read, a customization is not valid, or a script gives no answer.
pub(super) fn carry_out(options: &Options) -> anyhow::Result<String> {
    let mut customizations = Vec::new();
    let mut configurations = Vec::new();
    for file in &options.filenames {
        for document in documents(file)? {
            if document["kind"] == "ResourceInterpreterWebhookConfiguration" {
                let configuration: ResourceInterpreterWebhookConfiguration =
                    serde_json::from_value(document)
                        .with_context(|| format!("read a configuration of {}", file.display()))?;
                configurations.push(configuration);
                continue;
            }
            let refused = |why: &dyn std::fmt::Display| {
                let file = file.display();
                anyhow::anyhow!("{file} is no ResourceInterpreterCustomization: {why}")
            };
            let customization: ResourceInterpreterCustomization =
                serde_json::from_value(document).map_err(|error| refused(&error))?;
            let target = &customization.spec.target;
            if target.api_version.is_empty() || target.kind.is_empty() {
                return Err(refused(&"spec.target names no kind"));
            }
            customizations.push((file.as_path(), Customization::of(&customization)));
        }
    }
    let Some(operation) = options.operation else {
        let mut text = checked(&customizations)?;
        text.push_str(&checked_webhooks(&configurations)?);
        return Ok(text);
    };
    let all: Vec<Customization> = customizations.into_iter().map(|(_, one)| one).collect();
    let hooks = Hooks::new(&configurations);
    let answer = answer(operation, options, (&all, &hooks), calendar())?;
    serde_saphyr::to_string(&answer).context("write the answer")
}

/// Checks webhooks, and lists which there are in the order in which they are asked.
fn checked_webhooks(
    configurations: &[ResourceInterpreterWebhookConfiguration],
) -> anyhow::Result<String> {
    let (mut text, mut faults) = (String::new(), 0);
    for hook in Hooks::new(configurations).iter() {
        let problems = hook.problems();
        faults += problems.len();
        writeln!(text, "{RULE}\nWEBHOOK: {hook}")?;
        for problem in &problems {
            writeln!(text, "    ERROR: {problem}")?;
        }
        if problems.is_empty() {
            writeln!(text, "    PASS")?;
        }
    }
    ensure!(faults == 0, "{text}{faults} faults of webhooks");
    Ok(text)
}

/// Checks customizations, and lists what there is.
fn checked(customizations: &[(&Path, Customization)]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut faults = 0;
    for (at, (file, one)) in customizations.iter().enumerate() {
        let errors = check(one, Limits::default()).err().unwrap_or_default();
        let others = customizations.iter().take(at).map(|(_, other)| other);
        let conflict = conflict(one, others).err();
        faults += errors.len() + usize::from(conflict.is_some());
        writeln!(text, "{RULE}\nSOURCE: {}", file.display())?;
        writeln!(text, "NAME: {}", one.name)?;
        writeln!(text, "TARGET: {} {}", one.api_version, one.kind)?;
        writeln!(text, "RULES:")?;
        for operation in Operation::ALL {
            let of = |error: &&ScriptError| error.source_of_script().operation == operation;
            let script = one.scripts.iter().find(|(of, _)| *of == operation);
            let verdict = match errors.iter().find(of) {
                Some(error) => format!("ERROR: {error}"),
                None if script.is_some_and(|(_, script)| !script.is_empty()) => "PASS".to_owned(),
                None => "UNSET".to_owned(),
            };
            writeln!(text, "    {:<21} {verdict}", format!("{operation}:"))?;
        }
        if let Some(conflict) = conflict {
            writeln!(text, "    ERROR: {conflict}")?;
        }
    }
    ensure!(faults == 0, "{text}{faults} scripts are not valid");
    Ok(text)
}

/// Carries one operation out.
fn answer(
    operation: Operation,
    options: &Options,
    (customizations, hooks): (&[Customization], &Hooks),
    now: Timestamp,
) -> anyhow::Result<Value> {
    let object = one(options.observed.as_deref(), "--observed-file")?;
    let interpreters = Interpreters::of(customizations);
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let is_scripted = interpreters.customized().has(api_version, kind, operation);
    if let Some(hook) = hooks
        .find(api_version, kind, operation)
        .filter(|_| !is_scripted)
    {
        bail!(
            "{hook} answers {operation} of {api_version} {kind}, and no webhook is asked from here"
        );
    }
    if !customizations.is_empty() {
        ensure!(
            is_scripted,
            "no script of the customizations is for {operation} of {api_version} {kind}"
        );
    }
    // Every kind has a health.
    let is_there =
        operation == Operation::InterpretHealth || interpreters.has(api_version, kind, operation);
    ensure!(
        is_there,
        "there is no rule for {operation} of {api_version} {kind}"
    );
    Ok(match operation {
        Operation::InterpretReplica => {
            let found = interpreters.replicas(&object)?.unwrap_or_default();
            json!({ "replicas": found.replicas, "requirements": found.requirements })
        }
        Operation::InterpretComponent => {
            json!({ "components": interpreters.components(&object)? })
        }
        Operation::ReviseReplica => {
            let replicas = options.replicas.context("--desired-replica is missing")?;
            interpreters.revise_replica(object, replicas)?
        }
        Operation::Retain => {
            let desired = one(options.desired.as_deref(), "--desired-file")?;
            interpreters.retain(desired, &object)?
        }
        Operation::AggregateStatus => {
            let file = options
                .status
                .as_deref()
                .context("--status-file is missing")?;
            let status = interpreters.aggregate_status(&object, &items(file)?, now)?;
            json!({ "status": status })
        }
        Operation::InterpretDependency => {
            json!({ "dependencies": interpreters.dependencies(&object)? })
        }
        Operation::InterpretStatus => json!({ "status": interpreters.status(&object)? }),
        Operation::InterpretHealth => json!({ "healthy": interpreters.is_healthy(&object)? }),
    })
}

/// Reads the one object of a file.
fn one(file: Option<&Path>, flag: &str) -> anyhow::Result<Value> {
    let file = file.with_context(|| format!("{flag} is missing"))?;
    let mut documents = documents(file)?;
    match (documents.pop(), documents.len()) {
        (Some(document), 0) => Ok(document),
        _ => bail!("{} is to hold one object", file.display()),
    }
}

/// Reads the items of a file, one for each cluster.
fn items(file: &Path) -> anyhow::Result<Vec<AggregatedStatusItem>> {
    let mut items = Vec::new();
    for document in documents(file)? {
        let all = match document {
            Value::Array(all) => all,
            Value::Object(_) if document["status"]["aggregatedStatus"].is_array() => {
                let all = document["status"]["aggregatedStatus"].as_array();
                all.cloned().unwrap_or_default()
            }
            one => vec![one],
        };
        for item in all {
            let item = serde_json::from_value(item);
            let item = item.with_context(|| format!("read an item of {}", file.display()))?;
            items.push(item);
        }
    }
    Ok(items)
}

/// Reads the documents of a file of YAML or JSON; `-` is the standard input.
fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("read the standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| anyhow::anyhow!("{} is no YAML: {error}", file.display()))?;
    Ok(documents.into_iter().filter(|it| !it.is_null()).collect())
}

#[cfg(test)]
mod tests;
