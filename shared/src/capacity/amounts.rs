//! Amounts of resources. Resource names are interned as numbers; an amount counts whole units, and
//! thousandths for cpu.

use std::{collections::HashMap, sync::Arc};

use crate::quantity::{Format, Quantity};

/// Number of a resource name, valid within one census.
pub type Id = u16;

/// Number of `cpu`, the only resource that is counted in thousandths.
pub(super) const CPU: Id = 0;
/// Number of `memory`.
pub(super) const MEMORY: Id = 1;
/// Number of `pods`: how many pods a node takes.
pub(super) const PODS: Id = 2;
/// Number of `ephemeral-storage`: local storage.
pub(super) const EPHEMERAL_STORAGE: Id = 3;

/// Resource names and their numbers. A cluster has about a dozen, so names are never removed.
#[derive(Debug)]
pub struct Names {
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

/// Returns whether pods can request a resource of this name. The rule is Karmada's: native
/// resources and names of the form of extended resources; names that begin with `requests.` belong
/// to quotas.
pub fn is_counted(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || (name.contains('/') && !name.starts_with("requests."))
}

impl Names {
    /// Returns the number of a name. The 65,536th name and later ones have none and are not
    /// counted.
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

    /// Returns the number of a name that was interned before.
    pub fn find(&self, name: &str) -> Option<Id> {
        self.ids.get(name).copied()
    }

    /// Returns the name of a number.
    pub fn name(&self, id: Id) -> &str {
        &self.names[usize::from(id)]
    }

    /// Returns an amount as a quantity, in the usual notation of the resource.
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

/// Returns the number of nano units in one unit of an amount.
pub(super) fn nano_per_unit(id: Id) -> i128 {
    if id == CPU { 1_000_000 } else { 1_000_000_000 }
}

/// Converts a quantity to an amount, rounded up.
fn amount(id: Id, quantity: Quantity) -> i64 {
    if id == CPU {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// Amounts by resource number, sorted; a list, because there are only a few.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts(pub Vec<(Id, i64)>);

impl Amounts {
    /// Returns the amount of a resource, adding it if absent.
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

    /// Sets the amount of a resource, rounded up.
    pub fn set(&mut self, names: &mut Names, name: &str, quantity: Quantity) {
        if let Some(id) = names.intern(name) {
            *self.entry(id) = amount(id, quantity);
        }
    }

    /// Returns whether there is an amount of a resource, be it none.
    pub fn has(&self, id: Id) -> bool {
        self.0.binary_search_by_key(&id, |(id, _)| *id).is_ok()
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
