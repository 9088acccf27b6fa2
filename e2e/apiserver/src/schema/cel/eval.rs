//! The meaning of expressions.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::parse::Expr;
use super::{Failure, functions};

/// Variables, innermost last.
type Scope = Vec<(String, Value)>;
type Answer = Result<Value, Failure>;

/// An error in the words of the language.
pub fn wrong<T>(what: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Wrong(what.into()))
}

/// The value of `expression`.
pub fn eval(expression: &Expr, scope: &mut Scope) -> Answer {
    match expression {
        Expr::Literal(value) => Ok(value.clone()),
        Expr::Name(name) => match scope.iter().rev().find(|(own, _)| own == name) {
            Some((_, value)) => Ok(value.clone()),
            None => wrong(format!("undeclared reference to '{name}'")),
        },
        Expr::Member(inner, name) => member(&eval(inner, scope)?, name),
        Expr::Index(inner, index) => at(&eval(inner, scope)?, &eval(index, scope)?),
        Expr::Unary(operator, inner) => match (operator, eval(inner, scope)?) {
            ('!', Value::Bool(b)) => Ok((!b).into()),
            ('-', Value::Number(n)) => match n.as_i64() {
                Some(whole) => Ok(whole.wrapping_neg().into()),
                None => Ok((-n.as_f64().unwrap_or_default()).into()),
            },
            _ => wrong("no such overload"),
        },
        Expr::Binary("&&", a, b) => decided(a, b, false, scope),
        Expr::Binary("||", a, b) => decided(a, b, true, scope),
        Expr::Binary(sign, a, b) => binary(sign, &eval(a, scope)?, &eval(b, scope)?),
        Expr::Choice(condition, yes, no) => match eval(condition, scope)? {
            Value::Bool(true) => eval(yes, scope),
            Value::Bool(false) => eval(no, scope),
            _ => wrong("no such overload"),
        },
        Expr::List(items) => items
            .iter()
            .map(|item| eval(item, scope))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Expr::Map(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let key = eval(key, scope)?;
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                map.insert(key, eval(value, scope)?);
            }
            Ok(Value::Object(map))
        }
        Expr::Call(None, name, arguments) if name == "has" => has(arguments, scope),
        Expr::Call(Some(target), name, arguments) if is_macro(name, arguments) => {
            comprehension(&eval(target, scope)?, name, arguments, scope)
        }
        Expr::Call(target, name, arguments) => {
            let target = target
                .as_ref()
                .map(|target| eval(target, scope))
                .transpose()?;
            let arguments: Vec<Value> = arguments
                .iter()
                .map(|a| eval(a, scope))
                .collect::<Result<_, _>>()?;
            functions::call(target.as_ref(), name, &arguments)
        }
    }
}

/// `&&` and `||`: one side that decides outweighs an error of the other.
fn decided(a: &Expr, b: &Expr, deciding: bool, scope: &mut Scope) -> Answer {
    let left = eval(a, scope);
    if left == Ok(deciding.into()) {
        return left;
    }
    let right = eval(b, scope);
    match (left, right) {
        (_, Ok(Value::Bool(b))) if b == deciding => Ok(b.into()),
        (Ok(Value::Bool(_)), Ok(Value::Bool(b))) => Ok(b.into()),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
        _ => wrong("no such overload"),
    }
}

fn member(value: &Value, name: &str) -> Answer {
    match value {
        Value::Object(fields) => match fields.get(name) {
            Some(found) => Ok(found.clone()),
            None => wrong(format!("no such key: {name}")),
        },
        _ => wrong("no such overload"),
    }
}

fn at(value: &Value, index: &Value) -> Answer {
    match (value, index) {
        (Value::Object(_), Value::String(name)) => member(value, name),
        (Value::Array(list), Value::Number(n)) => {
            let place = n.as_u64().and_then(|n| usize::try_from(n).ok());
            match place.and_then(|place| list.get(place)) {
                Some(found) => Ok(found.clone()),
                None => wrong(format!("index out of bounds: {n}")),
            }
        }
        _ => wrong("no such overload"),
    }
}

fn has(arguments: &[Expr], scope: &mut Scope) -> Answer {
    match arguments {
        [Expr::Member(inner, name)] => match eval(inner, scope)? {
            Value::Object(fields) => Ok(fields.contains_key(name).into()),
            _ => wrong("no such overload"),
        },
        _ => wrong("invalid argument to has() macro"),
    }
}

fn is_macro(name: &str, arguments: &[Expr]) -> bool {
    let named = matches!(arguments.first(), Some(Expr::Name(_)));
    match name {
        "all" | "exists" | "exists_one" | "filter" => named && arguments.len() == 2,
        "map" => named && matches!(arguments.len(), 2 | 3),
        _ => false,
    }
}

