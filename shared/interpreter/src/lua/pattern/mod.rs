//! Lua 5.1's patterns, with a budget.
//!
//! The matcher of the reference manual backtracks, and a short pattern can keep it busy for years
//! on a short text. This one spends the budget of the call as it goes.

use mlua::Error as LuaError;

use crate::lua::limits::Budget;

/// Most captures of a pattern, as in Lua.
const MAX_CAPTURES: usize = 32;
/// Deepest recursion, as in Lua.
const MAX_DEPTH: usize = 200;
/// Steps between two checks of the budget.
const STEPS: u32 = 256;
const ESCAPE: u8 = b'%';

/// Value of a capture, once the match is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Bytes from a position up to another.
    Text(usize, usize),
    /// A position, from 1.
    Position(usize),
}

/// A match: where it begins and ends, and its captures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

#[derive(Clone, Copy)]
enum Open {
    Unclosed,
    Position,
    Length(usize),
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [(usize, Open); MAX_CAPTURES],
    level: usize,
    depth: usize,
    steps: u32,
    budget: &'a Budget,
}

type Found<T> = Result<Option<T>, LuaError>;

fn malformed<T>(what: &str) -> Result<T, LuaError> {
    Err(LuaError::RuntimeError(what.to_owned()))
}

/// Finds the first match at or after `from`.
pub(crate) fn find(text: &[u8], pattern: &[u8], from: usize, budget: &Budget) -> Found<Match> {
    let (anchored, body) = match pattern.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    let mut matcher = Matcher {
        text,
        pattern: body,
        captures: [(0, Open::Unclosed); MAX_CAPTURES],
        level: 0,
        depth: 0,
        steps: 0,
        budget,
    };
    let mut start = from;
    loop {
        matcher.level = 0;
        if let Some(end) = matcher.run(start, 0)? {
            let captures = matcher.captured()?;
            return Ok(Some(Match {
                start,
                end,
                captures,
            }));
        }
        start += 1;
        if anchored || start > text.len() {
            return Ok(None);
        }
    }
}

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), LuaError> {
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            self.budget.spend(u64::from(STEPS))?;
        }
        Ok(())
    }

    /// Returns the end of the match of the pattern from `p` with the text from `s`.
    fn run(&mut self, s: usize, p: usize) -> Found<usize> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return malformed("pattern too complex");
        }
        let found = self.advance(s, p);
        self.depth -= 1;
        found
    }

    fn advance(&mut self, mut s: usize, mut p: usize) -> Found<usize> {
        loop {
            self.step()?;
            let Some(&first) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match first {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(s, p + 2, Open::Position);
                }
                b'(' => return self.open(s, p + 1, Open::Unclosed),
                b')' => return self.close(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.text.len()).then_some(s));
                }
                ESCAPE => match self.pattern.get(p + 1) {
                    Some(b'b') => {
                        let Some(end) = self.balanced(s, p + 2)? else {
                            return Ok(None);
                        };
                        s = end;
                        p += 4;
                        continue;
                    }
                    Some(b'f') => {
                        p += 2;
                        if self.pattern.get(p) != Some(&b'[') {
                            return malformed("missing '[' after '%f' in pattern");
                        }
                        let end = self.class_end(p)?;
                        let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
                        let after = self.text.get(s).copied().unwrap_or(0);
                        if self.in_set(before, p, end - 1) || !self.in_set(after, p, end - 1) {
                            return Ok(None);
                        }
                        p = end;
                        continue;
                    }
                    Some(&digit) if digit.is_ascii_digit() => {
                        let Some(end) = self.back_reference(s, digit)? else {
                            return Ok(None);
                        };
                        s = end;
                        p += 2;
                        continue;
                    }
                    _ => {}
                },
                _ => {}
            }
            let end = self.class_end(p)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if self.single(s, p, end)
                        && let Some(found) = self.run(s + 1, end + 1)?
                    {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.longest(s, p, end),
                Some(b'+') => {
                    return if self.single(s, p, end) {
                        self.longest(s + 1, p, end)
                    } else {
                        Ok(None)
                    };
                }
                Some(b'-') => return self.shortest(s, p, end),
                _ => {
                    if !self.single(s, p, end) {
                        return Ok(None);
                    }
                    s += 1;
                    p = end;
                }
            }
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Found<usize> {
        let mut count = 0;
        while self.single(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Found<usize> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, what: Open) -> Found<usize> {
        if self.level >= MAX_CAPTURES {
            return malformed("too many captures");
        }
        self.captures[self.level] = (s, what);
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found<usize> {
        let last = (0..self.level)
            .rev()
            .find(|at| matches!(self.captures[*at].1, Open::Unclosed));
        let Some(at) = last else {
            return malformed("invalid pattern capture");
        };
        self.captures[at].1 = Open::Length(s - self.captures[at].0);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[at].1 = Open::Unclosed;
        }
        Ok(found)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Found<usize> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return malformed("unbalanced pattern");
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Found<usize> {
        let at = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let (start, length) = match self.captures.get(at) {
            Some((start, Open::Length(length))) if at < self.level => (*start, *length),
            // A position has no text that could be there again.
            Some((_, Open::Position)) if at < self.level => return Ok(None),
            _ => return malformed("invalid capture index"),
        };
        self.budget.spend(length as u64 / 16)?;
        let said = &self.text[start..start + length];
        Ok(self.text[s..].starts_with(said).then_some(s + length))
    }

    /// Returns the position after the class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, LuaError> {
        match self.pattern[p] {
            ESCAPE if p + 1 >= self.pattern.len() => malformed("malformed pattern (ends with '%')"),
            ESCAPE => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    // The first byte of a set is a member even if it is `]`.
                    match self.pattern.get(at) {
                        None => return malformed("malformed pattern (missing ']')"),
                        Some(&ESCAPE) => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns whether the byte at `s` is in the class from `p` up to `end`.
    fn single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Returns whether a byte is in the set from the `[` at `p` up to the `]` at `last`.
    fn in_set(&self, byte: u8, p: usize, last: usize) -> bool {
        let mut at = p + 1;
        let mut wanted = true;
        if self.pattern.get(at) == Some(&b'^') {
            wanted = false;
            at += 1;
        }
        while at < last {
            let member = self.pattern[at];
            if member == ESCAPE && at + 1 < last {
                if in_class(byte, self.pattern[at + 1]) {
                    return wanted;
                }
                at += 2;
            } else if at + 2 < last && self.pattern[at + 1] == b'-' {
                if (member..=self.pattern[at + 2]).contains(&byte) {
                    return wanted;
                }
                at += 3;
            } else {
                if member == byte {
                    return wanted;
                }
                at += 1;
            }
        }
        !wanted
    }

    fn captured(&self) -> Result<Vec<Capture>, LuaError> {
        let capture = |(start, what): &(usize, Open)| match what {
            Open::Length(length) => Ok(Capture::Text(*start, start + length)),
            Open::Position => Ok(Capture::Position(start + 1)),
            Open::Unclosed => malformed("unfinished capture"),
        };
        self.captures[..self.level].iter().map(capture).collect()
    }
}

/// Returns whether a byte is in a class such as `%d`; an upper case letter is the complement.
fn in_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests;
