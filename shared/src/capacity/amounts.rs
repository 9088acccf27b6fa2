//! Amounts of resources by number: names are interned, amounts are whole units (cpu: thousandths).

use std::{collections::HashMap, sync::Arc};

use crate::quantity::{Format, Quantity};

/// The number of a resource name, valid within one census.
pub(crate) type Id = u16;

/// `cpu` is the only resource that is counted in thousandths.
pub(super) const CPU: Id = 0;
/// Memory.
pub(super) const MEMORY: Id = 1;
/// Places for pods.
pub(super) const PODS: Id = 2;
/// Local storage.
pub(super) const EPHEMERAL_STORAGE: Id = 3;

/// Resource names and their numbers. There are a dozen of them in a cluster, so none is ever
/// forgotten.
#[derive(Debug)]
pub(crate) struct Names {
    ids: HashMap<Arc<str>, Id>,
    names: Vec<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self {
            ids: HashMap::new(),
            names: Vec::new(),
        };
        // In the order of the constants above.
        for name in ["cpu", "memory", "pods", "ephemeral-storage"] {
            names.intern(name);
        }
        names
    }
}

impl Names {
    /// The number of a name; a name beyond the sixty-five thousandth has none and is not counted.
    pub fn intern(&mut self, name: &str) -> Option<Id> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        let id = Id::try_from(self.names.len()).ok()?;
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.ids.insert(name, id);
        Some(id)
    }

    /// The number of a name that was seen before.
    pub fn find(&self, name: &str) -> Option<Id> {
        self.ids.get(name).copied()
    }

    /// The name of a number.
    pub fn name(&self, id: Id) -> &str {
        &self.names[usize::from(id)]
    }

    /// Whether pods can ask for a resource of this name. The rule is Karmada's: the native
    /// resources, and what looks like an extended one; `requests.` is the prefix of quota names.
    pub fn is_counted(name: &str) -> bool {
        matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            || name.starts_with("attachable-volumes-")
            || name.contains("kubernetes.io/")
            || (name.contains('/') && !name.starts_with("requests."))
    }

    /// An amount as a quantity, in the notation that is usual for the resource.
    pub fn quantity(&self, id: Id, amount: i128) -> Quantity {
        let binary =
            [MEMORY, EPHEMERAL_STORAGE].contains(&id) || self.name(id).starts_with("hugepages-");
        let format = if binary {
            Format::BinarySi
        } else {
            Format::DecimalSi
        };
        Quantity::from_nano(amount.saturating_mul(nano_per_unit(id)), format)
    }
}

/// Nano units in one unit of an amount.
pub(super) fn nano_per_unit(id: Id) -> i128 {
    if id == CPU { 1_000_000 } else { 1_000_000_000 }
}

/// A quantity as an amount, rounded up: whoever asks for a little gets a little.
pub(crate) fn amount(id: Id, quantity: Quantity) -> i64 {
    if id == CPU {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// Amounts by number, sorted. A handful of entries, hence a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Amounts(pub Vec<(Id, i64)>);

impl Amounts {
    /// The amount of a resource.
    pub fn entry(&mut self, id: Id) -> &mut i64 {
        let at = self
            .0
            .binary_search_by_key(&id, |(id, _)| *id)
            .unwrap_or_else(|at| {
                self.0.insert(at, (id, 0));
                at
            });
        &mut self.0[at].1
    }

    /// Adds other amounts to these.
    pub fn add(&mut self, other: &Self) {
        for (id, amount) in &other.0 {
            let entry = self.entry(*id);
            *entry = entry.saturating_add(*amount);
        }
    }

    /// Raises each amount to at least the other one.
    pub fn raise_to(&mut self, other: &Self) {
        for (id, amount) in &other.0 {
            let entry = self.entry(*id);
            *entry = (*entry).max(*amount);
        }
    }
}
