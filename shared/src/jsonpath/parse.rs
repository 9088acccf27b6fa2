//! Reading a template.

use serde_json::Value;

use super::{Operator, Part, Slice, Step, Test};

type Parsed<T> = Result<T, String>;

/// Reads a whole template.
pub(super) fn template(text: &str) -> Parsed<Vec<Part>> {
    let mut rest = text;
    let parts = block(&mut rest, false)?;
    Ok(parts)
}

/// Reads until the end of the text, or until `{end}` inside a range.
fn block(rest: &mut &str, in_range: bool) -> Parsed<Vec<Part>> {
    let mut parts = Vec::new();
    loop {
        let brace = rest.find('{').unwrap_or(rest.len());
        if brace > 0 {
            parts.push(Part::Text(rest[..brace].to_owned()));
        }
        if brace == rest.len() {
            *rest = "";
            return if in_range {
                Err("range without end".into())
            } else {
                Ok(parts)
            };
        }
        let action = Scanner::new(&rest[brace + 1..]).action()?;
        *rest = &rest[brace + 1 + action.len() + 1..];
        let action = action.trim();
        match (action.strip_prefix("range"), action) {
            (Some(path), _) if !path.starts_with(char::is_alphanumeric) => {
                let path = steps(path)?;
                parts.push(Part::Range(path, block(rest, true)?));
            }
            (_, "end") if in_range => return Ok(parts),
            (_, "end") => return Err("end without range".into()),
            _ => parts.push(Part::Path(steps(action)?)),
        }
    }
}

/// Reads a path: what stands inside braces or beside an operator.
fn steps(text: &str) -> Parsed<Vec<Step>> {
    let mut scanner = Scanner::new(text);
    let mut steps = Vec::new();
    while let Some(next) = scanner.peek() {
        match next {
            ' ' | '\t' | '$' | '@' => scanner.skip(1),
            '.' if scanner.rest.starts_with("..") => {
                scanner.skip(2);
                steps.push(Step::Descend);
                // `..name` needs no dot of its own.
                if scanner
                    .peek()
                    .is_some_and(|next| next == '*' || is_inside_name(next))
                {
                    steps.push(scanner.field());
                }
            }
            '.' => {
                scanner.skip(1);
                steps.push(scanner.field());
            }
            '[' => {
                scanner.skip(1);
                let inside = scanner.until(']')?;
                steps.push(bracket(inside.trim())?);
            }
            '"' | '\'' => {
                scanner.skip(1);
                let literal = scanner.quoted(next)?;
                steps.push(Step::Literal(literal.into()));
            }
            '0'..='9' | '+' | '-' => steps.push(Step::Literal(scanner.number()?)),
            _ if is_inside_name(next) => match scanner.word() {
                "true" => steps.push(Step::Literal(true.into())),
                "false" => steps.push(Step::Literal(false.into())),
                word => return Err(format!("unknown word {word:?}")),
            },
            other => return Err(format!("unexpected {other:?}")),
        }
    }
    Ok(steps)
}

/// Reads what stands inside brackets.
fn bracket(text: &str) -> Parsed<Step> {
    if let Some(filter) = text.strip_prefix('?') {
        let inside = filter
            .trim()
            .strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'));
        return self::filter(inside.ok_or("a filter stands in parentheses")?);
    }
    let members = split(text, ',');
    if members.len() > 1 {
        return members
            .into_iter()
            .map(|member| bracket(member.trim()))
            .collect::<Parsed<_>>()
            .map(Step::Union);
    }
    if let Some(quote) = text
        .chars()
        .next()
        .filter(|first| ['\'', '"'].contains(first))
    {
        let mut scanner = Scanner::new(&text[1..]);
        let key = scanner.quoted(quote)?;
        return if scanner.rest.is_empty() {
            Ok(Step::Field(key))
        } else {
            Err(format!("malformed key {text}"))
        };
    }
    slice(text).ok_or_else(|| format!("malformed index [{text}]"))
}

