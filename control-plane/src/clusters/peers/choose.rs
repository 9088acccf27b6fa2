//! Decides which agents watch which clusters: rendezvous hashing, so that a cluster that joins or
//! leaves changes few of the others' peers.
//!
//! Each cluster ranks all agents by a hash of both names and takes the first ones, those of other
//! regions before its own and one per region while there are any. An agent that has its share of
//! clusters already is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use fnv::FnvHasher;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::k8s::ResourceExt as _;

/// A cluster as far as the choice is concerned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Name of the Cluster.
    pub name: String,
    /// Region, or else the provider; empty if the Cluster has neither.
    pub place: String,
    /// Whether an agent runs in the cluster, which can watch others.
    pub has_agent: bool,
}

impl Candidate {
    /// Reads a Cluster; `None` if it is leaving the fleet.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let spec = &cluster.spec;
        let mut places = [&spec.region, &spec.provider].into_iter().flatten();
        let place = places.find(|it| !it.is_empty());
        let stays = cluster.metadata.deletion_timestamp.is_none();
        stays.then(|| Self {
            name: cluster.name_any(),
            place: place.cloned().unwrap_or_default(),
            has_agent: spec.sync_mode == ClusterSyncMode::Pull,
        })
    }
}

/// Choice of the clusters that each cluster watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The witnesses of each cluster.
    pub witnesses: BTreeMap<String, BTreeSet<String>>,
    /// The clusters that each agent watches.
    pub watched: BTreeMap<String, BTreeSet<String>>,
}

/// Chooses so many witnesses for each cluster; fewer where there are not enough agents. No agent
/// watches more than twice as many clusters.
pub fn choose(clusters: &[Candidate], per_cluster: usize) -> Choice {
    let mut choice = Choice::default();
    let mut order: Vec<&Candidate> = clusters.iter().collect();
    order.sort_by_key(|it| (weight(&it.name, ""), &it.name));
    for cluster in order {
        let agents = clusters
            .iter()
            .filter(|it| it.has_agent && it.name != cluster.name);
        let mut agents: Vec<(u64, &Candidate)> = agents
            .map(|agent| (weight(&cluster.name, &agent.name), agent))
            .collect();
        let mut places = BTreeSet::from([&*cluster.place]);
        for _ in 0..per_cluster {
            let is_free = |agent: &Candidate| {
                let watched = choice.watched.get(&agent.name);
                watched.is_none_or(|it| it.len() < 2 * per_cluster)
            };
            let free = agents.iter().enumerate().filter(|(_, (_, it))| is_free(it));
            let best = free.max_by_key(|(_, (weight, agent))| {
                let place = &*agent.place;
                let is_new = !place.is_empty() && !places.contains(place);
                let is_other = place != cluster.place;
                (is_new, is_other, *weight)
            });
            let Some((at, _)) = best else {
                break;
            };
            let (_, agent) = agents.swap_remove(at);
            places.insert(&agent.place);
            let witnesses = choice.witnesses.entry(cluster.name.clone()).or_default();
            witnesses.insert(agent.name.clone());
            let watched = choice.watched.entry(agent.name.clone()).or_default();
            watched.insert(cluster.name.clone());
        }
    }
    choice
}

