//! Replays conformance vectors: recorded inputs and outputs of the reference implementation.
//!
//! Tests of every crate use this, so it is compiled in; it is small and runs nowhere else. A suite is a file of
//! JSON lines `{case, in, out, quirk?}`. [`replay`] runs the project's own copy and, when `MUSTER_VECTORS`
//! names a folder, the file of the same name there, and prints one line:
//! `SUITE: passed P, differs D, failed F`.
//!
//! A line may differ only where the reference is known to be odd (it carries a `quirk`) and where we say, with
//! a reason, that we do otherwise ([`Deviation`]).

use std::{
    collections::HashSet,
    env, fs,
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

/// A behaviour of the reference that we do not copy.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The suite it shows in.
    pub suite: &'static str,
    /// The quirk of the line, word for word.
    pub quirk: &'static str,
    /// What we do instead, and why.
    pub reason: &'static str,
}

/// One line of a suite.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Unique name in the suite.
    pub case: String,
    /// What may be odd about the recorded result.
    #[serde(default)]
    pub quirk: Option<String>,
    /// The input.
    #[serde(rename = "in")]
    pub input: Value,
    /// The recorded result.
    #[serde(rename = "out")]
    pub output: Value,
}

/// How many lines of a suite did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As recorded.
    pub passed: usize,
    /// Otherwise, as declared.
    pub differs: usize,
    /// Otherwise, and nobody said so.
    pub failed: usize,
}

/// Replays a suite. `own` is the folder of the project's copy; `run` says how a case went wrong, if it did.
///
/// # Errors
/// The first failures in words, a missing copy, an unreadable line, or a declared deviation that the
/// project's copy has no example of.
pub fn replay(
    suite: &str,
    own: &Path,
    deviations: &[Deviation],
    run: impl Fn(&Case) -> Result<(), String>,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    let mut used = HashSet::new();
    for case in load(suite, own)? {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&case)))
            .unwrap_or_else(|_| Err("the code under test panicked".to_owned()));
        let declared = deviations.iter().find(|deviation| {
            deviation.suite == suite && case.quirk.as_deref() == Some(deviation.quirk)
        });
        used.extend(declared.map(|deviation| deviation.quirk));
        match (outcome, declared) {
            (Ok(()), _) => tally.passed += 1,
            (Err(_), Some(_)) => tally.differs += 1,
            (Err(fault), None) => {
                tally.failed += 1;
                let quirk = case
                    .quirk
                    .map(|quirk| format!(" [{quirk}]"))
                    .unwrap_or_default();
                failures.push(format!("{}{quirk}: {fault}", case.case));
            }
        }
    }
    let Tally {
        passed,
        differs,
        failed,
    } = tally;
    // Straight to the stream: the test harness swallows what `println!` writes.
    let _ = writeln!(
        io::stdout(),
        "{suite}: passed {passed}, differs {differs}, failed {failed}"
    );
    let stale = deviations
        .iter()
        .filter(|it| it.suite == suite && !used.contains(it.quirk));
    failures.extend(stale.map(|it| format!("no line has the quirk {:?} any more", it.quirk)));
    if failures.is_empty() {
        return Ok(tally);
    }
    let more = failures.len().saturating_sub(SHOWN);
    failures.truncate(SHOWN);
    Err(format!(
        "{suite}, {failed} failed:\n{}\n({more} more)",
        failures.join("\n")
    ))
}

/// So many failures are spelled out; the rest is counted.
const SHOWN: usize = 20;

/// The lines of both folders, each once.
fn load(suite: &str, own: &Path) -> Result<Vec<Case>, String> {
    let file = format!("{suite}.jsonl");
    let more = env::var_os("MUSTER_VECTORS").map(|folder| Path::new(&folder).join(&file));
    let mut text =
        fs::read_to_string(own.join(&file)).map_err(|error| format!("{file}: {error}"))?;
    if let Some(more) = more.and_then(|path| fs::read_to_string(path).ok()) {
        text.push('\n');
        text.push_str(&more);
    }
    let mut seen = HashSet::new();
    text.lines()
        .filter(|line| !line.trim().is_empty() && seen.insert(*line))
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{file}: {error}: {line}")))
        .collect()
}

/// Compares, taking `null`, absent, empty list and empty map for the same, as the vectors do.
///
/// # Errors
/// Both values, when they differ.
pub fn same(expected: &Value, actual: &Value) -> Result<(), String> {
    let (expected, actual) = (normal(expected), normal(actual));
    if expected == actual {
        return Ok(());
    }
    let show = |value: Option<Value>| value.unwrap_or_default();
    Err(format!("expected {}, got {}", show(expected), show(actual)))
}

/// A value without whatever counts as absent; `None` when nothing is left.
pub fn normal(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => Some(
            list.iter()
                .map(|item| normal(item).unwrap_or_default())
                .collect(),
        ),
        Value::Object(map) => {
            let map: serde_json::Map<_, _> = map
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), normal(value)?)))
                .collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        other => Some(other.clone()),
    }
}
