//! The part of kubectl's JSONPath that print columns use: members, indexes, `[*]` and
//! `[?(@.a=="b")]`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    Filter {
        path: Path,
        negated: bool,
        value: Value,
    },
}

impl Path {
    /// Reads `.status.conditions[?(@.type=="Ready")].status`; `None` where the text is no path that
    /// we know.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().trim_start_matches('$');
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix("[?(") {
                let (condition, after) = inner.split_once(")]")?;
                steps.push(filter(condition)?);
                rest = after;
            } else if let Some(inner) = rest.strip_prefix('[') {
                let (key, after) = inner.split_once(']')?;
                steps.push(match key.trim_matches(['\'', '"']) {
                    "*" => Step::All,
                    name if name.len() != key.len() => Step::Member(name.to_owned()),
                    index => Step::Index(index.parse().ok()?),
                });
                rest = after;
            } else {
                let inner = rest.strip_prefix('.')?;
                let (name, after) = member(inner);
                rest = after;
                match name.as_str() {
                    // `.[0]` is the same as `[0]`, and `.` alone is the object.
                    "" => {}
                    "*" => steps.push(Step::All),
                    _ => steps.push(Step::Member(name)),
                }
            }
        }
        Some(Self(steps))
    }

    /// Returns what the path leads to; missing members lead nowhere.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![value], |found, step| {
            found
                .into_iter()
                .flat_map(|value| step.follow(value))
                .collect()
        })
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let list = value.as_array().map_or(&[][..], Vec::as_slice);
                let from_end = usize::try_from(-index)
                    .ok()
                    .and_then(|back| list.len().checked_sub(back));
                let at = usize::try_from(*index).ok().or(from_end);
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            Self::All => children(value).collect(),
            Self::Filter {
                path,
                negated,
                value: wanted,
            } => children(value)
                .filter(|child| {
                    path.find(child)
                        .first()
                        .is_some_and(|v| (*v == wanted) != *negated)
                })
                .collect(),
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Returns the member's name up to the next step; `\.` is a dot within the name.
fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => name.extend(characters.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

fn filter(condition: &str) -> Option<Step> {
    let (negated, operator) = if condition.contains("!=") {
        (true, "!=")
    } else {
        (false, "==")
    };
    let (path, value) = condition.split_once(operator)?;
    let value = value.trim();
    let value = match value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(value).ok()?,
    };
    Some(Step::Filter {
        path: Path::parse(path.trim().strip_prefix('@')?)?,
        negated,
        value,
    })
}
