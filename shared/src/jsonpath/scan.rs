//! Splits a template into tokens as Kubernetes' parser does.

use serde_json::Value;

use super::parse::{Parsed, number};

/// Text that has not been read yet.
pub(super) struct Scanner<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Skips one character.
    pub(super) fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.cut(next.len_utf8());
        Some(next)
    }

    /// Skips a prefix; whether it was there.
    pub(super) fn skip(&mut self, prefix: &str) -> bool {
        let behind = self.rest.strip_prefix(prefix);
        self.rest = behind.unwrap_or(self.rest);
        behind.is_some()
    }

    fn cut(&mut self, bytes: usize) -> &'a str {
        let (cut, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        cut
    }

    /// Takes the text before the next opening brace.
    pub(super) fn until_brace(&mut self) -> &'a str {
        self.cut(self.rest.find('{').unwrap_or(self.rest.len()))
    }

    /// Takes the text before a closing character, which is skipped. Quotes and other brackets have
    /// no meaning here.
    pub(super) fn until(&mut self, close: char) -> Parsed<&'a str> {
        let line = self.rest.find('\n').unwrap_or(self.rest.len());
        let end = self.rest[..line].find(close);
        let text = self.cut(end.ok_or_else(|| format!("{close:?} is missing"))?);
        self.take();
        Ok(text)
    }

    /// Takes the content of a filter whose `[?(` has been read, up to `)]`. One quoted text inside
    /// may contain parentheses.
    pub(super) fn filter(&mut self) -> Parsed<&'a str> {
        let whole = self.rest;
        let (mut quote, mut closed, mut previous) = (None, true, None);
        for (at, character) in whole.char_indices() {
            match (character, quote) {
                ('\n', _) => break,
                ('"' | '\'', None) => (quote, closed) = (Some(character), false),
                ('"' | '\'', Some(open)) if open == character && previous != Some('\\') => {
                    closed = true;
                }
                (')', _) if closed => {
                    self.cut(at + 1);
                    return if self.skip("]") {
                        Ok(&whole[..at])
                    } else {
                        Err("`]` is missing behind a filter".into())
                    };
                }
                _ => {}
            }
            previous = Some(character);
        }
        Err("a filter is not closed".into())
    }

    /// Takes the quoted text whose opening quote has been read.
    pub(super) fn quoted(&mut self, quote: char) -> Parsed<String> {
        let mut previous = None;
        for (at, character) in self.rest.char_indices() {
            match character {
                '\n' => break,
                _ if character == quote && previous != Some('\\') => {
                    let text = self.cut(at);
                    self.take();
                    return unquote(text, quote);
                }
                _ => previous = Some(character),
            }
        }
        Err("a quote is not closed".into())
    }

    /// Takes the name of a field, with its backslashes.
    pub(super) fn name(&mut self) -> Parsed<&'a str> {
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => drop(characters.next()),
                _ if is_terminator(character) => return Ok(self.cut(at)),
                _ => {}
            }
        }
        Err("a brace is not closed".into())
    }

    pub(super) fn word(&mut self) -> &'a str {
        self.cut(self.rest.find(is_terminator).unwrap_or(self.rest.len()))
    }

    pub(super) fn number(&mut self) -> Parsed<Value> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let inside = |character: char| character == '.' || character.is_ascii_digit();
        let length = self.rest[sign..].find(|character| !inside(character));
        number(self.cut(length.map_or(self.rest.len(), |length| sign + length)))
    }
}

fn is_terminator(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\n' | '\r' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

/// Resolves the escapes that Go knows; others are errors.
fn unquote(text: &str, quote: char) -> Parsed<String> {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        let escaped = characters.next();
        let mut hexadecimal = |digits: usize| {
            let code: String = characters.by_ref().take(digits).collect();
            let code = u32::from_str_radix(&code, 16)
                .ok()
                .filter(|_| code.len() == digits);
            code.and_then(char::from_u32)
        };
        let resolved = match escaped {
            Some('a') => Some('\u{7}'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('v') => Some('\u{b}'),
            Some('\\') => Some('\\'),
            Some('u') => hexadecimal(4),
            Some('U') => hexadecimal(8),
            Some(other) if other == quote => Some(quote),
            _ => None,
        };
        plain.push(resolved.ok_or_else(|| format!("unknown escape in {text:?}"))?);
    }
    Ok(plain)
}
