//! JSONPath templates in the dialect of Kubernetes, such as `{.status.jobID}` or `{range
//! .items[*]}{.name},{end}`.
//!
//! The rules are those of `k8s.io/client-go/util/jsonpath`, which differ from RFC 9535: text
//! outside braces is copied, a missing key is an error, several results are joined by a space, and
//! objects and lists are printed as compact JSON. What that package rejects is rejected here. Two
//! things differ on purpose: numbers are printed with all digits, where Go prints a million as
//! `1e+06`; and a range without end, which that package evaluates to the end of the template, is
//! malformed. A filter that tests for existence takes every error as absence.
//!
//! Templates come from users and documents from members, so everything is bounded: length and
//! nesting of a template ([`LENGTH`], [`DEPTH`]), values that an evaluation reads ([`WORK`]),
//! and the length of the result ([`OUTPUT`]).
//!
//! ```
//! use muster_shared::jsonpath::{Error, Template, render};
//! use serde_json::json;
//!
//! let status = json!({ "jobs": [{ "id": "a", "done": true }, { "id": "b", "done": false }] });
//! assert_eq!(render("{.jobs[0].id}", &status)?, "a");
//! assert_eq!(render("ids: {.jobs[*].id}", &status)?, "ids: a b");
//! assert_eq!(render("{.jobs[?(@.done==true)].id}", &status)?, "a");
//! assert_eq!(render("{.jobs[1]}", &status)?, r#"{"done":false,"id":"b"}"#);
//!
//! assert!(matches!(render("{.missing}", &status), Err(Error::NotFound(_))));
//! assert!(matches!(Template::parse("{.jobs["), Err(Error::Syntax { .. })));
//! # Ok::<(), Error>(())
//! ```

use serde_json::Value;

use eval::Budget;
use print::Output;

mod bracket;
mod eval;
mod parse;
mod print;
mod scan;

#[cfg(test)]
mod tests;

/// Maximum number of characters of a template. The definitions of policies have the same
/// `maxLength`.
pub const LENGTH: usize = 1024;
/// Maximum nesting of ranges, and of brackets.
pub const DEPTH: usize = 16;
/// Maximum number of values that one evaluation reads.
pub const WORK: usize = 100_000;
/// Maximum length of a result in bytes. A label value, for which results are used, has at most 63.
pub const OUTPUT: usize = 4096;

/// Reason why a template has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The template is malformed.
    #[error("template {template:?}: {fault}")]
    Syntax {
        /// The template, shortened.
        template: String,
        /// The first error in it.
        fault: String,
    },
    /// The document does not have this key.
    #[error("{0:?} is not found")]
    NotFound(String),
    /// The list does not have this index.
    #[error("index {index} is out of bounds of a list of {length}")]
    OutOfBounds {
        /// The index.
        index: i64,
        /// Length of the list.
        length: usize,
    },
    /// An index or a slice is applied to something other than a list.
    #[error("{0} is no list")]
    NotAList(&'static str),
    /// The step of a slice is not positive.
    #[error("the step of a slice is not above 0")]
    Step,
    /// The evaluation reads too many values, as with unions of unions or `..` below `..`.
    #[error("it leads to more than {WORK} values")]
    TooMuchWork,
    /// The result is longer than [`OUTPUT`].
    #[error("its result is longer than {OUTPUT} bytes")]
    TooLong,
    /// A filter compares values of different types, or several values at once.
    #[error("{0} and {1} cannot be compared")]
    Incomparable(&'static str, &'static str),
}

/// Parsed template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Copied.
    Text(String),
    /// Replaced by what the path leads to.
    Path(Vec<Step>),
    /// Repeated for everything that the path leads to.
    Range(Vec<Step>, Vec<Self>),
}

/// One step from a value to the next.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name` or `['name']`.
    Field(String),
    /// `.*`
    Wildcard,
    /// `..`
    Descend,
    /// `[start:end:step]`; `[n]` is a slice of one.
    Slice(Slice),
    /// `[a,b]`
    Union(Vec<Vec<Self>>),
    /// `[?(@.left op right)]`
    Filter(Vec<Self>, Test),
    /// A quoted text takes the place of all values.
    Text(Value),
    /// A number or a truth value takes the place of each value.
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
    single: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Compare(Operator, Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// The template is malformed, too long, or nested too deeply.
    pub fn parse(template: &str) -> Result<Self, Error> {
        let parts = parse::template(template).map_err(|fault| Error::Syntax {
            template: print::quote(template),
            fault: print::quote(&fault),
        })?;
        Ok(Self { parts })
    }

    /// Evaluates the template on a document.
    ///
    /// # Errors
    /// Something that the template refers to is missing or has another type, or a limit is
    /// exceeded.
    pub fn render(&self, document: &Value) -> Result<String, Error> {
        let mut output = Output::default();
        eval::render(&self.parts, document, &mut Budget::new(WORK), &mut output)?;
        Ok(output.into_text())
    }
}

/// Parses a template and evaluates it.
///
/// # Errors
/// Those of [`Template::parse`] and [`Template::render`].
pub fn render(template: &str, document: &Value) -> Result<String, Error> {
    Template::parse(template)?.render(document)
}
