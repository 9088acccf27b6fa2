//! Elements of associative lists and sets, found by their names in `managedFields`.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

/// Maximum number of keys of an element. Kubernetes' own lists have up to three; a look-up tries
/// every combination of keys that the server may have filled in.
const MOST_KEYS: usize = 4;

/// Name of a list element in `managedFields`.
pub enum Identity {
    /// Keys of an element of an associative list.
    Keys(Map<String, Value>),
    /// Element of a set.
    Value(Value),
}

impl Identity {
    /// Reads the name of an element; `None` for any other name.
    pub fn read(text: &str) -> Option<Self> {
        if let Some(keys) = text.strip_prefix("k:") {
            serde_json::from_str(keys).ok().map(Self::Keys)
        } else {
            let value = text.strip_prefix("v:")?;
            serde_json::from_str(value).ok().map(Self::Value)
        }
    }

    /// Returns the keys; `None` for an element of a set.
    pub(super) fn keys(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Keys(keys) => Some(keys),
            Self::Value(_) => None,
        }
    }
}

/// The elements of a list that one field manager set.
pub(super) struct Identities<'a> {
    each: Vec<(Identity, &'a Value)>,
    /// All names of keys, in order.
    keys: Vec<String>,
}

impl<'a> Identities<'a> {
    /// Reads the identities from the set below a list; `None` if it names elements in an unknown
    /// way.
    pub(super) fn read(owned: &'a Map<String, Value>) -> Option<Self> {
        let mut each = Vec::with_capacity(owned.len());
        let mut names = BTreeSet::new();
        for (text, below) in owned.iter().filter(|(text, _)| text.as_str() != ".") {
            let identity = Identity::read(text)?;
            for key in identity.keys().into_iter().flat_map(Map::keys) {
                if !names.contains(key) {
                    names.insert(key.clone());
                }
            }
            if names.len() > MOST_KEYS {
                return None;
            }
            each.push((identity, below));
        }
        Some(Self {
            each,
            keys: names.into_iter().collect(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.each.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Identity, &'a Value)> {
        self.each.iter().map(|(identity, below)| (identity, *below))
    }
}

/// The keys that an element has, as bits, and their values in order.
type Named<'a> = (u8, Vec<&'a Value>);

/// The places of the elements of one list.
pub(super) struct Elements<'a> {
    names: &'a [String],
    keyed: HashMap<Named<'a>, usize>,
    values: HashMap<&'a Value, usize>,
}

impl<'a> Elements<'a> {
    /// Returns the elements as `identities` tell them apart. Of several with one identity the first
    /// counts.
    pub(super) fn of(list: &'a [Value], identities: &'a Identities<'_>) -> Self {
        let names = identities.keys.as_slice();
        let (mut keyed, mut values) = (HashMap::new(), HashMap::new());
        for (place, element) in list.iter().enumerate() {
            if names.is_empty() {
                values.entry(element).or_insert(place);
            } else if let Some(element) = element.as_object() {
                keyed.entry(named(names, element, !0)).or_insert(place);
            }
        }
        Self {
            names,
            keyed,
            values,
        }
    }

    /// Returns the place of an element. A key that the element leaves out is taken for a default;
    /// one that has all keys comes first.
    pub(super) fn find(&self, identity: &Identity) -> Option<usize> {
        let keys = match identity {
            Identity::Value(value) => return self.values.get(value).copied(),
            Identity::Keys(keys) => keys,
        };
        let (all, _) = named(self.names, keys, !0);
        let mut given = all;
        while given != 0 {
            if let Some(place) = self.keyed.get(&named(self.names, keys, given)) {
                return Some(*place);
            }
            given = (given - 1) & all;
        }
        None
    }
}

/// Returns the keys among `names` and `given` that an object has.
fn named<'a>(names: &[String], object: &'a Map<String, Value>, given: u8) -> Named<'a> {
    let (mut present, mut values) = (0, Vec::with_capacity(names.len()));
    for (bit, name) in names.iter().enumerate() {
        if let (true, Some(value)) = (given & (1 << bit) != 0, object.get(name)) {
            present |= 1 << bit;
            values.push(value);
        }
    }
    (present, values)
}
