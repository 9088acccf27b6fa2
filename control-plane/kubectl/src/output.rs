//! What a command prints, in which form, and the code with which it ends.

use std::fmt::Display;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde::Serialize;

/// Exit code of `status` when too little could be read.
pub(super) const UNREAD: u8 = 2;
/// Exit code when a workload that was to leave is stranded.
pub(super) const STRANDED: u8 = 3;
/// Exit code when what was waited for did not come in time.
pub(super) const TIMED_OUT: u8 = 4;
/// Exit code when a person ended the waiting (the code of shells for Ctrl-C).
pub(super) const INTERRUPTED: u8 = 130;

/// Output of the program, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Text that it prints.
    pub text: String,
    /// Its exit code.
    pub code: u8,
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self { text, code: 0 }
    }
}

impl Reply {
    /// Makes a reply with an exit code other than 0, if there is one.
    pub(super) fn with(text: String, code: Option<u8>) -> Self {
        let code = code.unwrap_or_default();
        Self { text, code }
    }
}

/// Returns a text without control characters, which terminals obey, but for those of its layout.
/// Whoever reports a condition, such as an agent, wrote parts of it.
pub(super) fn plain(text: &str) -> String {
    let is_obeyed = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    text.replace(is_obeyed, " ")
}

/// Prints a warning to the standard error. Parts of it may be what others wrote, as a text that the
/// API or an agent gave.
pub(super) fn warn(text: &impl Display) {
    eprintln!("Warning: {}", plain(&text.to_string()));
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// Text for people.
    #[default]
    #[value(alias = "text")]
    Table,
    /// Text for people of which nothing is cut.
    Wide,
    /// JSON document.
    Json,
    /// YAML document.
    Yaml,
}

impl Format {
    /// Returns how many lines of a list are printed at most: a terminal gets a few, unless asked
    /// for a wide answer.
    pub(super) fn most(self, few: usize) -> usize {
        let is_cut = self == Self::Table && std::io::stdout().is_terminal();
        if is_cut { few } else { usize::MAX }
    }

    /// Returns the answer in this form: the text for people, or the document for programs.
    pub(super) fn print<T: Display>(
        self,
        text: impl FnOnce() -> T,
        document: &impl Serialize,
    ) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table | Self::Wide => plain(&text().to_string()),
            Self::Json => format!("{}\n", serde_json::to_string_pretty(document)?),
            Self::Yaml => serde_saphyr::to_string(document)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_answer_is_whole_on_a_terminal_too() {
        for format in [Format::Wide, Format::Json, Format::Yaml] {
            assert_eq!(format.most(20), usize::MAX);
        }
    }

    #[test]
    fn what_others_wrote_controls_no_terminal() {
        let text = "m1\tready\n\u{1b}[2J\r\u{9b}2J";
        for format in [Format::Table, Format::Wide] {
            let printed = format.print(|| text, &text).unwrap();
            assert_eq!(printed, "m1\tready\n [2J  2J");
        }
    }
}
