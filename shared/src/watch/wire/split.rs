//! Splits the JSON text of a list into its objects while it arrives, holding at most one of them.

/// Part of the list that a piece of the text completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watch) enum Found {
    /// An element of `items`.
    Item,
    /// The list's own metadata.
    Metadata,
    /// The list itself.
    End,
}

/// Reason why a text is no list that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::watch) enum NoList {
    /// Something is where JSON has nothing of the kind.
    #[error("byte {0:?} is where a list has none")]
    Unexpected(char),
    /// An object, or the list's metadata, is longer than anything that an API stores.
    #[error("it has an object of more than {0} bytes")]
    TooLong(usize),
    /// The text has no items: an answer about something else must not pass for an empty list.
    #[error("it has no items")]
    NoItems,
}

/// Position of the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the list.
    #[default]
    Start,
    /// Before a key of the list, or its end.
    Key,
    /// Within a key.
    InKey,
    /// Behind a key.
    Colon,
    /// Before the value of a key.
    Value,
    /// Before an element of `items`, or their end.
    Items,
    /// Within a value.
    Within(Of),
    /// Behind the list.
    End,
}

/// Part of the list to which a value belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Item,
    Metadata,
    /// A key that says nothing to us.
    Other,
}

/// The state between two pieces of the text.
#[derive(Debug, Default)]
pub(in crate::watch) struct Splitter {
    at: At,
    /// Brackets and braces that are open within the present value.
    depth: usize,
    /// Whether the next byte of the present value is within a text, and whether it is escaped.
    quoted: bool,
    escaped: bool,
    /// The present key, or the present value where it is wanted.
    taken: Vec<u8>,
    longest: usize,
    /// Whether `items` was there.
    listed: bool,
}

impl Splitter {
    /// Makes a splitter before the first byte. No value of more than `longest` bytes is taken.
    pub(in crate::watch) fn new(longest: usize) -> Self {
        Self {
            longest,
            ..Self::default()
        }
    }

    /// Returns the text of what was found last.
    pub(in crate::watch) fn taken(&self) -> &[u8] {
        &self.taken
    }

    /// Reads on until something is complete or the piece is used up. Returns how many bytes were
    /// used.
    pub(in crate::watch) fn read(
        &mut self,
        piece: &[u8],
    ) -> Result<(usize, Option<Found>), NoList> {
        let mut used = 0;
        while let Some(&byte) = piece.get(used) {
            if let At::Within(of) = self.at {
                let (length, complete) = self.scan(&piece[used..]);
                if of != Of::Other {
                    self.take(&piece[used..used + length])?;
                }
                used += length;
                if complete {
                    self.at = if of == Of::Item { At::Items } else { At::Key };
                    match of {
                        Of::Item => return Ok((used, Some(Found::Item))),
                        Of::Metadata => return Ok((used, Some(Found::Metadata))),
                        Of::Other => {}
                    }
                }
                continue;
            }
            if self.at == At::InKey {
                used += 1;
                match byte {
                    b'"' if !self.escaped => self.at = At::Colon,
                    _ => {
                        self.escaped = byte == b'\\' && !self.escaped;
                        self.take(&[byte])?;
                    }
                }
                continue;
            }
            if byte.is_ascii_whitespace() || self.at == At::End {
                used += 1;
                continue;
            }
            match (self.at, byte) {
                (At::Start, b'{') | (At::Items, b']') => self.at = At::Key,
                (At::Key | At::Items, b',') => {}
                (At::Key, b'"') => {
                    self.taken.clear();
                    self.escaped = false;
                    self.at = At::InKey;
                }
                (At::Key, b'}') => {
                    if !self.listed {
                        return Err(NoList::NoItems);
                    }
                    self.at = At::End;
                    return Ok((used + 1, Some(Found::End)));
                }
                (At::Colon, b':') => self.at = At::Value,
                (At::Value, b'[') if self.taken == b"items" => {
                    (self.at, self.listed) = (At::Items, true);
                }
                // No value begins so: to read it as an empty one would come back here without end.
                (At::Value | At::Items, b'}' | b']' | b',' | b':') => {
                    return Err(NoList::Unexpected(byte.into()));
                }
                (At::Value | At::Items, _) => {
                    if self.at == At::Value && self.taken == b"items" {
                        // Nothing but `null` stands for an empty list.
                        if byte != b'n' {
                            return Err(NoList::Unexpected(byte.into()));
                        }
                        self.listed = true;
                    }
                    // The byte belongs to the value, which is read from here.
                    self.begin();
                    continue;
                }
                (_, other) => return Err(NoList::Unexpected(other.into())),
            }
            used += 1;
        }
        Ok((used, None))
    }

