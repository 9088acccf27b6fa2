//! Reads JSON that this server wrote: known to be valid, and without blanks.

use std::borrow::Cow;

/// A place in a text of JSON. Where the text is not what it should be, what is read is short or
/// empty.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of a text.
    pub fn new(json: &'a [u8]) -> Self {
        Self { rest: json }
    }

    /// Returns the next byte, which tells what kind of value follows.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads an object; `each` has to read the value of the member that it is given.
    pub fn object(&mut self, mut each: impl FnMut(&mut Self, Cow<'a, [u8]>)) {
        if !self.eat(b'{') || self.eat(b'}') {
            return;
        }
        while self.peek() == Some(b'"') {
            let name = self.string();
            self.eat(b':');
            each(self, name);
            if !self.eat(b',') {
                break;
            }
        }
        self.eat(b'}');
    }

    /// Reads a list; `each` has to read an element.
    pub fn array(&mut self, mut each: impl FnMut(&mut Self)) {
        if !self.eat(b'[') || self.eat(b']') {
            return;
        }
        while !self.rest.is_empty() {
            each(self);
            if !self.eat(b',') {
                break;
            }
        }
        self.eat(b']');
    }

    /// Reads a string.
    pub fn string(&mut self) -> Cow<'a, [u8]> {
        let text = self.skip_string();
        if !text.contains(&b'\\') {
            let inside = text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\""));
            return Cow::Borrowed(inside.unwrap_or_default());
        }
        let unescaped: String = serde_json::from_slice(text).unwrap_or_default();
        Cow::Owned(unescaped.into_bytes())
    }

    /// Steps over a value and gives its text.
    pub fn skip(&mut self) -> &'a [u8] {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => self.skip_nested(),
            _ => {
                let end = |b: &u8| matches!(b, b',' | b'}' | b']');
                let length = self.rest.iter().position(end);
                self.take(length.unwrap_or(self.rest.len()))
            }
        }
    }

    fn skip_string(&mut self) -> &'a [u8] {
        let length = string_length(self.rest);
        self.take(length)
    }

    fn skip_nested(&mut self) -> &'a [u8] {
        let (mut depth, mut at) = (0, 0);
        while let Some(byte) = self.rest.get(at) {
            match byte {
                b'"' => {
                    at += string_length(&self.rest[at..]);
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
        self.take(at)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let eaten = self.peek() == Some(byte);
        if eaten {
            self.rest = &self.rest[1..];
        }
        eaten
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

/// Returns the length of the string, quotes included, that a text starts with.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    // Without an end all the rest is taken.
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    /// Rebuilds the value that is read, piece by piece.
    fn rebuilt(json: &mut Reader<'_>) -> Value {
        match json.peek() {
            Some(b'{') => {
                let mut object = Map::new();
                json.object(|json, name| {
                    let name = String::from_utf8(name.into_owned()).expect("UTF-8");
                    object.insert(name, rebuilt(json));
                });
                object.into()
            }
            Some(b'[') => {
                let mut list = Vec::new();
                json.array(|json| list.push(rebuilt(json)));
                list.into()
            }
            Some(b'"') => String::from_utf8(json.string().into_owned())
                .expect("UTF-8")
                .into(),
            _ => serde_json::from_slice(json.skip()).expect("a literal"),
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = || "[a\\\\\"\n{}\\[\\],:ü]{0,6}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| (f64::from(n) / 4.0).into()),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(text(), inner, 0..6)
                    .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn everything_that_was_written_is_read(value in value()) {
            let text = value.to_string();
            let mut json = Reader::new(text.as_bytes());
            prop_assert_eq!(rebuilt(&mut json), value.clone());
            prop_assert_eq!(json.peek(), None);
            let mut json = Reader::new(text.as_bytes());
            prop_assert_eq!(json.skip(), text.as_bytes());
        }

        #[test]
        fn what_is_cut_short_ends_quietly(value in value(), at in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let cut = &text.as_bytes()[..at.index(text.len() + 1)];
            Reader::new(cut).skip();
            let mut json = Reader::new(cut);
            json.object(|json, _| {
                json.skip();
            });
            Reader::new(cut).array(|json| {
                json.skip();
            });
            Reader::new(cut).string();
        }
    }
}
