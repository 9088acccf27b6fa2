//! Decides whether an object in the member is already as desired, so that nothing has to be
//! applied.
//!
//! The server records in `managedFields` which fields the agent's last server-side apply set. An
//! apply changes nothing if these are exactly the desired fields, each has the desired value, and
//! the agent's elements of each list are in the desired order. Fields of other managers (defaults,
//! injected containers, status) are not compared.

mod elements;
mod quantities;

use serde_json::{Map, Value};

pub use self::elements::Identity;
use self::elements::{Elements, Identities};
use self::quantities::is_quantity;
use crate::work::managed_fields::{entries, is_applied, is_of_subresource};

/// Returns whether applying `desired` would leave `observed` as it is.
///
/// A wrong "no" costs one request that the server answers without a change; there is no wrong "yes"
/// short of a server that does not keep `managedFields`. The cost grows with the size of both
/// objects, not with the product of their lists.
pub(super) fn settled(desired: &Value, observed: &Value) -> bool {
    Comparison::of(desired).settled(desired, observed)
}

/// Returns whether a set of fields of `managedFields` and a desired value have a field in common.
pub(super) fn touches(desired: &Value, fields: &Map<String, Value>) -> bool {
    match desired {
        Value::Object(desired) => fields.iter().any(|(key, below)| {
            let wanted = key.strip_prefix("f:").and_then(|key| desired.get(key));
            wanted.is_some_and(|wanted| touched(wanted, below))
        }),
        Value::Array(desired) => Identities::read(fields).is_some_and(|identities| {
            let elements = Elements::of(desired, &identities);
            identities.iter().any(|(identity, below)| {
                let place = elements.find(identity);
                place.is_some_and(|place| touched(&desired[place], below))
            })
        }),
        _ => false,
    }
}

fn touched(wanted: &Value, below: &Value) -> bool {
    let Some(below) = below.as_object().filter(|_| !wanted.is_null()) else {
        return false;
    };
    below.is_empty() || touches(wanted, below)
}

/// Returns the fields that the agent set by server-side apply on the object itself.
pub(super) fn owned_fields(observed: &Value) -> Option<&Map<String, Value>> {
    let mut entries = entries(observed).iter();
    let own = entries.find(|entry| is_applied(entry) && !is_of_subresource(entry));
    own?.get("fieldsV1")?.as_object()
}

/// Path from the root of an object to one of its fields.
#[derive(Clone, Copy)]
struct Path<'p> {
    parent: Option<&'p Self>,
    name: &'p str,
}

impl<'p> Path<'p> {
    /// Name of every element of a list.
    const ELEMENT: &'static str = "[]";

    fn names(this: Option<&'p Self>) -> Vec<&'p str> {
        let mut names: Vec<&str> = std::iter::successors(this, |path| path.parent)
            .map(|path| path.name)
            .collect();
        names.reverse();
        names
    }
}

/// One comparison of an object with its desired state.
struct Comparison<'a> {
    group: &'a str,
    kind: &'a str,
    /// Number of list elements that were compared, for the test of the cost.
    visited: usize,
}

impl<'a> Comparison<'a> {
    fn of(desired: &'a Value) -> Self {
        let text = |key: &str| desired.get(key).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion")
            .split_once('/')
            .map_or("", |(group, _)| group);
        Self {
            group,
            kind: text("kind"),
            visited: 0,
        }
    }

    fn settled(&mut self, desired: &Value, observed: &Value) -> bool {
        let Some(owned) = owned_fields(observed) else {
            return false;
        };
        match (desired.as_object(), observed.as_object()) {
            (Some(desired), Some(observed)) => {
                self.same_object(desired, observed, owned, None, None)
            }
            _ => false,
        }
    }

    /// Compares one value, with the set of owned fields below it: an empty set means that the value
    /// is owned as a whole.
    fn same(&mut self, desired: &Value, observed: &Value, owned: &Value, path: &Path<'_>) -> bool {
        let Some(owned) = owned.as_object() else {
            return false;
        };
        if owned.is_empty() {
            return self.same_value(desired, observed, path);
        }
        match (desired, observed) {
            (Value::Object(desired), Value::Object(observed)) => {
                self.same_object(desired, observed, owned, Some(path), None)
            }
            (Value::Array(desired), Value::Array(observed)) => {
                self.same_list(desired, observed, owned, path)
            }
            _ => false,
        }
    }

