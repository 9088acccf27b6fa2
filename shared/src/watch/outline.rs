//! Names and labels of an object, which selectors compare. Those of a packed object are read
//! without decoding it, so that one policy is compared with a hundred thousand objects in
//! milliseconds.

use std::collections::BTreeMap;

use kube::Resource;

use super::store::address;

/// Character before each label in a text; no label has it.
const BEFORE: char = '\n';
/// Character between the key and the value of a label; no key has it.
const BETWEEN: char = '=';

/// Labels of an object, as a map or as a text.
#[derive(Clone, Copy, Debug)]
pub enum Labels<'a> {
    /// Map of labels, if there is one.
    Map(Option<&'a BTreeMap<String, String>>),
    /// Labels of a packed object, as [`text`] writes them: never an empty text.
    Text(&'a str),
}

impl<'a> Labels<'a> {
    /// Returns the labels with their values.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (map, text) = match self {
            Self::Map(labels) => (labels, None),
            Self::Text(text) => (None, Some(text)),
        };
        let map = map.into_iter().flatten();
        let map = map.map(|(key, value)| (key.as_str(), value.as_str()));
        let text = text.into_iter().flat_map(|text| text.split(BEFORE));
        map.chain(text.filter_map(|label| label.split_once(BETWEEN)))
    }

    /// Returns the value of a label.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Self::Map(labels) => labels?.get(key).map(String::as_str),
            Self::Text(text) => text
                .split(BEFORE)
                .find_map(|label| label.strip_prefix(key)?.strip_prefix(BETWEEN)),
        }
    }
}

/// Names and labels of an object.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// Namespace of the object; `None` for kinds without one.
    pub namespace: Option<&'a str>,
    /// Name of the object.
    pub name: &'a str,
    /// Labels of the object.
    pub labels: Labels<'a>,
}

impl<'a> Outline<'a> {
    /// Returns the outline of an object.
    pub fn of<K: Resource>(object: &'a K) -> Self {
        Self::at(address(object), Labels::Map(object.meta().labels.as_ref()))
    }

    /// Returns the outline of an object whose namespace is empty if it has none.
    pub(super) fn at((namespace, name): (&'a str, &'a str), labels: Labels<'a>) -> Self {
        Self {
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            name,
            labels,
        }
    }
}

/// Returns labels as one text; `None` if that text could not be read again, which is never so with
/// labels that an API server takes.
pub fn text(labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    let mut text = BEFORE.to_string();
    for (at, (key, value)) in labels.into_iter().flatten().enumerate() {
        let is_sound = |text: &str| !text.contains(BEFORE);
        if key.contains(BETWEEN) || !is_sound(key) || !is_sound(value) {
            return None;
        }
        if at > 0 {
            text.push(BEFORE);
        }
        text.push_str(key);
        text.push(BETWEEN);
        text.push_str(value);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        labels.iter().map(owned).collect()
    }

    #[test]
    fn labels_are_the_same_in_both_forms() {
        for labels in [
            &[][..],
            &[("app", "web")],
            &[("app", "web"), ("app.kubernetes.io/name", "a"), ("x", "")],
        ] {
            let map = map(labels);
            let text = text(Some(&map)).unwrap();
            assert!(!text.is_empty());
            for form in [Labels::Text(&text), Labels::Map(Some(&map))] {
                assert_eq!(form.iter().collect::<Vec<_>>(), labels);
            }
            for key in ["app", "app.kubernetes.io/name", "x", "ap", "a", "web", ""] {
                let expected = map.get(key).map(String::as_str);
                assert_eq!(Labels::Text(&text).get(key), expected, "{key} of {text:?}");
                assert_eq!(Labels::Map(Some(&map)).get(key), expected);
            }
        }
        assert_eq!(text(None).as_deref(), Some("\n"));
        assert_eq!(Labels::Map(None).get("app"), None);
    }

    #[test]
    fn labels_that_no_server_takes_have_no_text() {
        for labels in [[("a=b", "c")], [("a\nb", "c")], [("a", "b\nc=d")]] {
            assert_eq!(text(Some(&map(&labels))), None, "{labels:?}");
        }
        assert_eq!(
            text(Some(&map(&[("a", "b=c")]))).as_deref(),
            Some("\na=b=c")
        );
    }
}
