//! What a request asks for: its path, method and query taken apart as Kubernetes does it.

use std::borrow::Cow;

use http::Method;

use crate::wire::selectors::{self, FieldRequirement};
use crate::wire::status_error::StatusError;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Remove an object.
    Delete,
    /// Remove what a selection finds.
    DeleteCollection,
}

impl Verb {
    /// Returns the name that authorization rules use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A path below `/api` or `/apis`, or any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/healthz`, `/openapi/v2`, discovery and anything else that is no resource.
    Path,
    /// A resource, an object of it, or a subresource of that.
    Resource(ResourcePath<'a>),
}

/// The parts of a resource path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath<'a> {
    /// Empty for the core group.
    pub group: Cow<'a, str>,
    /// Version of the group.
    pub version: Cow<'a, str>,
    /// Empty if cluster-scoped or over all namespaces.
    pub namespace: Cow<'a, str>,
    /// Plural of the resource.
    pub resource: Cow<'a, str>,
    /// Empty for a collection.
    pub name: Cow<'a, str>,
    /// Empty for the object itself.
    pub subresource: Cow<'a, str>,
    /// The old form `/api/v1/watch/...`.
    pub watch: bool,
    /// More segments than a resource path has.
    pub surplus: bool,
}

impl Target<'_> {
    /// Takes a path apart.
    pub fn parse(path: &str) -> Target<'_> {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Target::Path,
        };
        let watch = rest[0] == "watch" && rest.len() > 1;
        if watch {
            rest = &rest[1..];
        }
        let mut target = ResourcePath {
            group: decoded(group),
            version: decoded(version),
            watch,
            ..ResourcePath::default()
        };
        // A namespace is itself an object with subresources.
        if rest[0] == "namespaces" && rest.len() > 2 && !matches!(rest[2], "status" | "finalize") {
            target.namespace = decoded(rest[1]);
            rest = &rest[2..];
        }
        let at = |i: usize| rest.get(i).map_or(Cow::Borrowed(""), |part| decoded(part));
        target.resource = at(0);
        target.name = at(1);
        target.subresource = at(2);
        target.surplus = rest.len() > 3;
        Target::Resource(target)
    }
}

/// Percent-decodes a path segment or a query value; what isn't UTF-8 is kept as it was sent.
pub fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        if bytes[i] == b'%'
            && let (Some(high), Some(low)) = (hex(i + 1), hex(i + 2))
            && let Ok(byte) = u8::try_from(high * 16 + low)
        {
            out.push(byte);
            i += 3;
        } else {
            out.push(bytes[i]);
            i += 1;
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The query of a request.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes a query string apart.
    pub fn parse(query: Option<&str>) -> Self {
        let form = |text: &str| decoded(&text.replace('+', " ")).into_owned();
        Self(
            query
                .unwrap_or_default()
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (form(key), form(value))
                })
                .collect(),
        )
    }

    /// Returns the first value of a key; an empty value counts as absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    /// Returns every value of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Returns whether a switch is on: present and neither `false` nor `0`, as the API's own
    /// decoder reads booleans.
    pub fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or(false)
    }

    /// Returns the value of a switch that may be left out.
    pub fn optional_flag(&self, key: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(k, _)| k == key)?;
        Some(!matches!(
            value.to_ascii_lowercase().as_str(),
            "false" | "0"
        ))
    }

    /// Returns the one name to which the field selector narrows a collection.
    pub fn selected_name(&self) -> Option<String> {
        let fields = selectors::fields(self.get("fieldSelector")?).ok()?;
        let exact = |it: &&FieldRequirement| it.field == "metadata.name" && it.equal;
        fields.iter().find(exact).map(|it| it.value.clone())
    }

    /// Returns the value of a key as a whole number.
    pub fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                StatusError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            })
        };
        self.get(key).map(parse).transpose()
    }
}

/// Returns the verb of a request on a resource; `None` for a method that no resource has.
pub fn verb(method: &Method, path: &ResourcePath<'_>, query: &Query) -> Option<Verb> {
    let one = !path.name.is_empty();
    Some(match *method {
        Method::GET | Method::HEAD if path.watch => Verb::Watch,
        Method::GET | Method::HEAD if one => Verb::Get,
        Method::GET | Method::HEAD if query.flag("watch") => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if one => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => return None,
    })
}