fn slice(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::Slice(Slice {
            start: None,
            end: None,
            step: 1,
            single: false,
        }));
    }
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let fields: Vec<Option<i64>> = text.split(':').map(number).collect::<Option<_>>()?;
    let slice = match fields.as_slice() {
        [Some(index)] => Slice {
            start: Some(*index),
            end: None,
            step: 1,
            single: true,
        },
        [start, end] => Slice {
            start: *start,
            end: *end,
            step: 1,
            single: false,
        },
        [start, end, step] => Slice {
            start: *start,
            end: *end,
            step: step.unwrap_or(1),
            single: false,
        },
        _ => return None,
    };
    (slice.step > 0).then_some(Step::Slice(slice))
}

fn filter(text: &str) -> Parsed<Step> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let mut scanner = Scanner::new(text);
    while let Some(next) = scanner.peek() {
        if let Some((symbol, operator)) = OPERATORS
            .into_iter()
            .find(|(symbol, _)| scanner.rest.starts_with(symbol))
        {
            let left = &text[..text.len() - scanner.rest.len()];
            let right = &scanner.rest[symbol.len()..];
            return Ok(Step::Filter(
                steps(left)?,
                Test::Compare(operator, steps(right)?),
            ));
        }
        scanner.skip(next.len_utf8());
        if ['"', '\''].contains(&next) {
            scanner.quoted(next)?;
        }
    }
    Ok(Step::Filter(steps(text)?, Test::Exists))
}

/// Splits at a character that stands outside quotes.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut members = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (place, character) in text.char_indices() {
        match quote {
            Some(open) if open == character => quote = None,
            None if ['"', '\''].contains(&character) => quote = Some(character),
            None if character == at => {
                members.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    members.push(&text[start..]);
    members
}

fn is_inside_name(character: char) -> bool {
    character.is_alphanumeric() || ['_', '-', '\\', '/', ':'].contains(&character)
}

/// What has not been read yet.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// What stands before the closing brace.
    fn action(&mut self) -> Parsed<&'a str> {
        self.until('}')
            .map_err(|_| "a brace is not closed".to_owned())
    }

    /// What stands before a closing character, brackets and quotes inside left whole.
    fn until(&mut self, close: char) -> Parsed<&'a str> {
        let whole = self.rest;
        let mut depth = 0_u32;
        while let Some(next) = self.peek() {
            let taken = whole.len() - self.rest.len();
            self.skip(next.len_utf8());
            match next {
                _ if next == close && depth == 0 => return Ok(&whole[..taken]),
                '\\' => {
                    let escaped = self.peek().map_or(0, char::len_utf8);
                    self.skip(escaped);
                }
                '"' | '\'' => drop(self.quoted(next)?),
                '[' | '(' => depth += 1,
                ']' | ')' => depth = depth.checked_sub(1).ok_or("a bracket is not opened")?,
                _ => {}
            }
        }
        Err(format!("{close:?} is missing"))
    }

    /// A quoted text whose opening quote has been read.
    fn quoted(&mut self, quote: char) -> Parsed<String> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((place, character)) = characters.next() {
            match character {
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                _ if character == quote => {
                    self.skip(place + quote.len_utf8());
                    return Ok(text);
                }
                _ => text.push(character),
            }
        }
        Err("a quote is not closed".into())
    }

    /// A field behind its dot. A backslash makes the next character part of the name, a dot for instance.
    fn field(&mut self) -> Step {
        if self.rest.starts_with('*') {
            self.skip(1);
            return Step::Wildcard;
        }
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let end = loop {
            match characters.next() {
                Some((_, '\\')) => name.extend(characters.next().map(|(_, escaped)| escaped)),
                Some((
                    place,
                    ' ' | '\t' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}',
                )) => {
                    break place;
                }
                Some((_, character)) => name.push(character),
                None => break self.rest.len(),
            }
        };
        self.skip(end);
        Step::Field(name)
    }

    fn word(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(self.rest.len());
        self.take(end.max(1))
    }

    fn number(&mut self) -> Parsed<Value> {
        let inside = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let text = self.take(end);
        if let Ok(number) = text.parse::<i64>() {
            return Ok(number.into());
        }
        text.parse::<f64>()
            .map(Value::from)
            .map_err(|_| format!("malformed number {text}"))
    }
}
