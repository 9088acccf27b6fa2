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

    /// Returns the next byte, which says what kind of value follows.
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
