//! Muster's own answers to recorded cases with a declared difference, one JSON line each: `{case,
//! answer, reason}`.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Own answer to one line of a suite, where it differs from the recorded one.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// Name of the line.
    pub(crate) case: String,
    /// Answer of the code under test.
    #[serde(rename = "answer")]
    pub(crate) ours: Value,
    /// Reason for the difference.
    pub(crate) reason: String,
}

/// Answers of one suite, by the name of the line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answers(pub(crate) BTreeMap<String, Answer>);

impl Answers {
    /// Reads the file of a suite; a suite without a file has no answers.
    ///
    /// # Errors
    /// A line that does not decode, or a second answer to one line.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let mut answers = BTreeMap::new();
        for line in text.lines() {
            let answer: Answer = serde_json::from_str(line)
                .map_err(|error| format!("{}: {error}: {line}", path.display()))?;
            if let Some(twice) = answers.insert(answer.case.clone(), answer) {
                return Err(format!("{}: two answers to {}", path.display(), twice.case));
            }
        }
        Ok(Self(answers))
    }

    /// Writes the file of a suite; removes it where there is nothing to say.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn store(&self, path: &Path) -> Result<(), String> {
        let fault = |error: io::Error| format!("{}: {error}", path.display());
        if self.0.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault(error)),
                _ => Ok(()),
            };
        }
        let mut text = String::new();
        for answer in self.0.values() {
            let line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
            text.push_str(&line);
            text.push('\n');
        }
        fs::write(path, text).map_err(fault)
    }
}
