//! Labels and annotations: in a compact form, and read alike in any.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;

/// Labels and annotations of an object, in whatever form it keeps them.
pub trait Labelled {
    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str>;

    /// Returns the value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
}

impl Labelled for ObjectMeta {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// Labels or annotations of a cached object. As a map they take half a kilobyte, however few they
/// are; here two allocations of just their length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactMap {
    /// Key, value, key, value, ...
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[usize]>,
}

impl From<BTreeMap<String, String>> for CompactMap {
    fn from(pairs: BTreeMap<String, String>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
            text.push_str(part);
            ends.push(text.len());
        }
        Self {
            text: text.into(),
            ends: ends.into(),
        }
    }
}

impl CompactMap {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut start = 0;
        for pair in self.ends.chunks_exact(2) {
            let (held, value) = (&self.text[start..pair[0]], &self.text[pair[0]..pair[1]]);
            if held == key {
                return Some(value);
            }
            start = pair[1];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_value_and_no_other_key_has_one() {
        let pairs = [("a", "1"), ("ab", ""), ("b", "a"), ("ä", "ö")];
        let marks = CompactMap::from(BTreeMap::from(
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())),
        ));
        for (key, value) in pairs {
            assert_eq!(marks.get(key), Some(value), "{key}");
        }
        for stranger in ["", "1", "a1", "c"] {
            assert_eq!(marks.get(stranger), None, "{stranger}");
        }
        assert_eq!(CompactMap::default().get("a"), None);
    }
}
