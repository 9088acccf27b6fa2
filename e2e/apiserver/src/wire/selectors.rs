//! Label and field selectors as query strings write them, with the error texts of Kubernetes' own
//! parsers; and label selectors as objects hold them.

use serde_json::Value;

/// A requirement on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path.
    pub field: String,
    /// `=` or `!=`.
    pub equal: bool,
    /// The value to compare with.
    pub value: String,
}

impl FieldRequirement {
    /// Returns whether a field with this value (or none) meets the requirement.
    pub fn holds_for(&self, value: Option<&str>) -> bool {
        (value.unwrap_or_default() == self.value) == self.equal
    }
}

/// How a label must relate to the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or absent.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    Absent,
    /// An integer greater than the value.
    Greater,
    /// An integer less than the value.
    Less,
}

/// A requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The relation.
    pub operator: Operator,
    /// The values it relates to.
    pub values: Vec<String>,
}

impl Requirement {
    /// Returns whether a label with this value (or none) meets the requirement.
    pub fn holds_for(&self, label: Option<&str>) -> bool {
        let listed = || label.is_some_and(|l| self.values.iter().any(|v| v == l));
        let number = |compare: fn(i64, i64) -> bool| {
            let Some(Ok(label)) = label.map(str::parse::<i64>) else {
                return false;
            };
            self.values
                .first()
                .and_then(|v| v.parse().ok())
                .is_some_and(|v| compare(label, v))
        };
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => label.is_some(),
            Operator::Absent => label.is_none(),
            Operator::Greater => number(|a, b| a > b),
            Operator::Less => number(|a, b| a < b),
        }
    }
}

/// A `LabelSelector`; an absent one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Reads a selector that has been validated.
    pub fn read(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            });
        }
        let expressions = selector["matchExpressions"].as_array();
        for expression in expressions.into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            requirements.push(Requirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator: match expression["operator"].as_str() {
                    Some("In") => Operator::In,
                    Some("NotIn") => Operator::NotIn,
                    Some("Exists") => Operator::Exists,
                    _ => Operator::Absent,
                },
                values: values
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            });
        }
        Self(requirements)
    }

    /// Returns whether everything is selected, whatever its labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether these labels are selected.
    pub fn selects(&self, labels: &Value) -> bool {
        self.0.iter().all(|r| r.holds_for(labels[&r.key].as_str()))
    }
}

/// Parses `a=b,c!=d` over fields. Whether the fields are known is for the kind to say.
pub fn fields(text: &str) -> Result<Vec<FieldRequirement>, String> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text) {
        if term.is_empty() {
            continue;
        }
        let misunderstood = || format!("invalid selector: '{text}'; can't understand '{term}'");
        let (field, equal, value) = split_term(&term).ok_or_else(misunderstood)?;
        requirements.push(FieldRequirement {
            field: field.to_owned(),
            equal,
            value: unescape(value)?,
        });
    }
    Ok(requirements)
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    terms
}

/// Splits the term at the first operator that isn't escaped.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let mut escaped = false;
    for (at, c) in term.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else {
            for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
                if let Some(value) = term[at..].strip_prefix(operator) {
                    return Some((&term[..at], equal, value));
                }
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                Some(other) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
                None => {
                    return Err(
                        "invalid field selector: unterminated escape sequence: \\".to_owned()
                    );
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {c}"
                ));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Parses a label selector such as `a=b,c in (d,e),!f`.
pub fn labels(text: &str) -> Result<Vec<Requirement>, String> {
    // The real parser ends where the first NUL is.
    let text = text.split('\0').next().unwrap_or_default();
    let mut parser = Parser {
        tokens: lex(text),
        at: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {
                let requirement = parser.requirement();
                requirements
                    .push(requirement.map_err(|e| format!("unable to parse requirement: {e}"))?);
                match parser.next() {
                    Token::End => break,
                    Token::Symbol(",") => match parser.peek() {
                        Token::Word(_) | Token::Symbol("!") => {}
                        other => {
                            return Err(format!(
                                "found '{}', expected: identifier after ','",
                                other.text()
                            ));
                        }
                    },
                    other => {
                        return Err(format!(
                            "found '{}', expected: ',' or 'end of string'",
                            other.text()
                        ));
                    }
                }
            }
            Token::End => break,
            other @ Token::Symbol(_) => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Token<'_>> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_whitespace() {
            rest = &rest[1..];
        } else if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let special = |c: char| c.is_ascii_whitespace() || "=!,()><".contains(c);
            let end = rest.find(special).unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word.to_owned(),
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        crate::wire::names::label_key(&key)
            .map_err(|e| format!("<nil>: Invalid value: {key:?}: {e}"))?;
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            let operator = if negated {
                Operator::Absent
            } else {
                Operator::Exists
            };
            return Ok(Requirement {
                key,
                operator,
                values: Vec::new(),
            });
        }
        let found = self.next();
        let (operator, set) = match found {
            Token::Symbol("=" | "==") => (Operator::In, false),
            Token::Symbol("!=") => (Operator::NotIn, false),
            Token::Symbol(">") => (Operator::Greater, false),
            Token::Symbol("<") => (Operator::Less, false),
            Token::Word("in") => (Operator::In, true),
            Token::Word("notin") => (Operator::NotIn, true),
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        let values = if set {
            self.set()?
        } else {
            vec![self.exact()?]
        };
        for (i, value) in values.iter().enumerate() {
            if matches!(operator, Operator::Greater | Operator::Less) {
                if value.parse::<i64>().is_err() {
                    return Err(format!(
                        "values[{i}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            } else {
                crate::wire::names::label_value(value)
                    .map_err(|e| format!("values[{i}][{key}]: Invalid value: {value:?}: {e}"))?;
            }
        }
        Ok(Requirement {
            key,
            operator,
            values,
        })
    }

    fn exact(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(word) => {
                self.next();
                Ok(word.to_owned())
            }
            other @ Token::Symbol(_) => {
                Err(format!("found '{}', expected: identifier", other.text()))
            }
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word.to_owned());
                    match self.next() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                Token::Symbol(",") => values.push(String::new()),
                Token::Symbol(")") => {
                    values.push(String::new());
                    break;
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
