//! JSON pointers (RFC 6901).

use json_patch::jsonptr::PointerBuf;
use serde_json::Value;

use super::limits::DEEPEST_MANIFEST;

/// Reads a JSON pointer.
///
/// # Errors
/// A text that says what is wrong: a pointer is empty or begins with `/`, `~` is only in `~0`
/// and `~1`, and it leads no deeper than the deepest manifest.
pub(super) fn parse(text: &str) -> Result<PointerBuf, String> {
    let tokens = text.bytes().filter(|byte| *byte == b'/').count();
    if tokens > DEEPEST_MANIFEST {
        return Err(format!(
            "a JSON pointer of {tokens} parts leads deeper than the {DEEPEST_MANIFEST} levels that fit into a work"
        ));
    }
    PointerBuf::parse(text).map_err(|error| format!("{text:?} is no JSON pointer: {error}"))
}

/// Returns the text of a manifest that a pointer leads to.
///
/// # Errors
/// A text that says what is wrong with the pointer, or with what it leads to.
pub(super) fn text<'v>(manifest: &'v mut Value, path: &str) -> Result<&'v mut String, String> {
    parse(path)?;
    match manifest.pointer_mut(path) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("the field {path} is no text")),
        None => Err(format!("the resource has no field {path}")),
    }
}

/// Returns what is wrong with a JSON pointer.
pub fn fault(text: &str) -> Option<String> {
    parse(text).err()
}

/// Replaces negative indexes of lists in a pointer, which RFC 6901 does not have and Karmada's
/// library takes: they count from the end of a list of the document, and from behind its end where
/// an entry is added.
pub(super) fn resolve(path: &PointerBuf, document: &Value, adds: bool) -> PointerBuf {
    let mut resolved = PointerBuf::new();
    let mut held = Some(document);
    let mut tokens = path.tokens().peekable();
    while let Some(token) = tokens.next() {
        let key = token.decoded();
        let is_new = adds && tokens.peek().is_none();
        let list = held.and_then(Value::as_array);
        let index = list.and_then(|list| from_end(&key, list.len() + usize::from(is_new)));
        let key = index.map_or_else(|| key.into_owned(), |index| index.to_string());
        held = match held {
            Some(Value::Object(fields)) => fields.get(&key),
            Some(Value::Array(list)) => key.parse().ok().and_then(|index: usize| list.get(index)),
            _ => None,
        };
        resolved.push_back(key);
    }
    resolved
}

/// Returns the index that a negative one means in a list of this length.
fn from_end(key: &str, length: usize) -> Option<usize> {
    let index = key.parse::<isize>().ok().filter(|index| *index < 0)?;
    length.checked_sub(index.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_negative_index_counts_from_the_end_of_a_list() {
        let document = json!({"list": [{"a": [1, 2]}, {"-1": 3}], "-1": []});
        for (path, adds, expected) in [
            ("/list/-1", false, "/list/1"),
            ("/list/-2", false, "/list/0"),
            ("/list/-2/a/-1", false, "/list/0/a/1"),
            ("/list/-1", true, "/list/2"),
            ("/list/-3", true, "/list/0"),
            ("/list/-2/a/-1", true, "/list/0/a/2"),
            ("/list/-3", false, "/list/-3"),
            ("/list/-4", true, "/list/-4"),
            ("/list/-0", false, "/list/-0"),
            ("/list/-", true, "/list/-"),
            ("/list/-1/-1", false, "/list/1/-1"),
            ("/-1", false, "/-1"),
            ("/none/-1", false, "/none/-1"),
            ("/a~1b~0/-1", false, "/a~1b~0/-1"),
            ("", false, ""),
        ] {
            let path = parse(path).unwrap();
            let resolved = resolve(&path, &document, adds);
            assert_eq!(resolved.as_str(), expected, "{path}");
        }
    }

    #[test]
    fn a_pointer_leads_no_deeper_than_a_manifest_may_be() {
        assert_eq!(fault(&"/a".repeat(DEEPEST_MANIFEST)), None);
        let fault = fault(&"/a".repeat(DEEPEST_MANIFEST + 1)).unwrap();
        assert!(fault.contains("101 parts"), "{fault}");
    }
}
