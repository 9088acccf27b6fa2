//! Rules and patterns that were read before: each server of a process has the same definitions, and
//! to read them anew is a third of what a short scenario costs.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use regex::Regex;

/// Number of texts beyond which all are forgotten and read anew.
const MOST: usize = 4_096;

/// Texts with what was read from each.
pub struct Known<T>(Mutex<HashMap<String, T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Known<T> {
    /// Returns what was read from a text before, or reads it.
    pub fn get(&self, text: &str, read: impl FnOnce(&str) -> T) -> T {
        if let Some(known) = self.0.lock().get(text) {
            return known.clone();
        }
        let new = read(text);
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(text.to_owned(), new.clone());
        new
    }
}

static PATTERNS: LazyLock<Known<Result<Regex, String>>> = LazyLock::new(Known::default);

/// Reads a regular expression; the error says where it is wrong.
pub fn pattern(text: &str) -> Result<Regex, String> {
    PATTERNS.get(text, |text| {
        Regex::new(text).map_err(|error| error.to_string())
    })
}
