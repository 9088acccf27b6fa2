//! Evaluates a template on a document.

use std::cmp::Ordering;

use serde_json::Value;

use super::print::{self, Output};
use super::{Error, Operator, Part, Slice, Step, Test};

type Found<'a> = Vec<&'a Value>;

/// Stands for the element of a range without elements: the body is followed, as in the reference,
/// where nothing has no fields, and prints nothing.
static NOTHING: Value = Value::String(String::new());

/// Work that is left to an evaluation.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(nodes: usize) -> Self {
        Self(nodes)
    }

    fn spend(&mut self, nodes: usize) -> Result<(), Error> {
        self.0 = self.0.checked_sub(nodes).ok_or(Error::TooMuchWork)?;
        Ok(())
    }
}

/// Fills parts in.
pub(super) fn render(
    parts: &[Part],
    document: &Value,
    budget: &mut Budget,
    output: &mut Output,
) -> Result<(), Error> {
    for part in parts {
        budget.spend(1)?;
        match part {
            Part::Text(literal) => output.push(literal)?,
            Part::Path(steps) => {
                for (at, value) in walk(steps, document, budget)?.into_iter().enumerate() {
                    if at > 0 {
                        output.push(" ")?;
                    }
                    print::value(value, output)?;
                }
            }
            Part::Range(steps, body) => {
                let found = walk(steps, document, budget)?;
                if found.is_empty() {
                    render(body, &NOTHING, budget, &mut Output::default())?;
                }
                for value in found {
                    render(body, value, budget, output)?;
                }
            }
        }
    }
    Ok(())
}

/// Values that a path leads to.
fn walk<'a>(
    steps: &'a [Step],
    document: &'a Value,
    budget: &mut Budget,
) -> Result<Found<'a>, Error> {
    follow(steps, vec![document], budget)
}

fn follow<'a>(
    steps: &'a [Step],
    mut found: Found<'a>,
    budget: &mut Budget,
) -> Result<Found<'a>, Error> {
    for step in steps {
        budget.spend(1 + found.len())?;
        found = take(step, found, budget)?;
    }
    Ok(found)
}

fn take<'a>(step: &'a Step, found: Found<'a>, budget: &mut Budget) -> Result<Found<'a>, Error> {
    let mut all = Vec::new();
    match step {
        Step::Field(name) => return field(name, &found),
        Step::Text(value) => all.push(value),
        Step::Literal(value) => all.extend(found.iter().map(|_| value)),
        Step::Wildcard => {
            for value in found {
                all.extend(children(value, budget)?);
            }
        }
        Step::Descend => {
            let mut open: Vec<&Value> = found.into_iter().rev().collect();
            while let Some(value) = open.pop() {
                let below = children(value, budget)?;
                if !below.is_empty() {
                    all.push(value);
                    open.extend(below.into_iter().rev());
                }
            }
        }
        Step::Slice(slice) => {
            for value in found {
                match value {
                    Value::Array(list) => all.extend(self::slice(*slice, list, budget)?),
                    Value::Null => {}
                    other => return Err(Error::NotAList(kind(other))),
                }
            }
        }
        Step::Union(members) => {
            for member in members {
                all.extend(follow(member, found.clone(), budget)?);
            }
        }
        Step::Filter(left, test) => {
            for value in found {
                let list = value
                    .as_array()
                    .ok_or_else(|| Error::NotAList(kind(value)))?;
                for element in list {
                    budget.spend(1)?;
                    if passes(left, test, element, budget)? {
                        all.push(element);
                    }
                }
            }
        }
    }
    Ok(all)
}

/// Returns the values of a field. A key that none of the values has is missing; where there is no
/// value at all, nothing is missing.
fn field<'a>(name: &str, found: &[&'a Value]) -> Result<Found<'a>, Error> {
    let values: Found<'a> = found.iter().filter_map(|value| value.get(name)).collect();
    if values.is_empty() && !found.is_empty() {
        return Err(Error::NotFound(print::quote(name)));
    }
    Ok(values)
}

fn children<'a>(value: &'a Value, budget: &mut Budget) -> Result<Found<'a>, Error> {
    match value {
        Value::Array(list) => {
            budget.spend(list.len())?;
            Ok(list.iter().collect())
        }
        Value::Object(map) => {
            budget.spend(map.len())?;
            Ok(print::sorted(map).map(|(_, value)| value).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Elements of a list. Ends outside of it are errors; an empty slice is none, wherever it lies.
fn slice<'a>(
    slice: Slice,
    list: &'a [Value],
    budget: &mut Budget,
) -> Result<impl Iterator<Item = &'a Value> + use<'a>, Error> {
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let from_end = |place: i64| {
        if place < 0 {
            place.saturating_add(length)
        } else {
            place
        }
    };
    let start = from_end(slice.start.unwrap_or(0));
    let end = match slice.end {
        _ if slice.single => start.saturating_add(1),
        end => from_end(end.unwrap_or(length)),
    };
    let step = usize::try_from(slice.step).ok().filter(|step| *step > 0);
    let (from, to) = if start == end {
        (0, 0)
    } else {
        let within = |place: i64, last: i64| (0..=last).contains(&place);
        let fault = |index| Error::OutOfBounds {
            index,
            length: list.len(),
        };
        if !within(start, length - 1) {
            return Err(fault(start));
        }
        if !within(end, length) || start > end {
            return Err(fault(end));
        }
        let place = |place: i64| usize::try_from(place).unwrap_or(list.len());
        (place(start), place(end))
    };
    budget.spend(to - from)?;
    Ok(list[from..to].iter().step_by(step.ok_or(Error::Step)?))
}

fn passes(left: &[Step], test: &Test, element: &Value, budget: &mut Budget) -> Result<bool, Error> {
    let (operator, right) = match test {
        // Asking whether something is there must not fail because it is not.
        Test::Exists => {
            return match walk(left, element, budget) {
                Ok(found) => Ok(!found.is_empty()),
                Err(Error::TooMuchWork) => Err(Error::TooMuchWork),
                Err(_) => Ok(false),
            };
        }
        Test::Compare(operator, right) => (*operator, right),
    };
    let lefts = walk(left, element, budget)?;
    let rights = match lefts.as_slice() {
        [] => return Ok(false),
        [_] => walk(right, element, budget)?,
        _ => return Err(Error::Incomparable("several values", "a value")),
    };
    let is_alike = is_whole(left) == is_whole(right);
    match (lefts.as_slice(), rights.as_slice()) {
        ([left], [right]) => compare(operator, left, right, is_alike, budget),
        (_, []) => Ok(false),
        _ => Err(Error::Incomparable("a value", "several values")),
    }
}

/// Returns whether a side of a comparison is a whole number of the template. Numbers of a document
/// are floating point to the reference, whole as they may be, and do not compare to those.
fn is_whole(side: &[Step]) -> bool {
    matches!(side.last(), Some(Step::Literal(Value::Number(number))) if !number.is_f64())
}

/// So many bytes of text are compared for the price of one value.
const CHUNK: usize = 64;

fn compare(
    operator: Operator,
    left: &Value,
    right: &Value,
    is_alike: bool,
    budget: &mut Budget,
) -> Result<bool, Error> {
    use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => {
            budget.spend(left.len().min(right.len()) / CHUNK)?;
            Some(left.cmp(right))
        }
        (Value::Bool(left), Value::Bool(right)) if [Equal, NotEqual].contains(&operator) => {
            Some(left.cmp(right))
        }
        (Value::Number(left), Value::Number(right)) if is_alike => left
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
