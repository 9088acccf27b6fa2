//! Functions of Kubernetes for URLs: `isURL`, `url` and the parts of one. A URL is read as Go's
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
    add_member_overload!(env, fn get_scheme: (Url) -> CelString)?;
    add_member_overload!(env, fn get_host: (Url) -> CelString)?;
    add_member_overload!(env, fn get_hostname: (Url) -> CelString)?;
    add_member_overload!(env, fn get_port: (Url) -> CelString)?;
    add_member_overload!(env, fn get_escaped_path: (Url) -> CelString)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    Url::read(text.inner()).is_some().into()
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let why = "URL parse error during conversion from string";
    Url::read(text.inner()).ok_or_else(|| ExecutionError::function_error("url", why))
}

fn get_scheme(url: &Url) -> CelString<'static> {
    url.scheme.clone().into()
}

fn get_host(url: &Url) -> CelString<'static> {
    url.host.clone().into()
}

fn get_hostname(url: &Url) -> CelString<'static> {
    let (name, _) = name_and_port(&url.host);
    name.trim_matches(['[', ']']).to_owned().into()
}

fn get_port(url: &Url) -> CelString<'static> {
    let (_, port) = name_and_port(&url.host);
    port.unwrap_or_default().to_owned().into()
}

fn get_escaped_path(url: &Url) -> CelString<'static> {
    url.path.clone().into()
}

/// Parts of an absolute URL, or of an absolute path.
#[derive(Debug, Clone, PartialEq)]
struct Url {
    scheme: String,
    host: String,
    path: String,
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
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => rest.split_at(end(rest, &['/', '?', '#'])),
            _ => ("", rest),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
        let (name, port) = name_and_port(host);
        let is_number = |port: &str| port.chars().all(|c| c.is_ascii_digit());
        if name.contains(OUT_OF_PLACE) || !port.is_none_or(is_number) {
            return None;
        }
        // Without a slash the rest is opaque and no path.
        let path = &path[..end(path, &['?', '#'])];
        Some(Self {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            path: if path.starts_with('/') { path } else { "" }.to_owned(),
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

/// Returns the place of the first of these characters, or the end.
fn end(text: &str, ends: &[char]) -> usize {
    text.find(ends).unwrap_or(text.len())
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
