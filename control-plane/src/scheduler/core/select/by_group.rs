//! Selects clusters under a constraint by region, provider or zone: first the groups, then their
//! clusters.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::sets::{Sets, Size};
use super::{Axis, Candidate, Groups, Load, SelectError};

/// Weight of a replica that a group can hold against one point of cluster score (Karmada
/// behaviour): capacity decides between groups, locality between groups of equal capacity.
const REPLICA_WEIGHT: i64 = 1000;

/// The candidates of one group.
#[derive(Debug)]
struct Group<'a> {
    name: &'a str,
    /// Positions among the candidates, best first.
    members: Vec<usize>,
    score: i64,
}

impl Group<'_> {
    fn size(&self) -> usize {
        self.members.len()
    }
}

/// Chooses groups along `axis`, then clusters from them, from the ranked candidates. Without a
/// cluster constraint each group gets one cluster (Karmada behaviour).
pub(super) fn select<'a>(
    candidates: &[Candidate<'a>],
    axis: Axis<'_>,
    groups: Groups,
    clusters: Option<Groups>,
    load: Load,
) -> Result<Vec<Candidate<'a>>, SelectError> {
    let min_clusters = clusters.map_or(0, |clusters| clusters.min);
    let found = group(candidates, axis, groups, min_clusters, load);
    if found.len() < groups.min {
        return Err(SelectError::TooFewGroups(axis.field));
    }
    // A cluster may lie in several zones, so that the groups together may count more clusters than
    // there are.
    if candidates.len() < min_clusters {
        return Err(SelectError::TooFewClustersInGroups);
    }
    let chosen = best(&found, groups, min_clusters).ok_or(SelectError::TooFewClustersInGroups)?;
    Ok(pick(
        candidates,
        &chosen,
        axis,
        clusters.map_or(0, |clusters| clusters.max),
    ))
}

/// Returns one cluster of each group, then the best of the rest, up to `max` clusters.
fn pick<'a>(
    candidates: &[Candidate<'a>],
    chosen: &[&Group<'_>],
    axis: Axis<'_>,
    max: usize,
) -> Vec<Candidate<'a>> {
    // A cluster that lies in a zone that is not chosen would add a group.
    let names: HashSet<&str> = chosen.iter().map(|group| group.name).collect();
    let inside = |position: usize| {
        let mut groups = axis.groups(&candidates[position]).iter();
        groups.all(|name| names.contains(name.as_str()))
    };
    let mut picked: Vec<usize> = Vec::with_capacity(chosen.len());
    let mut is_picked = vec![false; candidates.len()];
    for group in chosen {
        let covered = group.members.iter().any(|member| is_picked[*member]);
        if let Some(first) = group.members.iter().copied().find(|&member| inside(member))
            && !covered
        {
            picked.push(first);
            is_picked[first] = true;
        }
    }
    let mut rest: Vec<usize> = chosen
        .iter()
        .flat_map(|group| group.members.iter().copied())
        .filter(|&member| !is_picked[member] && inside(member))
        .collect();
    // Candidates are ranked, so positions are.
    rest.sort_unstable();
    rest.dedup();
    rest.truncate(max.saturating_sub(picked.len()));
    picked
        .into_iter()
        .chain(rest)
        .map(|position| candidates[position])
        .collect()
}

/// Returns the groups with their scores, in the order in which sets of them are tried: small groups
/// first.
fn group<'a>(
    candidates: &[Candidate<'a>],
    axis: Axis<'_>,
    groups: Groups,
    min_clusters: usize,
    load: Load,
) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (position, candidate) in candidates.iter().enumerate() {
        for name in axis.groups(candidate) {
            let place = *places.entry(name).or_insert_with(|| {
                found.push(Group {
                    name,
                    members: Vec::new(),
                    score: 0,
                });
                found.len() - 1
            });
            found[place].members.push(position);
        }
    }
    for group in &mut found {
        let members = group.members.iter().map(|&position| &candidates[position]);
        group.score = if load.duplicated {
            duplicated_score(members, load.replicas)
        } else {
            divided_score(members, load.replicas, groups.min, min_clusters)
        };
    }
    found.sort_unstable_by(|a, b| a.size().cmp(&b.size()).then_with(|| preference(a, b)));
    found
}

/// Returns the order of two groups: the higher score first, then the name.
fn preference(a: &Group<'_>, b: &Group<'_>) -> Ordering {
    b.score.cmp(&a.score).then_with(|| a.name.cmp(b.name))
}

/// Prefers the group in which most clusters hold a complete copy.
fn duplicated_score<'a: 'c, 'c>(
    members: impl Iterator<Item = &'c Candidate<'a>>,
    replicas: i64,
) -> i64 {
    let (count, score) = members
        .filter(|member| member.available() >= replicas)
        .fold((0, 0), |(count, score), member| {
            (count + 1, score + member.score)
        });
    if count == 0 {
        0
    } else {
        REPLICA_WEIGHT * count + score / count
    }
}

/// Prefers the group that holds its share of the replicas, then the one that does so with the
/// better clusters.
fn divided_score<'a: 'c, 'c>(
    members: impl Iterator<Item = &'c Candidate<'a>>,
    replicas: i64,
    min_groups: usize,
    min_clusters: usize,
) -> i64 {
    // No lower bound, no share to compare groups by (Karmada divides by zero and ends at the same).
    let share = match i64::try_from(min_groups).unwrap_or(i64::MAX) {
        0 => 0,
        groups => replicas / groups + i64::from(replicas % groups > 0),
    };
    let need = i64::try_from(min_clusters.max(min_groups)).unwrap_or(i64::MAX);
    let (mut count, mut available, mut score) = (0, 0, 0);
    for member in members {
        count += 1;
        available += member.available();
        score += member.score;
        if count >= need && available >= share {
            break;
        }
    }
    if count == 0 {
        return 0;
    }
    REPLICA_WEIGHT * available.min(share) + score / count
}

/// Returns the best set of groups in the order of preference, cut to its shortest beginning that a
/// search would have found.
fn best<'g, 'a>(
    groups: &'g [Group<'a>],
    limits: Groups,
    min_clusters: usize,
) -> Option<Vec<&'g Group<'a>>> {
    let sizes: Vec<Size> = groups
        .iter()
        .map(|group| Size {
            score: group.score,
            clusters: group.size(),
        })
        .collect();
    let sets = Sets::new(&sizes, limits, min_clusters);
    let mut chosen = sets.best(|&a, &b| preference(&groups[a], &groups[b]))?;
    chosen.sort_unstable_by(|&a, &b| preference(&groups[a], &groups[b]));
    let length = (1..chosen.len())
        .find(|&length| sets.is_found(&chosen[..length]))
        .unwrap_or(chosen.len());
    let chosen = chosen[..length].iter();
    Some(chosen.map(|&position| &groups[position]).collect())
}
