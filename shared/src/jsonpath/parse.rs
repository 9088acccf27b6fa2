//! Parses a template as Kubernetes' own parser does, and rejects what that parser rejects.

use serde_json::Value;

use super::bracket;
use super::scan::Scanner;
use super::{DEPTH, LENGTH, Part, Step};

pub(super) type Parsed<T> = Result<T, String>;

/// Reads a whole template.
pub(super) fn template(text: &str) -> Parsed<Vec<Part>> {
    if text.chars().count() > LENGTH {
        return Err(format!("is longer than {LENGTH} characters"));
    }
    block(&mut Scanner::new(text), 0)
}

/// Reads until the end of the text, or until `{end}` inside ranges.
fn block(scanner: &mut Scanner<'_>, ranges: usize) -> Parsed<Vec<Part>> {
    if ranges > DEPTH {
        return Err(format!("ranges are nested more than {DEPTH} deep"));
    }
    let mut parts = Vec::new();
    loop {
        let text = scanner.until_brace();
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        if scanner.is_at_end() {
            return if ranges > 0 {
                Err("range without end".into())
            } else {
                Ok(parts)
            };
        }
        scanner.take();
        match action(scanner, 0)? {
            Action::Path(steps) => parts.push(Part::Path(steps)),
            Action::Range(steps) => parts.push(Part::Range(steps, block(scanner, ranges + 1)?)),
            Action::End if ranges > 0 => return Ok(parts),
            Action::End => return Err("end without range".into()),
        }
    }
}

/// Content of one pair of braces.
enum Action {
    Path(Vec<Step>),
    Range(Vec<Step>),
    End,
}

/// Reads a path that is alone, such as one side of a comparison.
pub(super) fn path(text: &str, depth: usize) -> Parsed<Vec<Step>> {
    let whole = format!("{text}}}");
    let mut scanner = Scanner::new(&whole);
    match action(&mut scanner, depth)? {
        Action::Path(steps) if scanner.is_at_end() => Ok(steps),
        _ => Err(format!("{text:?} is no path")),
    }
}

/// Reads what follows an opening brace, the closing one included.
fn action(scanner: &mut Scanner<'_>, depth: usize) -> Parsed<Action> {
    if depth > DEPTH {
        return Err(format!("brackets are nested more than {DEPTH} deep"));
    }
    let (mut steps, mut word) = (Vec::new(), None);
    loop {
        if word == Some("end") && !scanner.rest.starts_with([' ', '}']) {
            return Err("end must be alone in its braces".into());
        }
        if scanner.skip("[?(") {
            steps.push(bracket::filter(scanner.filter()?, depth)?);
            continue;
        }
        if scanner.skip("..") {
            if steps.last() == Some(&Step::Descend) {
                return Err("`..` follows `..`".into());
            }
            steps.push(Step::Descend);
            // `..name` needs no dot of its own.
            if scanner.peek().is_some_and(is_word) {
                steps.push(field(scanner)?);
            }
            continue;
        }
        match scanner.peek() {
            None | Some('\n' | '\r') => return Err("a brace is not closed".into()),
            Some('}') => {
                scanner.take();
                return Ok(match word {
                    Some("range") => Action::Range(steps),
                    Some(_) => Action::End,
                    None => Action::Path(steps),
                });
            }
            Some(' ' | '@' | '$') => drop(scanner.take()),
            Some('[') => {
                scanner.take();
                steps.extend(bracket::bracket(scanner.until(']')?, depth)?);
            }
            Some(quote @ ('"' | '\'')) => {
                scanner.take();
                steps.push(Step::Text(scanner.quoted(quote)?.into()));
            }
            Some('.') => {
                scanner.take();
                steps.push(field(scanner)?);
            }
            Some('0'..='9' | '+' | '-') => steps.push(Step::Literal(scanner.number()?)),
            Some(next) if is_word(next) => match scanner.word() {
                "true" => steps.push(Step::Literal(true.into())),
                "false" => steps.push(Step::Literal(false.into())),
                found @ ("range" | "end") if steps.is_empty() && word.is_none() && depth == 0 => {
                    word = Some(found);
                }
                found => return Err(format!("unknown word {found:?}")),
            },
            Some(other) => return Err(format!("unexpected {other:?}")),
        }
    }
}

/// Reads a field behind its dot. A backslash makes the next character part of the name, a dot for
/// instance.
fn field(scanner: &mut Scanner<'_>) -> Parsed<Step> {
    Ok(match scanner.name()? {
        "*" => Step::Wildcard,
        name => Step::Field(name.replace('\\', "")),
    })
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Reads a number as the reference does: digits and points, whole if it can be.
pub(super) fn number(text: &str) -> Parsed<Value> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number.into());
    }
    text.parse::<f64>()
        .map(Value::from)
        .map_err(|_| format!("malformed number {text}"))
}
