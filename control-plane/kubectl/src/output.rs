//! The forms in which a command prints its answer.

use std::fmt::Display;

use clap::ValueEnum;
use serde::Serialize;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// Text for people.
    #[default]
    Table,
    /// JSON document.
    Json,
    /// YAML document.
    Yaml,
}

impl Format {
    /// The answer in this form: the text for people, or the document for programs.
    pub(super) fn print<T: Display>(
        self,
        text: impl FnOnce() -> T,
        document: &impl Serialize,
    ) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table => text().to_string(),
            Self::Json => format!("{}\n", serde_json::to_string_pretty(document)?),
            Self::Yaml => serde_saphyr::to_string(document)?,
        })
    }
}
