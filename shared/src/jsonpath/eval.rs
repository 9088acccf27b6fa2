//! Following a template through a document.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use super::{Error, Operator, Part, Slice, Step, Test, print};

type Found<'a> = Vec<Cow<'a, Value>>;

/// Fills parts in.
pub(super) fn render(
    parts: &[Part],
    document: &Value,
    lenient: bool,
    text: &mut String,
) -> Result<(), Error> {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Path(steps) => {
                for (at, value) in walk(steps, document, lenient)?.iter().enumerate() {
                    if at > 0 {
                        text.push(' ');
                    }
                    print::value(value, text);
                }
            }
            Part::Range(steps, body) => {
                for value in walk(steps, document, lenient)? {
                    render(body, &value, lenient, text)?;
                }
            }
        }
    }
    Ok(())
}

/// What a path leads to.
pub(super) fn walk<'a>(
    steps: &[Step],
    document: &'a Value,
    lenient: bool,
) -> Result<Found<'a>, Error> {
    steps
        .iter()
        .try_fold(vec![Cow::Borrowed(document)], |found, step| {
            take(step, found, lenient)
        })
}

fn take<'a>(step: &Step, found: Found<'a>, lenient: bool) -> Result<Found<'a>, Error> {
    match step {
        Step::Field(name) => field(name, found, lenient),
        Step::Wildcard => Ok(found.into_iter().flat_map(children).collect()),
        Step::Descend => {
            let mut all = Vec::new();
            for value in found {
                descend(value, &mut all);
            }
            Ok(all)
        }
        Step::Slice(slice) => each_list(found, |list| self::slice(*slice, list, lenient)),
        Step::Union(members) => {
            let mut all = Vec::new();
            for member in members {
                all.extend(take(member, found.clone(), lenient)?);
            }
            Ok(all)
        }
        Step::Filter(left, test) => each_list(found, |list| {
            let mut kept = Vec::new();
            for element in list {
                if passes(left, test, &element, lenient)? {
                    kept.push(element);
                }
            }
            Ok(kept)
        }),
        Step::Literal(value) => Ok(vec![Cow::Owned(value.clone())]),
    }
}

/// A key that none of the values has is missing; where there is no value at all, nothing is.
fn field<'a>(name: &str, found: Found<'a>, lenient: bool) -> Result<Found<'a>, Error> {
    let wanted = !found.is_empty();
    let values: Found<'a> = found
        .into_iter()
        .filter_map(|value| match value {
            Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
            Cow::Owned(mut value) => value.get_mut(name).map(Value::take).map(Cow::Owned),
        })
        .collect();
    if wanted && values.is_empty() && !lenient {
        return Err(Error::NotFound(name.to_owned()));
    }
    Ok(values)
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => {
            print::sorted(map).map(|(_, v)| Cow::Borrowed(v)).collect()
        }
        Cow::Owned(Value::Array(list)) => list.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(map)) => print::sorted(&map)
            .map(|(_, v)| Cow::Owned(v.clone()))
            .collect(),
        _ => Vec::new(),
    }
}

/// A value and everything below it.
fn descend<'a>(value: Cow<'a, Value>, all: &mut Found<'a>) {
    all.push(value.clone());
    for child in children(value) {
        descend(child, all);
    }
}

/// Applies a step to the elements of each list. `null` has none; anything else is an error.
fn each_list<'a>(
    found: Found<'a>,
    step: impl Fn(Found<'a>) -> Result<Found<'a>, Error>,
) -> Result<Found<'a>, Error> {
    let mut all = Vec::new();
    for value in found {
        match value.as_ref() {
            Value::Array(_) => all.extend(step(children(value))?),
            Value::Null => {}
            other => return Err(Error::NotAList(kind(other))),
        }
    }
    Ok(all)
}

fn slice(slice: Slice, list: Found<'_>, lenient: bool) -> Result<Found<'_>, Error> {
    let length = list.len();
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |place: i64| {
        if place < 0 {
            place.saturating_add(count)
        } else {
            place
        }
    };
    let start = slice.start.map_or(0, from_end);
    if slice.single {
        let place = usize::try_from(start).ok().filter(|place| *place < length);
        return match place {
            Some(place) => Ok(list.into_iter().skip(place).take(1).collect()),
            None if lenient => Ok(Vec::new()),
            None => Err(Error::OutOfBounds {
                index: slice.start.unwrap_or(0),
                length,
            }),
        };
    }
    let clip = |place: i64| usize::try_from(place.clamp(0, count)).unwrap_or(length);
    let (start, end) = (clip(start), clip(slice.end.map_or(count, from_end)));
    let step = usize::try_from(slice.step).unwrap_or(usize::MAX);
    let taken = list.into_iter().take(end).skip(start);
    Ok(taken.step_by(step).collect())
}

fn passes(left: &[Step], test: &Test, element: &Value, lenient: bool) -> Result<bool, Error> {
    let (operator, right) = match test {
        // Asking whether something is there must not fail because it is not.
        Test::Exists => return Ok(!walk(left, element, true)?.is_empty()),
        Test::Compare(operator, right) => (*operator, right),
    };
    let lefts = walk(left, element, lenient)?;
    let rights = walk(right, element, lenient)?;
    match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => compare(operator, left, right),
        _ => Err(Error::Incomparable("several values", "several values")),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Result<bool, Error> {
    use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) if [Equal, NotEqual].contains(&operator) => {
            Some(left.cmp(right))
        }
        // Numbers of a document are floating point to the reference, and those do not compare to whole ones.
        (Value::Number(left), Value::Number(right)) if right.is_f64() => left
            .as_f64()
            .zip(right.as_f64())
            .and_then(|(left, right)| left.partial_cmp(&right)),
        _ => None,
    };
    let order = order.ok_or_else(|| Error::Incomparable(kind(left), kind(right)))?;
    Ok(match operator {
        Equal => order == Ordering::Equal,
        NotEqual => order != Ordering::Equal,
        Less => order == Ordering::Less,
        LessOrEqual => order != Ordering::Greater,
        Greater => order == Ordering::Greater,
        GreaterOrEqual => order != Ordering::Less,
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
