//! The grammar of CEL: tokens and a parser by precedence.

use serde_json::{Value, json};

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A value as written.
    Literal(Value),
    /// A variable.
    Name(String),
    /// `a.b`
    Member(Box<Self>, String),
    /// `a[b]`
    Index(Box<Self>, Box<Self>),
    /// `f(x)` or `a.f(x)`, macros included.
    Call(Option<Box<Self>>, String, Vec<Self>),
    /// `!a` or `-a`
    Unary(char, Box<Self>),
    /// `a + b` and the like.
    Binary(&'static str, Box<Self>, Box<Self>),
    /// `a ? b : c`
    Choice(Box<Self>, Box<Self>, Box<Self>),
    /// `[a, b]`
    List(Vec<Self>),
    /// `{a: b}`
    Map(Vec<(Self, Self)>),
}

impl Expr {
    /// Whether the variable occurs anywhere.
    pub fn mentions(&self, name: &str) -> bool {
        let any = |list: &[Self]| list.iter().any(|e| e.mentions(name));
        match self {
            Self::Literal(_) => false,
            Self::Name(own) => own == name,
            Self::Member(inner, _) | Self::Unary(_, inner) => inner.mentions(name),
            Self::Index(a, b) | Self::Binary(_, a, b) => a.mentions(name) || b.mentions(name),
            Self::Call(target, _, arguments) => {
                target.as_ref().is_some_and(|t| t.mentions(name)) || any(arguments)
            }
            Self::Choice(a, b, c) => a.mentions(name) || b.mentions(name) || c.mentions(name),
            Self::List(items) => any(items),
            Self::Map(entries) => entries
                .iter()
                .any(|(k, v)| k.mentions(name) || v.mentions(name)),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Literal(Value),
    Name(String),
    Sign(&'static str),
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}",
];

/// Operators from the loosest to the tightest.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["==", "!=", "<=", ">=", "<", ">", "in"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Reads a whole expression.
pub fn parse(source: &str) -> Result<Expr, String> {
    let mut parser = Parser {
        tokens: tokens(source)?,
        at: 0,
    };
    let expression = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expression),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let used;
        if let Some(quote) = ['\'', '"'].into_iter().find(|q| rest.starts_with(*q)) {
            let (text, length) = text(&rest[1..], quote, false)?;
            tokens.push(Token::Literal(text.into()));
            used = length + 1;
        } else if rest.starts_with("r'") || rest.starts_with("r\"") {
            let quote = if rest.as_bytes()[1] == b'"' {
                '"'
            } else {
                '\''
            };
            let (text, length) = text(&rest[2..], quote, true)?;
            tokens.push(Token::Literal(text.into()));
            used = length + 2;
        } else if first.is_ascii_digit() {
            used = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                .unwrap_or(rest.len());
            tokens.push(Token::Literal(number(&rest[..used])?));
        } else if first.is_alphabetic() || first == '_' {
            used = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            tokens.push(match &rest[..used] {
                "true" => Token::Literal(json!(true)),
                "false" => Token::Literal(json!(false)),
                "null" => Token::Literal(Value::Null),
                "in" => Token::Sign("in"),
                name => Token::Name(name.to_owned()),
            });
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("unexpected {first:?}"))?;
            tokens.push(Token::Sign(sign));
            used = sign.len();
        }
        rest = rest[used..].trim_start();
    }
    Ok(tokens)
}

fn number(digits: &str) -> Result<Value, String> {
    let plain = digits.trim_end_matches('u');
    if let Some(hex) = plain.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16)
            .map(Value::from)
            .map_err(|e| e.to_string());
    }
    match plain.parse::<i64>() {
        Ok(whole) => Ok(whole.into()),
        Err(_) => plain
            .parse::<f64>()
            .map(Value::from)
            .map_err(|e| format!("{digits}: {e}")),
    }
}

/// The text up to the closing quote, and how many bytes it took, the quote included.
fn text(source: &str, quote: char, raw: bool) -> Result<(String, usize), String> {
    let mut text = String::new();
    let mut characters = source.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            c if c == quote => return Ok((text, at + 1)),
            '\\' if !raw => text.push(match characters.next().map(|(_, c)| c) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(c) => c,
                None => break,
            }),
            c => text.push(c),
        }
    }
    Err("text without an end".to_owned())
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn take(&mut self, sign: &str) -> bool {
        let there = matches!(self.tokens.get(self.at), Some(Token::Sign(s)) if *s == sign);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) {
            Ok(())
        } else {
            Err(format!("{sign:?} is missing"))
        }
    }

    fn choice(&mut self) -> Result<Expr, String> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.binary(0)?;
        self.expect(":")?;
        let no = self.choice()?;
        Ok(Expr::Choice(
            Box::new(condition),
            Box::new(yes),
            Box::new(no),
        ))
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
        let Some(signs) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.take(sign)) {
            let right = self.binary(level + 1)?;
            left = Expr::Binary(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        for (sign, operator) in [("!", '!'), ("-", '-')] {
            if self.take(sign) {
                return Ok(Expr::Unary(operator, Box::new(self.unary()?)));
            }
        }
        let mut expression = self.primary()?;
        loop {
            if self.take(".") {
                let name = self.name()?;
                expression = if self.take("(") {
                    Expr::Call(Some(Box::new(expression)), name, self.list(")")?)
                } else {
                    Expr::Member(Box::new(expression), name)
                };
            } else if self.take("[") {
                let index = self.choice()?;
                self.expect("]")?;
                expression = Expr::Index(Box::new(expression), Box::new(index));
            } else {
                return Ok(expression);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.list("]").map(Expr::List);
        }
        if self.take("{") {
            return self.entries().map(Expr::Map);
        }
        if let Some(Token::Literal(value)) = self.tokens.get(self.at).cloned() {
            self.at += 1;
            return Ok(Expr::Literal(value));
        }
        let name = self.name()?;
        if self.take("(") {
            Ok(Expr::Call(None, name, self.list(")")?))
        } else {
            Ok(Expr::Name(name))
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at).cloned() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            Some(token) => Err(format!("unexpected {token:?}")),
            None => Err("unexpected end".to_owned()),
        }
    }

    fn list(&mut self, close: &str) -> Result<Vec<Expr>, String> {
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.choice()?);
            if !self.take(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn entries(&mut self) -> Result<Vec<(Expr, Expr)>, String> {
        let mut entries = Vec::new();
        while !self.take("}") {
            let key = self.choice()?;
            self.expect(":")?;
            entries.push((key, self.choice()?));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(entries)
    }
}
