//! Brackets of a path: indexes, slices, keys, unions and filters.

use super::parse::{Parsed, path};
use super::{Operator, Slice, Step, Test};

/// Reads what is between `[` and `]`.
///
/// A key in quotes is read like a field behind a dot, so `['a.b']` means `.a.b`, and `['a\.b']` the
/// key `a.b`. Only single quotes make a key.
pub(super) fn bracket(text: &str, depth: usize) -> Parsed<Vec<Step>> {
    let members: Vec<_> = text.split(',').collect();
    if members.len() > 1 {
        let member = |text: &&str| path(&format!("[{}]", text.trim_matches(' ')), depth + 1);
        let union = members.iter().map(member).collect::<Parsed<_>>()?;
        return Ok(vec![Step::Union(union)]);
    }
    let key = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''))
        .filter(|key| !key.contains('\''));
    if let Some(key) = key {
        return path(&format!(".{key}"), depth + 1);
    }
    slice(if text == "*" { ":" } else { text })
        .map(|slice| vec![Step::Slice(slice)])
        .ok_or_else(|| format!("malformed index [{text}]"))
}

/// Reads `start:end:step`; a start alone means that one element, which has to be there.
fn slice(text: &str) -> Option<Slice> {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        match (text, digits.chars().all(|digit| digit.is_ascii_digit())) {
            ("", _) => Some(None),
            (_, true) => text.parse::<i64>().ok().map(Some),
            (_, false) => None,
        }
    };
    let fields: Vec<Option<i64>> = text.split(':').map(number).collect::<Option<_>>()?;
    let (start, end, step) = match *fields.as_slice() {
        [start] => (start, None, None),
        [start, end] => (start, end, None),
        [start, end, step] => (start, end, step),
        _ => return None,
    };
    Some(Slice {
        start,
        end,
        step: step.unwrap_or(1),
        single: fields.len() == 1,
    })
}

/// Reads what is in the parentheses of a filter.
pub(super) fn filter(text: &str, depth: usize) -> Parsed<Step> {
    let is_operator = |character: char| "!<>=".contains(character);
    let Some(at) = text.find(is_operator) else {
        return Ok(Step::Filter(path(text, depth + 1)?, Test::Exists));
    };
    let (left, rest) = text.split_at(at);
    let right = rest.trim_start_matches(is_operator);
    let symbol = &rest[..rest.len() - right.len()];
    let operator = match symbol {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<=" => Operator::LessOrEqual,
        ">=" => Operator::GreaterOrEqual,
        "<" => Operator::Less,
        ">" => Operator::Greater,
        _ => return Err(format!("unknown operator {symbol}")),
    };
    if left.is_empty() || right.is_empty() {
        return Err(format!("one side of {symbol} is missing"));
    }
    let right = path(right, depth + 1)?;
    Ok(Step::Filter(
        path(left, depth + 1)?,
        Test::Compare(operator, right),
    ))
}
