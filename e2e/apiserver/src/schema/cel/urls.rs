//! Functions of Kubernetes for URLs: `isURL`, `url` and the host of one. A URL is read as Go's
//! `url.ParseRequestURI` reads it: absolute, or an absolute path.

use std::any::Any;

use cel::common::types::{CelBool, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError, add_member_overload, add_overload};

static URL: Type = Type::new_unspecified_type("kubernetes.URL");

/// Declares the functions.
pub fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn is_url: (CelString) -> CelBool, name = "isURL")?;
    add_overload!(env, fn url: (CelString) -> Result<Url>)?;
    add_member_overload!(env, fn get_host: (Url) -> CelString)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    Url::read(text.inner()).is_some().into()
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let why = "URL parse error during conversion from string";
    Url::read(text.inner()).ok_or_else(|| ExecutionError::function_error("url", why))
}

fn get_host(url: &Url) -> CelString<'static> {
    url.host.clone().into()
}

/// An absolute URL, or an absolute path.
#[derive(Debug, Clone, PartialEq)]
struct Url {
    text: String,
    host: String,
}

impl Url {
    fn read(text: &str) -> Option<Self> {
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        let (scheme, rest) = if text.starts_with('/') {
            ("", text)
        } else {
            text.split_once(':')?
        };
        if !text.starts_with('/') && !is_scheme(scheme) {
            return None;
        }
        let authority = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => rest.split(['/', '?', '#']).next(),
            _ => None,
        };
        let authority = authority.unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
        let (name, port) = name_and_port(host);
        let is_number = |port: &str| port.chars().all(|c| c.is_ascii_digit());
        if name.contains(OUT_OF_PLACE) || !port.is_none_or(is_number) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            host: host.to_owned(),
        })
    }
}

/// Characters that no name of a host has.
const OUT_OF_PLACE: &[char] = &['{', '}', '|', '\\', '^', '`', '%'];

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Returns the name of a host, and its port where there is a colon after the name.
fn name_and_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

impl Val for Url {
    fn get_type(&self) -> &Type {
        &URL
    }

    fn cel_type() -> &'static Type {
        &URL
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>() == Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Url {}
