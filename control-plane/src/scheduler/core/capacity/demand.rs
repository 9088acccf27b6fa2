//! Resources that one replica requests.

use std::collections::BTreeMap;

use muster_shared::k8s::Quantity;

use super::{Amounts, CPU, amount, amount_of};

/// Resources that one replica requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// Requests above zero; what is asked in fractions of a unit is rounded up.
    pub(super) requests: Amounts,
    /// Those of them that a node is asked for; other names mean nothing to it.
    pub(super) of_node: Amounts,
}

impl Demand {
    /// Returns the demand of these requests.
    pub fn new(requests: &BTreeMap<String, Quantity>) -> Self {
        requests
            .iter()
            .map(|(name, quantity)| {
                // A request that cannot be read is granted by nobody.
                let amount = amount::of(name, quantity).unwrap_or(i64::MAX);
                (name.as_str().into(), amount)
            })
            .filter(|&(_, amount)| amount > 0)
            .collect()
    }

    /// Returns how often the demand fits into these amounts; a demand without requests fits without
    /// limit.
    pub(super) fn fit_into(&self, amounts: &Amounts) -> i64 {
        fit(&self.requests, amounts)
    }

    /// Returns how often the demand fits into a node with these amounts.
    pub(super) fn fit_into_node(&self, amounts: &Amounts) -> i64 {
        fit(&self.of_node, amounts)
    }

    /// Returns whether each request to a node is below the amount of that name.
    pub(super) fn is_below(&self, amounts: &Amounts) -> bool {
        self.of_node
            .iter()
            .all(|(name, request)| amount_of(amounts, name).is_some_and(|amount| *request < amount))
    }
}

/// The demand of requests above zero, each name once.
impl FromIterator<(Box<str>, i64)> for Demand {
    fn from_iter<I: IntoIterator<Item = (Box<str>, i64)>>(requests: I) -> Self {
        let mut requests: Amounts = requests.into_iter().collect();
        requests.sort_unstable();
        let of_node = requests
            .iter()
            .filter(|(name, _)| is_node_resource(name))
            .cloned()
            .collect();
        Self { requests, of_node }
    }
}

/// Returns how often the requests fit into the amounts at once.
fn fit(requests: &Amounts, amounts: &Amounts) -> i64 {
    requests
        .iter()
        .map(|(name, request)| amount_of(amounts, name).unwrap_or(0).max(0) / request)
        .min()
        .unwrap_or(i64::MAX)
}

/// Returns whether the Kubernetes scheduler counts the resource on nodes: the built-in ones and
/// extended ones, pod slots aside.
fn is_node_resource(name: &str) -> bool {
    matches!(name, CPU | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || (name.contains('/') && !name.starts_with("requests."))
}
