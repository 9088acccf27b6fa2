//! JSONPath as Kubernetes writes it: templates such as `{.status.jobID}` or
//! `{range .items[*]}{.name},{end}`.
//!
//! The rules are those of `k8s.io/client-go/util/jsonpath`, which differ from RFC 9535: text
//! outside braces is copied, a missing key is an error, several results are joined by a space,
//! objects and lists print as compact JSON. What that package refuses is refused here. Two things
//! differ on purpose: numbers print with all their digits, where Go turns a million into `1e+06`,
//! and a range without end, which it follows to the end of the template, is malformed. A filter
//! that asks whether something exists takes every error for no.
//!
//! Templates come from users, and documents from members, so everything is bounded: the length and
//! the nesting of a template ([`LENGTH`], [`DEPTH`]), the values that one evaluation looks at
//! ([`WORK`]), and what it prints ([`OUTPUT`]).

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

/// Longest template, in characters. The definitions of policies say the same (`maxLength`).
pub const LENGTH: usize = 1024;
/// Deepest nesting of ranges, and of brackets.
pub const DEPTH: usize = 16;
/// Values that one evaluation looks at before it gives up.
pub const WORK: usize = 100_000;
/// Longest result, in bytes. A label, which is what results are for, takes 63.
pub const OUTPUT: usize = 4096;

/// Why a template has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The template is malformed.
    #[error("template {template:?}: {fault}")]
    Syntax {
        /// The template, shortened.
        template: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The document has no such key.
    #[error("{0:?} is not found")]
    NotFound(String),
    /// The list is shorter.
    #[error("index {index} is out of bounds of a list of {length}")]
    OutOfBounds {
        /// The index that was asked for.
        index: i64,
        /// How long the list is.
        length: usize,
    },
    /// Only lists have elements.
    #[error("{0} is no list")]
    NotAList(&'static str),
    /// A slice goes forward.
    #[error("the step of a slice is not above 0")]
    Step,
    /// The template multiplies: unions of unions, or `..` below `..`.
    #[error("it leads to more than {WORK} values")]
    TooMuchWork,
    /// The result is no text for a label, nor for anything else that is short.
    #[error("its result is longer than {OUTPUT} bytes")]
    TooLong,
    /// A filter compares things of different types, or several at once.
    #[error("{0} and {1} cannot be compared")]
    Incomparable(&'static str, &'static str),
}

/// A template, ready to be filled in.
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
    /// Reads a template.
    ///
    /// # Errors
    /// It is malformed, too long, or nested too deep.
    pub fn parse(template: &str) -> Result<Self, Error> {
        let parts = parse::template(template).map_err(|fault| Error::Syntax {
            template: print::quote(template),
            fault: print::quote(&fault),
        })?;
        Ok(Self { parts })
    }

    /// Fills the template in.
    ///
    /// # Errors
    /// Something that the template asks for is not there, or is of another type, or there is too
    /// much of it.
    pub fn render(&self, document: &Value) -> Result<String, Error> {
        let mut output = Output::default();
        eval::render(&self.parts, document, &mut Budget::new(WORK), &mut output)?;
        Ok(output.into_text())
    }
}

/// Reads and fills in a template at once.
///
/// # Errors
/// Those of [`Template::parse`] and [`Template::render`].
pub fn render(template: &str, document: &Value) -> Result<String, Error> {
    Template::parse(template)?.render(document)
}
