//! Replays conformance vectors: recorded inputs and outputs of the reference implementation.
//!
//! A suite is a file of JSON lines `{case, in, out, quirk?}`. [`replay`] runs the project's own
//! copy (`tests/vectors` of a crate) and, when `MUSTER_VECTORS` names a folder, the file of the
//! same name there, and prints one line: `SUITE: passed P, differs D, failed F`.
//!
//! A line may differ only where the reference is known to be odd (it carries a `quirk`) and where a
//! [`Deviation`] says, with a reason, that this project does otherwise. What it answers instead is
//! on file, too: `tests/answers/SUITE.jsonl` has the own answer to each such line of the project's
//! copy, and another answer fails. `MUSTER_RECORD_ANSWERS=1 cargo test` writes these files anew, so
//! that a change shows in the commit. Lines that are in the folder of `MUSTER_VECTORS` alone have
//! no answer on file; there a declared quirk allows any answer. A panic of the code under test
//! fails always.

mod answers;
mod outcome;

use std::{
    collections::HashSet,
    env, fs,
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

use answers::{Answer, Answers};
pub use outcome::{Difference, normal, same};

/// A behaviour of the reference that is not copied.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// A suite that shows it; it is declared wherever it shows.
    pub suite: &'static str,
    /// The quirk of the line, word for word.
    pub quirk: &'static str,
    /// Behaviour in its place, and the reason.
    pub reason: &'static str,
}

/// Case of a suite.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Unique name in the suite.
    pub case: String,
    /// Note about an odd recorded result.
    #[serde(default)]
    pub quirk: Option<String>,
    /// The input.
    #[serde(rename = "in")]
    pub input: Value,
    /// The recorded result.
    #[serde(rename = "out")]
    pub output: Value,
    /// Whether the project's own copy has the line.
    #[serde(skip)]
    own: bool,
}

/// Numbers of the cases of a suite by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As recorded.
    pub passed: usize,
    /// Otherwise, as declared.
    pub differs: usize,
    /// Otherwise, and nobody said so.
    pub failed: usize,
}

