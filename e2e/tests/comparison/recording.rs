//! The answers of a real server in files: one per file of conversations, an answer a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::comparison::Key;

/// Reads all recorded answers of a directory.
pub fn read(directory: &Path) -> anyhow::Result<BTreeMap<Key, Vec<Value>>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let recorded: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&std::fs::read(&path)?)
            .with_context(|| format!("reading {}", path.display()))?;
        let file = path.file_stem().and_then(|stem| stem.to_str());
        let file = file.context("a file without a name")?;
        let keyed = |(name, answers)| ((file.to_owned(), name), answers);
        all.extend(recorded.into_iter().map(keyed));
    }
    Ok(all)
}

/// Writes the answers, each file anew.
pub fn write(directory: &Path, recorded: &BTreeMap<Key, Vec<Value>>) -> anyhow::Result<()> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for ((file, name), answers) in recorded {
        let text = files.entry(file).or_default();
        let begin = if text.is_empty() { "{" } else { "," };
        let answers: Vec<String> = answers.iter().map(Value::to_string).collect();
        let name = Value::from(name.as_str());
        write!(text, "{begin}\n{name}: [\n{}\n]", answers.join(",\n"))?;
    }
    for entry in std::fs::read_dir(directory)? {
        std::fs::remove_file(entry?.path())?;
    }
    for (file, text) in files {
        std::fs::write(directory.join(format!("{file}.json")), text + "\n}\n")?;
    }
    Ok(())
}
