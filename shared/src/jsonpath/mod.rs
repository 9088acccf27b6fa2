//! JSONPath as Kubernetes writes it: templates such as `{.status.jobID}` or `{range .items[*]}{.name},{end}`.
//!
//! The rules are those of `k8s.io/client-go/util/jsonpath`, which differ from RFC 9535: text outside braces is
//! copied, a missing key is an error (unless told otherwise), several results are joined by a space, objects and
//! lists print as compact JSON. Numbers print with all their digits, where Go turns a million into `1e+06`.

use serde_json::Value;

mod eval;
mod parse;
mod print;

#[cfg(test)]
mod tests;

/// Why a template has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The template is malformed.
    #[error("template {template:?}: {fault}")]
    Syntax {
        /// The template.
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
    /// A filter compares things of different types, or several at once.
    #[error("{0} and {1} cannot be compared")]
    Incomparable(&'static str, &'static str),
}

/// A template, ready to be filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
    lenient: bool,
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
    /// `[start:end:step]`; `[n]` is a slice of one that must be there.
    Slice(Slice),
    /// `[a,b]`
    Union(Vec<Self>),
    /// `[?(@.left op right)]`
    Filter(Vec<Self>, Test),
    /// A literal takes the place of the value.
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
    pub fn parse(template: &str) -> Result<Self, Error> {
        let parts = parse::template(template).map_err(|fault| Error::Syntax {
            template: template.to_owned(),
            fault,
        })?;
        Ok(Self {
            parts,
            lenient: false,
        })
    }

    /// The same template, with missing keys leading nowhere instead of being an error.
    #[must_use]
    pub fn allow_missing(self) -> Self {
        Self {
            lenient: true,
            ..self
        }
    }

    /// Fills the template in.
    pub fn render(&self, document: &Value) -> Result<String, Error> {
        let mut text = String::new();
        eval::render(&self.parts, document, self.lenient, &mut text)?;
        Ok(text)
    }

    /// What the first path of the template leads to.
    pub fn find(&self, document: &Value) -> Result<Vec<Value>, Error> {
        let path = self.parts.iter().find_map(|part| match part {
            Part::Path(steps) => Some(steps),
            _ => None,
        });
        let Some(path) = path else {
            return Ok(Vec::new());
        };
        let found = eval::walk(path, document, self.lenient)?;
        Ok(found
            .into_iter()
            .map(std::borrow::Cow::into_owned)
            .collect())
    }
}

/// Reads and fills in a template at once.
pub fn render(template: &str, document: &Value) -> Result<String, Error> {
    Template::parse(template)?.render(document)
}