/// Replays a suite. `tests` is the folder with the project's copy (`vectors`) and its answers
/// (`answers`); `run` says how the answer to a case differs from the recorded one, if it does.
///
/// # Errors
/// The first failures in words, a missing or empty copy, an unreadable line, or a declared
/// deviation that the project's copy has no example of.
pub fn replay(
    suite: &str,
    tests: &Path,
    deviations: &[Deviation],
    run: impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Tally, String> {
    replay_naming(suite, tests, deviations, |_| None, run)
}

/// Replays a suite as [`replay`] does, where the recording does not mark all that is odd: `name`
/// gives the quirk of a line that carries none.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_naming(
    suite: &str,
    tests: &Path,
    deviations: &[Deviation],
    name: impl Fn(&Case) -> Option<&'static str>,
    run: impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Tally, String> {
    let file = format!("{suite}.jsonl");
    let path = tests.join("answers").join(&file);
    let mut cases = load(&file, tests)?;
    for case in &mut cases {
        if case.quirk.is_none() {
            case.quirk = name(case).map(str::to_owned);
        }
    }
    if env::var_os("MUSTER_RECORD_ANSWERS").is_some() {
        record(suite, &cases, deviations, &run).store(&path)?;
    }
    judged(suite, &cases, deviations, &Answers::load(&path)?, &run)
}

/// Replays a suite as [`replay_naming`] does, but one that the project has no copy of, because its
/// inputs are others' work: all its lines are in the folder of `MUSTER_VECTORS`. Returns `None` if
/// that is not set or has no such suite. The folder may have no example of a declared deviation.
///
/// # Errors
/// The first failures in words, an empty suite or an unreadable line.
pub fn replay_elsewhere(
    suite: &str,
    deviations: &[Deviation],
    name: impl Fn(&Case) -> Option<&'static str>,
    run: impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Option<Tally>, String> {
    let file = format!("{suite}.jsonl");
    let Some(text) = elsewhere(&file) else {
        return Ok(None);
    };
    let mut cases = parse(&file, &text, false, &mut HashSet::new())?;
    for case in &mut cases {
        if case.quirk.is_none() {
            case.quirk = name(case).map(str::to_owned);
        }
    }
    let quirks: HashSet<_> = cases.iter().filter_map(|it| it.quirk.as_deref()).collect();
    let shown: Vec<Deviation> = deviations
        .iter()
        .filter(|deviation| quirks.contains(deviation.quirk))
        .copied()
        .collect();
    judged(suite, &cases, &shown, &Answers::default(), &run).map(Some)
}

/// Judges the lines of a suite and prints how many did what.
fn judged(
    suite: &str,
    cases: &[Case],
    deviations: &[Deviation],
    answers: &Answers,
    run: &impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Tally, String> {
    let report = judge(suite, cases, deviations, answers, run)?;
    let Tally {
        passed,
        differs,
        failed,
    } = report.tally;
    // Straight to the stream: the test harness swallows what `println!` writes.
    let _ = writeln!(
        io::stdout(),
        "{suite}: passed {passed}, differs {differs}, failed {failed}"
    );
    report.end(suite)
}

/// Lines of a suite, judged.
#[derive(Debug, Default)]
struct Report {
    tally: Tally,
    faults: Vec<String>,
}

impl Report {
    fn end(mut self, suite: &str) -> Result<Tally, String> {
        if self.faults.is_empty() {
            return Ok(self.tally);
        }
        let more = self.faults.len().saturating_sub(SHOWN);
        self.faults.truncate(SHOWN);
        Err(format!(
            "{suite}, {} failed:\n{}\n({more} more)",
            self.tally.failed,
            self.faults.join("\n")
        ))
    }
}

/// So many failures are spelled out; the rest is counted.
const SHOWN: usize = 20;

fn judge(
    suite: &str,
    cases: &[Case],
    deviations: &[Deviation],
    answers: &Answers,
    run: &impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Report, String> {
    if cases.is_empty() {
        return Err(format!("{suite} has no lines: nothing is tested"));
    }
    let mut report = Report::default();
    let (mut quirks, mut answered) = (HashSet::new(), HashSet::new());
    for case in cases {
        let declared = declared(suite, case, deviations);
        quirks.extend(declared.map(|deviation| deviation.quirk));
        let expected = answers.0.get(&case.case).filter(|_| case.own);
        answered.extend(expected.map(|answer| answer.case.as_str()));
        let fault = match (guarded(case, run), declared, expected) {
            (Ok(Ok(())), _, None) => {
                report.tally.passed += 1;
                continue;
            }
            (Ok(Err(difference)), Some(deviation), Some(expected))
                if difference.answer == expected.ours && deviation.reason == expected.reason =>
            {
                report.tally.differs += 1;
                continue;
            }
            (Ok(Err(_)), Some(_), None) if !case.own => {
                report.tally.differs += 1;
                continue;
            }
            (Ok(Ok(())), _, Some(_)) => {
                "is as recorded now, but another answer is on file".to_owned()
            }
            (Ok(Err(difference)), Some(deviation), Some(expected)) => format!(
                "the answer on file is {} ({}), got {} ({})",
                expected.ours, expected.reason, difference.answer, deviation.reason
            ),
            (Ok(Err(difference)), Some(_), None) => {
                format!("no answer is on file, got {}", difference.answer)
            }
            (Ok(Err(difference)), None, _) => difference.to_string(),
            (Err(panic), _, _) => panic,
        };
        report.tally.failed += 1;
        let quirk = case.quirk.as_ref().map(|quirk| format!(" [{quirk}]"));
        let quirk = quirk.unwrap_or_default();
        report.faults.push(format!("{}{quirk}: {fault}", case.case));
    }
    let stale = deviations
        .iter()
        .filter(|it| it.suite == suite && !quirks.contains(it.quirk));
    report
        .faults
        .extend(stale.map(|it| format!("no line has the quirk {:?} any more", it.quirk)));
    let stale = answers
        .0
        .keys()
        .filter(|case| !answered.contains(case.as_str()));
    report
        .faults
        .extend(stale.map(|case| format!("an answer is on file to {case}, which is no line")));
    Ok(report)
}

/// Returns the declaration of a line's quirk. The same quirk may show in several suites: a
/// declaration for the line's own suite goes first, and one for another holds as well.
fn declared<'d>(suite: &str, case: &Case, deviations: &'d [Deviation]) -> Option<&'d Deviation> {
    let quirk = case.quirk.as_deref()?;
    let same = || deviations.iter().filter(|it| it.quirk == quirk);
    same()
        .find(|it| it.suite == suite)
        .or_else(|| same().next())
}

/// Runs a case; the outer error is a panic.
fn guarded(
    case: &Case,
    run: &impl Fn(&Case) -> Result<(), Difference>,
) -> Result<Result<(), Difference>, String> {
    catch_unwind(AssertUnwindSafe(|| run(case)))
        .map_err(|_| "the code under test panicked".to_owned())
}

/// Returns the present answers to the lines of the own copy that may differ, and do.
fn record(
    suite: &str,
    cases: &[Case],
    deviations: &[Deviation],
    run: &impl Fn(&Case) -> Result<(), Difference>,
) -> Answers {
    let answer = |case: &Case| {
        let deviation = declared(suite, case, deviations)?;
        let difference = guarded(case, run).ok()?.err()?;
        let answer = Answer {
            case: case.case.clone(),
            ours: difference.answer,
            reason: deviation.reason.to_owned(),
        };
        Some((case.case.clone(), answer))
    };
    Answers(
        cases
            .iter()
            .filter(|case| case.own)
            .filter_map(answer)
            .collect(),
    )
}

/// Returns the lines of both folders, each once.
fn load(file: &str, tests: &Path) -> Result<Vec<Case>, String> {
    let own = fs::read_to_string(tests.join("vectors").join(file))
        .map_err(|error| format!("{file}: {error}"))?;
    let more = elsewhere(file).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut cases = parse(file, &own, true, &mut seen)?;
    cases.extend(parse(file, &more, false, &mut seen)?);
    Ok(cases)
}

/// Returns the text of the file of that name in the folder of `MUSTER_VECTORS`.
fn elsewhere(file: &str) -> Option<String> {
    let folder = env::var_os("MUSTER_VECTORS")?;
    fs::read_to_string(Path::new(&folder).join(file)).ok()
}

fn parse<'t>(
    file: &str,
    text: &'t str,
    own: bool,
    seen: &mut HashSet<&'t str>,
) -> Result<Vec<Case>, String> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && seen.insert(*line))
        .map(|line| {
            let case: Case =
                serde_json::from_str(line).map_err(|error| format!("{file}: {error}: {line}"))?;
            Ok(Case { own, ..case })
        })
        .collect()
}

#[cfg(test)]
mod tests;
