//! Tasks of the product read the calendar of the program that starts them.
//!
//! Programs of a simulation run in one process, each with a calendar of its own. A task that
//! `tokio::spawn` starts would read another's.

#![allow(clippy::unwrap_used, clippy::case_sensitive_file_extension_comparisons)] // how a test says that it failed

use std::path::{Path, PathBuf};

/// What starts a task without the calendar, and the files that may say so nevertheless.
const STARTS: [(&str, &[&str]); 3] = [
    (
        "tokio::spawn(",
        &["shared/src/clock.rs", "shared/src/tasks.rs"],
    ),
    ("task::spawn(", &[]),
    ("spawn_local(", &[]),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Lines of a file that are no comments, up to its tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn tasks_of_the_product_inherit_the_calendar_of_their_program() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for part in [
        "agent/src",
        "control-plane/src",
        "control-plane/kubectl/src",
        "shared/src",
    ] {
        sources(&top.join(part), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&top).unwrap().display().to_string();
        for (start, allowed) in STARTS {
            let starts = code(&text).any(|line| line.contains(start));
            let is_allowed = allowed.contains(&name.as_str());
            assert!(!starts || is_allowed, "{name} has {start}: clock::spawn");
        }
        let keeps = code(&text).any(|line| line.contains("JoinSet::new()"));
        let inherits = code(&text).any(|line| line.contains("inherited("));
        assert!(!keeps || inherits, "{name} has a JoinSet: clock::inherited");
    }
}
