//! Errors of scripts, each with the customization, kind and operation that it happened in.

use std::{fmt, sync::Arc};

use crate::lua::limits::Limit;
use crate::operation::Operation;

/// Origin of a script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Name of the customization; empty for a built-in rule.
    pub customization: String,
    /// API version of the kind.
    pub api_version: String,
    /// Kind that the script interprets.
    pub kind: String,
    /// Operation that the script is for.
    pub operation: Operation,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            customization,
            api_version,
            kind,
            operation,
        } = self;
        write!(f, "{operation} of {api_version} {kind} by ")?;
        if customization.is_empty() {
            f.write_str("the built-in rule")
        } else {
            write!(f, "ResourceInterpreterCustomization {customization:?}")
        }
    }
}

/// Reason why a script gave no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The text is no Lua.
    #[error("{at}: line {line}: {message}")]
    Syntax {
        /// Origin of the script.
        at: Arc<Source>,
        /// Line of the script, from 1; 0 where it is not known.
        line: u32,
        /// Message of the compiler.
        message: String,
    },
    /// The script does not define the function of its operation.
    #[error("{at}: the script defines no function {function}")]
    MissingFunction {
        /// Origin of the script.
        at: Arc<Source>,
        /// Name of the function.
        function: &'static str,
    },
    /// The script raised an error.
    #[error("{at}: line {line}: {message}")]
    Script {
        /// Origin of the script.
        at: Arc<Source>,
        /// Line of the script, from 1; 0 where it is not known.
        line: u32,
        /// Message of the error.
        message: String,
    },
    /// The script needed more than it may use.
    #[error("{at}: the script was stopped at its limit of {limit}")]
    Limit {
        /// Origin of the script.
        at: Arc<Source>,
        /// The limit.
        limit: Limit,
    },
    /// The script ran into its limits again and again, and is not run for a while.
    #[error(
        "{at}: the script is not run for {seconds} s, because it was stopped {times} times in a row, last at its limit of {limit}"
    )]
    Suspended {
        /// Origin of the script.
        at: Arc<Source>,
        /// The limit that it ran into last.
        limit: Limit,
        /// Calls in a row that were stopped.
        times: u32,
        /// Seconds until it is tried again.
        seconds: u64,
    },
    /// The script returned something else than the operation expects.
    #[error("{at}: {path}: expected {expected}, found {found}")]
    Result {
        /// Origin of the script.
        at: Arc<Source>,
        /// Place in what the function returned, such as `requires.nodeClaim`.
        path: String,
        /// Value that the operation expects there.
        expected: String,
        /// Value that was found, shortened.
        found: String,
    },
    /// The interpreter itself could not be set up.
    #[error("{at}: set up Lua: {message}")]
    Setup {
        /// Origin of the script.
        at: Arc<Source>,
        /// Message of Lua.
        message: String,
    },
}

impl Error {
    /// Returns the origin of the script that failed.
    pub fn source_of_script(&self) -> &Source {
        match self {
            Self::Syntax { at, .. }
            | Self::MissingFunction { at, .. }
            | Self::Script { at, .. }
            | Self::Limit { at, .. }
            | Self::Suspended { at, .. }
            | Self::Result { at, .. }
            | Self::Setup { at, .. } => at,
        }
    }
}
