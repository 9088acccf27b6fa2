//! Results of checks, and how they are shown: what `kubectl muster check` and `muster-agent check`
//! print.
//!
//! A check is a pure function from gathered facts to [`Verdict`]s. Facts that could not be read
//! are [`Refusal`]s, so that one refused request costs the checks that need it and no others.

mod ask;
pub mod common;
mod print;

pub use self::ask::{Answer, Asker, Clocks, MOST, Refusal};
pub use self::print::Style;

use std::borrow::Borrow;

use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The check does not apply.
    Skipped,
    /// The checked thing is as it should be.
    Ok,
    /// The checked thing works and needs attention, or could not be checked.
    Warning,
    /// The checked thing does not work.
    Error,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Heading under which it is shown.
    pub category: &'static str,
    /// Name of the check, for programs. It does not change between versions.
    pub name: &'static str,
    /// Result.
    pub status: Status,
    /// Sentence about what was found.
    pub message: String,
    /// Advice about what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Collects the verdicts of one category.
#[derive(Debug)]
pub struct Category {
    title: &'static str,
    verdicts: Vec<Verdict>,
}

impl Category {
    /// Begins a category.
    pub const fn new(title: &'static str) -> Self {
        Self {
            title,
            verdicts: Vec::new(),
        }
    }

    /// Adds something that is as it should be.
    pub fn ok(&mut self, name: &'static str, message: impl Into<String>) {
        self.push(name, Status::Ok, message.into(), None);
    }

    /// Adds a check that does not apply.
    pub fn skipped(&mut self, name: &'static str, message: impl Into<String>) {
        self.push(name, Status::Skipped, message.into(), None);
    }

    /// Adds something that needs attention.
    pub fn warning(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(name, Status::Warning, message.into(), Some(hint.into()));
    }

    /// Adds something that does not work.
    pub fn error(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(name, Status::Error, message.into(), Some(hint.into()));
    }

    /// Adds a check whose facts could not be read.
    pub fn unknown(&mut self, name: &'static str, what: &str, refusal: &Refusal) {
        let message = format!("cannot be checked: {what}: {refusal}");
        self.push(name, Status::Warning, message, refusal.hint());
    }

    fn push(&mut self, name: &'static str, status: Status, message: String, hint: Option<String>) {
        self.verdicts.push(Verdict {
            category: self.title,
            name,
            status,
            message,
            hint,
        });
    }

    /// Returns the verdicts.
    pub fn into_verdicts(self) -> Vec<Verdict> {
        self.verdicts
    }
}

/// All verdicts of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The verdicts, in the order in which they are shown.
    pub checks: Vec<Verdict>,
}

impl Report {
    /// Returns how many verdicts have a status.
    pub fn count(&self, status: Status) -> usize {
        let matching = self.checks.iter().filter(|it| it.status == status);
        matching.count()
    }

    /// Returns the worst status; [`Status::Ok`] if nothing is amiss.
    pub fn status(&self) -> Status {
        let worst = self.checks.iter().map(|it| it.status).max();
        worst.unwrap_or(Status::Ok).max(Status::Ok)
    }

    /// Returns whether the run succeeds: without errors, and with `strict` without warnings.
    pub fn succeeds(&self, strict: bool) -> bool {
        match self.status() {
            Status::Error => false,
            Status::Warning => !strict,
            Status::Ok | Status::Skipped => true,
        }
    }
}

/// Returns a text as a part of one line: without ends of lines and the control characters that a
/// terminal obeys. Parts of a message may be of others, such as the agent of a cluster.
pub fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Names at most so many things of a list, and says how many more there are.
pub fn listed<T: Borrow<str>>(names: &[T], most: usize) -> String {
    first_of(&names[..names.len().min(most)], names.len())
}

/// Names the first of so many things, and says how many more there are.
pub fn first_of<T: Borrow<str>>(names: &[T], all: usize) -> String {
    let first = names.join(", ");
    match all.saturating_sub(names.len()) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Joins at most so many texts, and adds what `more` says of the number of the others.
pub fn few<T: Borrow<str>>(
    texts: &[T],
    most: usize,
    separator: &str,
    more: impl FnOnce(usize) -> String,
) -> String {
    let first = texts[..texts.len().min(most)].join(separator);
    match texts.len().saturating_sub(most) {
        0 => first,
        others => first + &more(others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn report(statuses: &[Status]) -> Report {
        let mut category = Category::new("Fleet API");
        for status in statuses {
            match status {
                Status::Ok => category.ok("answers", "it answers"),
                Status::Skipped => category.skipped("gates", "no leader"),
                Status::Warning => category.warning("leader", "it is old", "upgrade it"),
                Status::Error => category.error("version", "it is too old", "use another\nor wait"),
            }
        }
        Report {
            checks: category.into_verdicts(),
        }
    }

    #[test]
    fn warnings_fail_a_run_only_where_that_was_asked_for() {
        use Status::{Error, Ok, Skipped, Warning};
        for (statuses, worst, plain, strict) in [
            (&[][..], Ok, true, true),
            (&[Skipped], Ok, true, true),
            (&[Ok, Skipped], Ok, true, true),
            (&[Ok, Warning, Skipped], Warning, true, false),
            (&[Error, Ok, Warning], Error, false, false),
        ] {
            let report = report(statuses);
            assert_eq!(report.status(), worst, "{statuses:?}");
            assert_eq!(report.succeeds(false), plain, "{statuses:?}");
            assert_eq!(report.succeeds(true), strict, "{statuses:?}");
        }
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&names, 3), "a, b, c");
        assert_eq!(listed(&names, 2), "a, b and 1 more");
        assert_eq!(listed::<&str>(&[], 2), "");
    }
}
