//! Inputs in files.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Bytes of the longest input that is kept.
const LONGEST: usize = 300;
/// Files of a target's corpus.
const MOST: usize = 60;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(kind)
        .join(target)
}

/// Reads the corpus and the regressions of a target, in the order of their names. A target without
/// files has none.
pub(crate) fn load(target: &str) -> Vec<Vec<u8>> {
    let mut found = BTreeMap::new();
    for kind in ["corpus", "regressions"] {
        let files = fs::read_dir(folder(kind, target)).into_iter().flatten();
        for file in files.flatten() {
            if let Ok(input) = fs::read(file.path()) {
                found.insert((kind, file.file_name()), input);
            }
        }
    }
    found.into_values().collect()
}

/// Writes an input to the corpus, unless it is long or there are many.
pub(crate) fn keep(target: &str, input: &[u8]) {
    let folder = folder("corpus", target);
    let many = fs::read_dir(&folder).is_ok_and(|files| files.count() >= MOST);
    if input.len() <= LONGEST && !many {
        write(&folder, &name(input), input);
    }
}

/// Writes an input that fails to the regressions, and returns the file's name.
pub(crate) fn regression(target: &str, input: &[u8]) -> String {
    let folder = folder("regressions", target);
    write(&folder, &name(input), input);
    folder.join(name(input)).display().to_string()
}

/// Writes the input that is run next to the folder of builds.
pub(crate) fn note(target: &str, input: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    write(&folder, target, input);
}

/// Returns a name that depends on the content alone.
fn name(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Writes an input to a file. An input that cannot be written is lost; the message of the failure
/// has it, too.
fn write(folder: &Path, name: &str, input: &[u8]) {
    _ = fs::create_dir_all(folder);
    _ = fs::write(folder.join(name), input);
}