/// Returns a hash of two names: 64-bit FNV-1a, and the finalizer of SplitMix64, because FNV alone
/// orders names that differ in the last letter alike.
fn weight(cluster: &str, agent: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    for bytes in [cluster.as_bytes(), &[0], agent.as_bytes()] {
        hasher.write(bytes);
    }
    let hash = hasher.finish();
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, place: &str, has_agent: bool) -> Candidate {
        Candidate {
            name: name.to_owned(),
            place: place.to_owned(),
            has_agent,
        }
    }

    /// Returns a fleet of so many clusters with agents, in turn in these places.
    fn fleet(number: usize, places: &[&str]) -> Vec<Candidate> {
        let places = places.iter().cycle();
        (0..number)
            .zip(places)
            .map(|(n, place)| candidate(&format!("m{n}"), place, true))
            .collect()
    }

    fn pairs(choice: &Choice) -> BTreeSet<(String, String)> {
        let all = choice.witnesses.iter();
        all.flat_map(|(cluster, by)| by.iter().map(|it| (cluster.clone(), it.clone())))
            .collect()
    }

    #[test]
    fn each_cluster_gets_its_witnesses_and_no_agent_watches_itself_or_more_than_its_share() {
        for (number, per_cluster, each) in [
            (1, 3, 0),
            (2, 3, 1),
            (3, 2, 2),
            (4, 3, 3),
            (20, 1, 1),
            (100, 3, 3),
            (100, 5, 5),
        ] {
            for places in [&["eu", "us", "ap"][..], &["eu"], &[""]] {
                let choice = choose(&fleet(number, places), per_cluster);
                for n in 0..number {
                    let name = format!("m{n}");
                    let witnesses = choice.witnesses.get(&name).map_or(0, BTreeSet::len);
                    assert_eq!(witnesses, each, "{name} of {number} in {places:?}");
                    let watched = choice.watched.get(&name);
                    assert!(watched.is_none_or(|it| it.len() <= 2 * per_cluster));
                    assert!(watched.is_none_or(|it| !it.contains(&name)));
                }
            }
        }
    }

    #[test]
    fn witnesses_are_of_other_regions_one_of_each_while_there_are_any() {
        let place = |name: &str| {
            let clusters = fleet(30, &["eu", "us", "ap"]);
            clusters
                .into_iter()
                .find(|it| it.name == name)
                .unwrap()
                .place
        };
        for (per_cluster, regions) in [(1, 1), (2, 2), (3, 2)] {
            let choice = choose(&fleet(30, &["eu", "us", "ap"]), per_cluster);
            for (cluster, witnesses) in &choice.witnesses {
                let places: BTreeSet<String> = witnesses.iter().map(|it| place(it)).collect();
                assert!(
                    !places.contains(&place(cluster)),
                    "{cluster}: {witnesses:?}"
                );
                assert_eq!(places.len(), regions, "{cluster}: {witnesses:?}");
            }
        }
        // There is no other region: better one of the same than none.
        assert_eq!(choose(&fleet(3, &["eu"]), 2).witnesses["m0"].len(), 2);
    }

    #[test]
    fn a_cluster_without_an_agent_is_watched_and_watches_none() {
        let mut clusters = fleet(5, &["eu"]);
        clusters.push(candidate("pushed", "us", false));
        let choice = choose(&clusters, 3);
        assert_eq!(choice.witnesses["pushed"].len(), 3);
        assert!(!choice.watched.contains_key("pushed"));
    }

    #[test]
    fn few_change_their_peers_when_a_cluster_joins_or_leaves() {
        for (number, per_cluster) in [(20, 2), (50, 3), (200, 3)] {
            let places = ["eu", "us", "ap", "sa"];
            let (before, after) = (fleet(number, &places), fleet(number + 1, &places));
            let (few, many) = (choose(&before, per_cluster), choose(&after, per_cluster));
            let (few, many) = (pairs(&few), pairs(&many));
            // What is inevitable: the pairs of the new one, and those that it takes over.
            let lost = few.difference(&many).count();
            assert!(
                lost <= 3 * per_cluster,
                "{lost} of {} pairs of {number}",
                few.len()
            );
        }
    }

    #[test]
    fn the_choice_is_the_same_whatever_the_order_of_the_list() {
        let mut clusters = fleet(40, &["eu", "us", ""]);
        let choice = choose(&clusters, 3);
        clusters.reverse();
        assert_eq!(choose(&clusters, 3), choice);
    }

    #[test]
    fn the_region_of_a_cluster_counts_before_its_provider_and_one_that_leaves_does_not() {
        for (spec, place) in [
            (r#"{"region": "eu", "provider": "aws"}"#, "eu"),
            (r#"{"region": "", "provider": "aws"}"#, "aws"),
            (r"{}", ""),
        ] {
            let cluster = format!(r#"{{"metadata": {{"name": "m1"}}, "spec": {spec}}}"#);
            let mut cluster: Cluster = serde_json::from_str(&cluster).unwrap();
            assert_eq!(Candidate::of(&cluster).unwrap().place, place);
            let now = muster_shared::k8s::Time(jiff::Timestamp::UNIX_EPOCH);
            cluster.metadata.deletion_timestamp = Some(now);
            assert_eq!(Candidate::of(&cluster), None);
        }
    }
}