    /// Compares two objects. `keys` are those by which an associative list identifies the object. A
    /// key that the object omits was filled in by the server.
    fn same_object(
        &mut self,
        desired: &Map<String, Value>,
        observed: &Map<String, Value>,
        owned: &Map<String, Value>,
        path: Option<&Path<'_>>,
        keys: Option<&Map<String, Value>>,
    ) -> bool {
        let mut covered = 0;
        for (key, below) in owned {
            // The entry "." stands for the object itself.
            let Some(key) = key.strip_prefix("f:") else {
                continue;
            };
            let wanted = desired
                .get(key)
                .filter(|value| !value.is_null() && !identifies(path, key, value));
            covered += usize::from(wanted.is_some());
            let wanted = wanted.or_else(|| keys?.get(key));
            let found = observed.get(key).filter(|value| !value.is_null());
            let same = match (wanted, found) {
                (Some(wanted), Some(found)) => {
                    let path = Path {
                        parent: path,
                        name: key,
                    };
                    self.same(wanted, found, below, &path)
                }
                // The server may omit empty values.
                (Some(wanted), None) => is_empty(wanted),
                (None, Some(_)) => false,
                (None, None) => true,
            };
            if !same {
                return false;
            }
        }
        let wanted = desired
            .iter()
            .filter(|(key, value)| !value.is_null() && !identifies(path, key, value));
        covered == wanted.count()
    }

    /// Compares an associative list or a set. An apply puts the agent's elements into the desired
    /// order, whatever is between them.
    fn same_list(
        &mut self,
        desired: &[Value],
        observed: &[Value],
        owned: &Map<String, Value>,
        path: &Path<'_>,
    ) -> bool {
        self.visited += desired.len() + observed.len() + owned.len();
        let Some(identities) = Identities::read(owned) else {
            return false;
        };
        let wanted = Elements::of(desired, &identities);
        let found = Elements::of(observed, &identities);
        let path = Path {
            parent: Some(path),
            name: Path::ELEMENT,
        };
        let mut places = Vec::with_capacity(identities.len());
        for (identity, below) in identities.iter() {
            let (Some(ours), Some(theirs)) = (wanted.find(identity), found.find(identity)) else {
                return false;
            };
            let keys = identity.keys();
            let same = match (keys, &desired[ours], &observed[theirs]) {
                // The identity of a set's element is its value.
                (None, ..) => true,
                (keys, Value::Object(desired), Value::Object(observed)) if is_open(below) => {
                    let owned = below.as_object();
                    owned.is_some_and(|owned| {
                        self.same_object(desired, observed, owned, Some(&path), keys)
                    })
                }
                (_, desired, observed) => self.same(desired, observed, below, &path),
            };
            if !same {
                return false;
            }
            places.push((ours, theirs));
        }
        places.sort_unstable();
        places.len() == desired.len()
            && places
                .iter()
                .zip(places.iter().skip(1))
                .all(|(one, next)| one.0 < next.0 && one.1 < next.1)
    }

    /// Returns whether values are equal, or two spellings of one quantity in a field that holds
    /// quantities: there the server rewrites `1000m` as `1`. Elsewhere `1.10` is another version
    /// than `1.1`.
    fn same_value(&mut self, desired: &Value, observed: &Value, path: &Path<'_>) -> bool {
        match (desired, observed) {
            _ if desired == observed => true,
            (Value::Object(desired), Value::Object(observed)) => {
                desired.len() == observed.len()
                    && desired.iter().all(|(key, desired)| {
                        let path = Path {
                            parent: Some(path),
                            name: key,
                        };
                        let observed = observed.get(key);
                        observed.is_some_and(|observed| self.same_value(desired, observed, &path))
                    })
            }
            (Value::Array(desired), Value::Array(observed)) => {
                let path = Path {
                    parent: Some(path),
                    name: Path::ELEMENT,
                };
                desired.len() == observed.len()
                    && desired
                        .iter()
                        .zip(observed)
                        .all(|(desired, observed)| self.same_value(desired, observed, &path))
            }
            _ => {
                quantities::same(desired, observed)
                    && is_quantity(self.group, self.kind, &Path::names(Some(path)))
            }
        }
    }
}

/// Returns whether a field names the object rather than describes it: `managedFields` never lists
/// those.
fn identifies(path: Option<&Path<'_>>, key: &str, value: &Value) -> bool {
    let is_name = |key: &str| key == "name" || key == "namespace";
    match path {
        None if key == "metadata" => value.as_object().is_some_and(|metadata| {
            let mut fields = metadata.iter().filter(|(_, value)| !value.is_null());
            fields.all(|(key, _)| is_name(key))
        }),
        None => key == "apiVersion" || key == "kind",
        Some(Path {
            parent: None,
            name: "metadata",
        }) => is_name(key),
        Some(_) => false,
    }
}

/// Returns whether a set of fields names parts of the value rather than the value as a whole.
fn is_open(owned: &Value) -> bool {
    owned.as_object().is_some_and(|owned| !owned.is_empty())
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests;