fn comprehension(range: &Value, name: &str, arguments: &[Expr], scope: &mut Scope) -> Answer {
    let items: Vec<Value> = match range {
        Value::Array(list) => list.clone(),
        Value::Object(fields) => fields.keys().map(|key| key.as_str().into()).collect(),
        _ => return wrong("no such overload"),
    };
    let [Expr::Name(variable), bodies @ ..] = arguments else {
        return Err(Failure::Unsupported);
    };
    let mut results = Vec::new();
    for item in &items {
        scope.push((variable.clone(), item.clone()));
        let answers: Vec<Answer> = bodies.iter().map(|body| eval(body, scope)).collect();
        scope.pop();
        results.push((item.clone(), answers));
    }
    let holds = |answer: &Answer| *answer == Ok(Value::Bool(true));
    let firsts = || results.iter().map(|(_, answers)| &answers[0]);
    let failure = || firsts().find_map(|answer| answer.clone().err());
    match name {
        "all" if firsts().any(|answer| *answer == Ok(Value::Bool(false))) => Ok(false.into()),
        "exists" if firsts().any(holds) => Ok(true.into()),
        "all" | "exists" => failure().map_or_else(|| Ok((name == "all").into()), Err),
        "exists_one" => failure().map_or_else(
            || Ok((firsts().filter(|a| holds(a)).count() == 1).into()),
            Err,
        ),
        "filter" => {
            let kept = results
                .iter()
                .filter(|(_, answers)| holds(&answers[0]))
                .map(|(item, _)| item.clone());
            failure().map_or_else(|| Ok(Value::Array(kept.collect())), Err)
        }
        _ => results
            .iter()
            .filter(|(_, answers)| answers.len() == 1 || holds(&answers[0]))
            .filter_map(|(_, answers)| answers.last().cloned())
            .collect::<Result<_, _>>()
            .map(Value::Array),
    }
}

fn binary(sign: &str, a: &Value, b: &Value) -> Answer {
    match sign {
        "==" => Ok(same(a, b).into()),
        "!=" => Ok((!same(a, b)).into()),
        "in" => match b {
            Value::Array(list) => Ok(list.iter().any(|item| same(item, a)).into()),
            Value::Object(fields) => Ok(a
                .as_str()
                .is_some_and(|key| fields.contains_key(key))
                .into()),
            _ => wrong("no such overload"),
        },
        "<" | "<=" | ">" | ">=" => {
            let Some(order) = compared(a, b) else {
                return wrong("no such overload");
            };
            Ok(match sign {
                "<" => order == Ordering::Less,
                "<=" => order != Ordering::Greater,
                ">" => order == Ordering::Greater,
                _ => order != Ordering::Less,
            }
            .into())
        }
        _ => arithmetic(sign, a, b),
    }
}

/// Numbers are equal by value, whatever their type.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => compared(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}

fn compared(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => Some(x.cmp(&y)),
            _ => x.as_f64()?.partial_cmp(&y.as_f64()?),
        },
        (Value::String(x), Value::String(y)) => Some(x.cmp(y)),
        (Value::Bool(x), Value::Bool(y)) => Some(x.cmp(y)),
        _ => None,
    }
}

fn arithmetic(sign: &str, a: &Value, b: &Value) -> Answer {
    match (sign, a, b) {
        ("+", Value::String(x), Value::String(y)) => Ok(format!("{x}{y}").into()),
        ("+", Value::Array(x), Value::Array(y)) => Ok(x.iter().chain(y).cloned().collect()),
        (_, Value::Number(x), Value::Number(y)) => {
            if let (Some(x), Some(y)) = (x.as_i64(), y.as_i64()) {
                whole(sign, x, y)
            } else {
                let (x, y) = (
                    x.as_f64().unwrap_or_default(),
                    y.as_f64().unwrap_or_default(),
                );
                Ok(match sign {
                    "+" => x + y,
                    "-" => x - y,
                    "*" => x * y,
                    _ => x / y,
                }
                .into())
            }
        }
        _ => wrong("no such overload"),
    }
}

fn whole(sign: &str, x: i64, y: i64) -> Answer {
    let result = match sign {
        "+" => x.checked_add(y),
        "-" => x.checked_sub(y),
        "*" => x.checked_mul(y),
        "/" if y == 0 => return wrong("division by zero"),
        "/" => x.checked_div(y),
        _ if y == 0 => return wrong("modulus by zero"),
        _ => x.checked_rem(y),
    };
    result.map_or_else(|| wrong("integer overflow"), |n| Ok(n.into()))
}