    fn begin(&mut self) {
        let of = match self.at {
            At::Items => Of::Item,
            _ if self.taken == b"metadata" => Of::Metadata,
            _ => Of::Other,
        };
        self.taken.clear();
        (self.depth, self.quoted, self.escaped) = (0, false, false);
        self.at = At::Within(of);
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), NoList> {
        if self.taken.len() + bytes.len() > self.longest {
            return Err(NoList::TooLong(self.longest));
        }
        self.taken.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns as many bytes as belong to the present value, and whether it ends with them.
    fn scan(&mut self, piece: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if self.quoted {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                // Most of an object is text.
                let Some(plain) = piece[at..].iter().position(|it| matches!(it, b'"' | b'\\'))
                else {
                    return (piece.len(), false);
                };
                at += plain + 1;
                if piece[at - 1] == b'\\' {
                    self.escaped = true;
                    continue;
                }
                self.quoted = false;
                if self.depth == 0 {
                    return (at, true);
                }
                continue;
            }
            match byte {
                b'"' => self.quoted = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' | b',' if self.depth == 0 => return (at, true),
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ if self.depth == 0 && byte.is_ascii_whitespace() => return (at, true),
                _ => {}
            }
            at += 1;
        }
        (at, false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns what is found in a text that arrives in pieces of such a length.
    fn found(text: &str, length: usize) -> Result<Vec<(Found, String)>, NoList> {
        let mut splitter = Splitter::new(1000);
        let mut all = Vec::new();
        for mut piece in text.as_bytes().chunks(length) {
            while !piece.is_empty() {
                let (used, found) = splitter.read(piece)?;
                piece = &piece[used..];
                if let Some(found) = found {
                    let text = if found == Found::End {
                        String::new()
                    } else {
                        String::from_utf8(splitter.taken().to_vec()).unwrap()
                    };
                    all.push((found, text));
                }
            }
        }
        Ok(all)
    }

    #[test]
    fn objects_are_found_wherever_the_text_is_cut() {
        let (a, b) = (
            r#"{"metadata":{"name":"a\"]}"},"items":[1,"]"]}"#,
            r#"{"metadata": {}, "x": "\\"}"#,
        );
        let metadata = r#"{"resourceVersion":"7","continue":"}"}"#;
        let text = format!(
            r#"{{"kind":"List","apiVersion":"v1", "metadata":{metadata},"items": [ {a} ,{b}, 5 ,"x", null ],"more":[{{}}]}}"#
        );
        let expected = [
            (Found::Metadata, metadata),
            (Found::Item, a),
            (Found::Item, b),
            (Found::Item, "5"),
            (Found::Item, "\"x\""),
            (Found::Item, "null"),
            (Found::End, ""),
        ]
        .map(|(found, text)| (found, text.to_owned()));
        for length in 1..=text.len() {
            assert_eq!(
                found(&text, length).unwrap(),
                expected,
                "pieces of {length}"
            );
        }
    }

    #[test]
    fn a_list_of_nothing_ends_and_what_is_no_list_is_refused() {
        for text in [
            r#"{"items":[]}"#,
            r#"{"items":null}"#,
            "  {\n\"items\" : [\n]}\n",
        ] {
            assert_eq!(
                found(text, 1),
                Ok(vec![(Found::End, String::new())]),
                "{text}"
            );
        }
        for text in [
            "[]",
            "x",
            r#"{"a" 1}"#,
            "{]",
            r#"{"items":{}}"#,
            r#"{"items":"x"}"#,
            r#"{"a":}"#,
        ] {
            assert!(
                matches!(found(text, 1), Err(NoList::Unexpected(_))),
                "{text}"
            );
        }
        for text in [
            "{}",
            r#"{"kind":"Status","metadata":{"resourceVersion":"7"}}"#,
        ] {
            assert_eq!(found(text, 1), Err(NoList::NoItems), "{text}");
        }
        let long = json!({"items": ["x".repeat(1000)]}).to_string();
        assert_eq!(found(&long, 7), Err(NoList::TooLong(1000)));
        let skipped = json!({"items": [], "other": "x".repeat(2000)}).to_string();
        assert!(found(&skipped, 7).is_ok(), "what is not wanted is not held");
    }

    /// Checks every byte where an element may be: each is used up, or refused.
    #[test]
    fn reading_goes_on_or_ends_whatever_stands_among_the_items() {
        for byte in 0..=u8::MAX {
            for head in [&b"{\"items\":["[..], b"{\"items\":[{},"] {
                let text = [head, &[byte], b"]}"].concat();
                let mut splitter = Splitter::new(1000);
                let (mut rest, mut steps) = (&text[..], 0);
                while let Ok((used, _)) = splitter.read(rest)
                    && !rest.is_empty()
                {
                    rest = &rest[used..];
                    steps += 1;
                    assert!(steps <= text.len(), "byte {byte} is read without end");
                }
            }
        }
    }
}
