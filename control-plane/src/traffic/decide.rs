//! Decides which addresses a host name gets. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Most clusters that a name leads to: a resolver gets all of them in one answer.
pub const MOST_CLUSTERS: usize = 50;

/// Addresses of a load balancer by cluster.
pub type Targets = BTreeMap<String, BTreeSet<String>>;

/// Whether a copy serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The copy is healthy and stays.
    Serves,
    /// The copy is healthy, and is to leave its cluster for this reason.
    Leaves(String),
    /// The copy is not known to serve, for this reason. It may live.
    Lost(String),
}

/// A copy that a cluster has, is to have, or may still have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Whether it serves.
    pub state: State,
    /// Addresses of its load balancer.
    pub addresses: BTreeSet<String>,
    /// Time for which it has been healthy.
    pub healthy_for: Duration,
}

/// The addresses that a host name gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Addresses by cluster: either IP addresses, or one host name. Empty only before the first
    /// copy serves.
    pub targets: Targets,
    /// Whether no copy is known to serve, so that the last known addresses stay.
    pub is_last_known: bool,
    /// Clusters with healthy copies that the name cannot lead to beside the others.
    pub left_out: Vec<String>,
    /// Time after which a copy has been healthy for long enough to be added.
    pub next: Option<Duration>,
}

/// Decides where a host name leads, by where it leads now and by the copies.
///
/// - Copies that are healthy and stay come before those that are to leave, and these before the
///   last known addresses.
/// - A cluster is taken out at once, and added when its copy has been healthy for `settle`; at
///   once if the name leads to no healthy copy otherwise.
/// - While no copy is known to serve, the last known addresses stay, without clusters that have no
///   copy any more if there are others.
pub fn decide(published: &Targets, copies: &BTreeMap<String, Copy>, settle: Duration) -> Decision {
    let able = |wanted: fn(&State) -> bool| -> Vec<(&String, &Copy)> {
        let fit = |copy: &Copy| wanted(&copy.state) && !copy.addresses.is_empty();
        copies.iter().filter(|(_, copy)| fit(copy)).collect()
    };
    let mut healthy = able(|state| *state == State::Serves);
    if healthy.is_empty() {
        healthy = able(|state| matches!(state, State::Leaves(_)));
    }
    if healthy.is_empty() {
        return last_known(published, copies);
    }
    let (kept, new): (Vec<_>, Vec<_>) = healthy
        .into_iter()
        .partition(|(cluster, _)| published.contains_key(*cluster));
    // Nothing waits where the name leads to no healthy copy otherwise.
    let settle = if kept.is_empty() {
        Duration::ZERO
    } else {
        settle
    };
    let wait = |copy: &Copy| settle.saturating_sub(copy.healthy_for);
    let (added, waiting): (Vec<_>, Vec<_>) =
        new.into_iter().partition(|(_, copy)| wait(copy).is_zero());
    let next = waiting.iter().map(|(_, copy)| wait(copy)).min();
    let decision = representable(published, &kept, &added);
    Decision { next, ..decision }
}

fn last_known(published: &Targets, copies: &BTreeMap<String, Copy>) -> Decision {
    let may_live = published
        .iter()
        .filter(|(cluster, _)| copies.contains_key(*cluster))
        .map(|(cluster, addresses)| (cluster.clone(), addresses.clone()));
    let mut targets: Targets = may_live.collect();
    if targets.is_empty() {
        targets.clone_from(published);
    }
    Decision {
        is_last_known: true,
        targets,
        ..Decision::default()
    }
}

/// Chooses what one name can hold: the IP addresses of all, or one host name. What the name has
/// stays in favour of what would be added.
fn representable(
    published: &Targets,
    kept: &[(&String, &Copy)],
    added: &[(&String, &Copy)],
) -> Decision {
    let addresses = |(_, copy): &(&String, &Copy)| copy.addresses.iter().any(|it| is_ip(it));
    let is_by_address = match kept {
        [] => added.iter().any(addresses),
        kept => kept.iter().any(addresses),
    };
    let all = || kept.iter().chain(added);
    let mut decision = Decision::default();
    if is_by_address {
        for (cluster, copy) in all() {
            let addresses = copy.addresses.iter().filter(|it| is_ip(it)).cloned();
            let addresses: BTreeSet<String> = addresses.collect();
            if addresses.is_empty() || decision.targets.len() == MOST_CLUSTERS {
                decision.left_out.push((*cluster).clone());
            } else {
                decision.targets.insert((*cluster).clone(), addresses);
            }
        }
        return decision;
    }
    let mut names =
        all().flat_map(|(cluster, copy)| copy.addresses.iter().map(move |it| (*cluster, it)));
    let is_published = |(cluster, name): &(&String, &String)| {
        published.get(*cluster).is_some_and(|it| it.contains(*name))
    };
    let first = names.clone().next();
    if let Some((cluster, name)) = names.find(is_published).or(first) {
        decision
            .targets
            .insert(cluster.clone(), [name.clone()].into());
    }
    let others = all().map(|(cluster, _)| *cluster);
    let others = others.filter(|cluster| !decision.targets.contains_key(*cluster));
    decision.left_out = others.cloned().collect();
    decision
}

/// Returns whether an address is an IP address, and no host name.
pub fn is_ip(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
