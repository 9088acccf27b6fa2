//! The order of the modules: each uses those of the floors below it, its own, and none above.

use std::path::{Path, PathBuf};

use regex::Regex;

/// The floors, lowest first. A part of a module that stands lower than the module itself has a
/// floor of its own.
const FLOORS: &[&str] = &[
    "wire",
    "audit",
    "faults",
    "kinds::catalog",
    "schema",
    "store",
    "table",
    "registry",
    "apply",
    "patch",
    "auth",
    "admission::config",
    "context",
    "kinds",
    "admission",
    "verbs",
    "subresources",
    "reviews",
    "openapi",
    "discovery",
    "paths",
    "controllers",
    "server",
    "serve",
    "snapshot",
    "running",
    "seed",
    "testing",
];

/// Returns the floor of a path within the crate, which is that of the longest prefix.
fn floor(path: &[&str]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|length| {
        let prefix = path[..length].join("::");
        FLOORS.iter().position(|floor| *floor == prefix)
    })
}

/// Returns the paths within the crate that a text names, as seen from a module.
fn named<'a>(module: &[&'a str], text: &'a str) -> Vec<Vec<&'a str>> {
    let path = Regex::new(r"\b(crate|super(?:::super)*)((?:::\w+)+)").expect("a pattern");
    let resolve = |found: regex::Captures<'a>| {
        let (start, rest) = (found.get(1)?.as_str(), found.get(2)?.as_str());
        let mut resolved = module.to_vec();
        match start {
            "crate" => resolved.clear(),
            above => resolved.truncate(module.len().checked_sub(above.split("::").count())?),
        }
        resolved.extend(rest.split("::").skip(1));
        Some(resolved)
    };
    path.captures_iter(text).filter_map(resolve).collect()
}

/// Returns what is compiled outside of tests, without comments.
fn product(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines();
    lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_module_uses_only_what_is_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut upwards = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("inside").with_extension("");
        let mut module: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
        if module.last() == Some(&"mod") {
            module.pop();
        }
        if matches!(module.as_slice(), ["lib" | "floors"] | [.., "tests"]) {
            continue;
        }
        let own = floor(&module).unwrap_or_else(|| panic!("{module:?} has no floor"));
        let text = product(&std::fs::read_to_string(&file).expect("a source"));
        for path in named(&module, &text) {
            if floor(&path).is_some_and(|floor| floor > own) {
                upwards.push(format!("{} uses {}", module.join("::"), path.join("::")));
            }
        }
    }
    assert_eq!(upwards, Vec::<String>::new());
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let text =
        "use crate::verbs::{self, Prepared};\nfn a() { super::super::wire::b(); super::c() }";
    assert_eq!(
        named(&["verbs", "create"], text),
        [vec!["verbs"], vec!["wire", "b"], vec!["verbs", "c"]]
    );
    assert!(floor(&["admission", "config", "Hook"]) < floor(&["context"]));
    assert!(floor(&["context"]) < floor(&["admission", "mutate"]));
    assert_eq!(floor(&["elsewhere"]), None);
}
