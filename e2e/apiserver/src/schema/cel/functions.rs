//! Functions of the language, and those that Kubernetes adds for text, lists and URLs.

use regex::Regex;
use serde_json::{Map, Value, json};

use super::Failure;
use super::eval::wrong;

/// The value of `name(arguments)` or `target.name(arguments)`.
pub fn call(target: Option<&Value>, name: &str, arguments: &[Value]) -> Result<Value, Failure> {
    match (target, arguments) {
        (Some(target), _) if name == "size" => size(target),
        (Some(Value::String(text)), _) => of_text(text, name, arguments),
        (Some(Value::Array(list)), _) => of_list(list, name, arguments),
        (None, [argument]) => global(name, argument),
        _ => Err(Failure::Unsupported),
    }
}

fn size(value: &Value) -> Result<Value, Failure> {
    match value {
        Value::String(text) => Ok(text.chars().count().into()),
        Value::Array(list) => Ok(list.len().into()),
        Value::Object(fields) => Ok(Map::len(fields).into()),
        _ => wrong("no such overload"),
    }
}

fn global(name: &str, argument: &Value) -> Result<Value, Failure> {
    let text = argument.as_str();
    match name {
        "size" => size(argument),
        "string" => Ok(text
            .map_or_else(|| argument.to_string(), str::to_owned)
            .into()),
        "int" => {
            #[allow(clippy::cast_possible_truncation)]
            let whole = match text {
                Some(text) => text.parse().ok(),
                None => argument
                    .as_i64()
                    .or_else(|| argument.as_f64().map(|n| n as i64)),
            };
            whole.map_or_else(|| wrong("type conversion error"), |n: i64| Ok(n.into()))
        }
        "double" => {
            let number = text.map_or_else(|| argument.as_f64(), |text| text.parse().ok());
            number.map_or_else(|| wrong("type conversion error"), |n| Ok(n.into()))
        }
        "isURL" => Ok(text.is_some_and(|text| Url::read(text).is_some()).into()),
        // A URL is its text; what is asked of it is read off again.
        "url" => match text.filter(|text| Url::read(text).is_some()) {
            Some(text) => Ok(text.into()),
            None => wrong("URL parse error during conversion from string"),
        },
        "dyn" => Ok(argument.clone()),
        "type" | "bytes" | "duration" | "timestamp" | "quantity" | "ip" | "cidr" | "format" => {
            Err(Failure::Unsupported)
        }
        _ => Err(Failure::Unsupported),
    }
}

fn of_text(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Failure> {
    let argument = arguments.first().and_then(Value::as_str);
    match (name, argument) {
        ("contains", Some(part)) => Ok(text.contains(part).into()),
        ("startsWith", Some(part)) => Ok(text.starts_with(part).into()),
        ("endsWith", Some(part)) => Ok(text.ends_with(part).into()),
        ("matches", Some(pattern)) => match Regex::new(pattern) {
            Ok(regex) => Ok(regex.is_match(text).into()),
            Err(error) => wrong(error.to_string()),
        },
        ("split", Some(by)) => Ok(text.split(by).collect::<Vec<_>>().into()),
        ("replace", Some(from)) => match arguments.get(1).and_then(Value::as_str) {
            Some(to) => Ok(text.replace(from, to).into()),
            None => wrong("no such overload"),
        },
        ("indexOf", Some(part)) => {
            let place = text.find(part).map(|at| text[..at].chars().count());
            Ok(place.map_or_else(|| json!(-1), Value::from))
        }
        ("lowerAscii", None) => Ok(text.to_ascii_lowercase().into()),
        ("upperAscii", None) => Ok(text.to_ascii_uppercase().into()),
        ("trim", None) => Ok(text.trim().into()),
        ("substring", None) => {
            let place = |index: usize| {
                arguments
                    .get(index)
                    .and_then(Value::as_u64)
                    .and_then(|n| usize::try_from(n).ok())
            };
            let end = place(1).unwrap_or_else(|| text.chars().count());
            let begin = place(0).unwrap_or(0);
            Ok(text
                .chars()
                .take(end)
                .skip(begin)
                .collect::<String>()
                .into())
        }
        _ => of_url(text, name),
    }
}

fn of_url(text: &str, name: &str) -> Result<Value, Failure> {
    let Some(url) = Url::read(text) else {
        return Err(Failure::Unsupported);
    };
    let (hostname, port) = match url.host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => (name, port),
        _ => (url.host, ""),
    };
    Ok(match name {
        "getScheme" => url.scheme.into(),
        "getHost" => url.host.into(),
        "getHostname" => hostname.trim_matches(['[', ']']).into(),
        "getPort" => port.into(),
        "getEscapedPath" => url.path.into(),
        _ => return Err(Failure::Unsupported),
    })
}

fn of_list(list: &[Value], name: &str, arguments: &[Value]) -> Result<Value, Failure> {
    match (name, arguments) {
        ("join", _) => {
            let by = arguments
                .first()
                .and_then(Value::as_str)
                .unwrap_or_default();
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            texts.map_or_else(
                || wrong("no such overload"),
                |texts| Ok(texts.join(by).into()),
            )
        }
        ("indexOf", [wanted]) => Ok(list
            .iter()
            .position(|item| item == wanted)
            .map_or_else(|| json!(-1), Value::from)),
        ("sum", []) => {
            let sum: Option<i64> = list.iter().map(Value::as_i64).sum();
            sum.map_or(Err(Failure::Unsupported), |sum| Ok(sum.into()))
        }
        ("min" | "max", []) => {
            let numbers: Option<Vec<i64>> = list.iter().map(Value::as_i64).collect();
            let numbers = numbers.ok_or(Failure::Unsupported)?;
            let found = if name == "min" {
                numbers.iter().min()
            } else {
                numbers.iter().max()
            };
            found.map_or_else(|| wrong("called on empty list"), |n| Ok((*n).into()))
        }
        _ => Err(Failure::Unsupported),
    }
}

/// The parts of an absolute URL, or of an absolute path, which the real server takes for one too.
struct Url<'a> {
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
}

impl<'a> Url<'a> {
    fn read(text: &'a str) -> Option<Self> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return None;
        }
        if text.starts_with('/') {
            return Some(Self {
                scheme: "",
                host: "",
                path: until(text, &['?', '#']),
            });
        }
        let (scheme, rest) = text.split_once(':')?;
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !named {
            return None;
        }
        let Some(rest) = rest.strip_prefix("//") else {
            return Some(Self {
                scheme,
                host: "",
                path: "",
            });
        };
        let authority = until(rest, &['/', '?', '#']);
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let path = until(&rest[authority.len()..], &['?', '#']);
        Some(Self { scheme, host, path })
    }
}

fn until<'a>(text: &'a str, ends: &[char]) -> &'a str {
    text.find(ends).map_or(text, |end| &text[..end])
}
