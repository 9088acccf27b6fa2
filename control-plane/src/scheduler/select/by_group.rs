//! Spreading by region, provider or zone: first the groups, then clusters of these groups.

use std::cmp::Ordering;

use super::{Axis, Candidate, Groups, Load, SelectError};

/// Weight of a replica that a group can hold against one point of cluster score (Karmada behaviour): capacity
/// decides between groups, locality between groups of equal capacity.
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

/// Chooses groups along `axis`, then clusters from them, from the ranked candidates. Without a cluster constraint each
/// group gets one cluster (Karmada behaviour).
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
    let chosen = Search::new(&found, groups, min_clusters)
        .best()
        .ok_or(SelectError::TooFewClustersInGroups)?;
    Ok(pick(
        candidates,
        &chosen,
        axis,
        clusters.map_or(0, |clusters| clusters.max),
    ))
}

/// One cluster of each group, then the best of the rest, up to `max` clusters.
fn pick<'a>(
    candidates: &[Candidate<'a>],
    chosen: &[&Group<'_>],
    axis: Axis<'_>,
    max: usize,
) -> Vec<Candidate<'a>> {
    // A cluster that lies in a zone that is not chosen would add a group.
    let inside = |position: usize| {
        axis.groups(&candidates[position])
            .iter()
            .all(|name| chosen.iter().any(|group| group.name == name))
    };
    let mut picked: Vec<usize> = Vec::with_capacity(chosen.len());
    for group in chosen {
        let covered = group.members.iter().any(|member| picked.contains(member));
        if let Some(first) = group.members.iter().copied().find(|&member| inside(member))
            && !covered
        {
            picked.push(first);
        }
    }
    let mut rest: Vec<usize> = chosen
        .iter()
        .flat_map(|group| group.members.iter().copied())
        .filter(|&member| !picked.contains(&member) && inside(member))
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

/// The groups with their scores, in the order in which sets of them are tried: small groups first.
fn group<'a>(
    candidates: &[Candidate<'a>],
    axis: Axis<'_>,
    groups: Groups,
    min_clusters: usize,
    load: Load,
) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    for (position, candidate) in candidates.iter().enumerate() {
        for name in axis.groups(candidate) {
            match found.iter_mut().find(|group| group.name == name) {
                Some(group) => group.members.push(position),
                None => found.push(Group {
                    name,
                    members: vec![position],
                    score: 0,
                }),
            }
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

/// The higher score first, then the name.
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

/// Prefers the group that holds its share of the replicas, then the one that does so with the better clusters.
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

/// The depth-first search for the best set of groups.
///
/// A set is complete as soon as it has enough groups and clusters, and is then not extended. The best complete
/// set has the highest total score, then the most clusters, and is found first. Sets that cannot beat the best
/// one any more are left out, so that many regions do not cost exponential time.
struct Search<'g, 'a> {
    /// In the order in which they are tried.
    groups: &'g [Group<'a>],
    limits: Groups,
    min_clusters: usize,
    /// Highest score and largest size among the groups from each position on.
    ahead: Vec<(i64, usize)>,
    path: Vec<usize>,
    best: Option<(i64, usize, Vec<usize>)>,
}

impl<'g, 'a> Search<'g, 'a> {
    fn new(groups: &'g [Group<'a>], limits: Groups, min_clusters: usize) -> Self {
        let mut ahead = vec![(0, 0); groups.len() + 1];
        for (position, group) in groups.iter().enumerate().rev() {
            let (score, size) = ahead[position + 1];
            ahead[position] = (score.max(group.score), size.max(group.size()));
        }
        Self {
            groups,
            limits,
            min_clusters,
            ahead,
            path: Vec::new(),
            best: None,
        }
    }

    /// The best set in the order of preference, cut to its shortest complete beginning.
    fn best(mut self) -> Option<Vec<&'g Group<'a>>> {
        self.extend(0, 0, 0);
        let (_, _, mut chosen) = self.best.take()?;
        chosen.sort_unstable_by(|&a, &b| preference(&self.groups[a], &self.groups[b]));
        let length = (1..chosen.len())
            .find(|&length| self.is_found(&chosen[..length]))
            .unwrap_or(chosen.len());
        Some(
            chosen[..length]
                .iter()
                .map(|&position| &self.groups[position])
                .collect(),
        )
    }

    fn extend(&mut self, start: usize, score: i64, size: usize) {
        for position in start..self.groups.len() {
            if !self.may_improve(position, score, size) {
                continue;
            }
            let group = &self.groups[position];
            let (score, size) = (score + group.score, size + group.size());
            self.path.push(position);
            if self.is_complete(self.path.len(), size) {
                if self
                    .best
                    .as_ref()
                    .is_none_or(|best| (score, size) > (best.0, best.1))
                {
                    self.best = Some((score, size, self.path.clone()));
                }
            } else if self.path.len() < self.limits.max {
                self.extend(position + 1, score, size);
            }
            self.path.pop();
        }
    }

    const fn is_complete(&self, length: usize, size: usize) -> bool {
        self.limits.min <= length && length <= self.limits.max && size >= self.min_clusters
    }

    /// Whether a set that goes on with `position` or a later group may beat the best one.
    fn may_improve(&self, position: usize, score: i64, size: usize) -> bool {
        let Some((best_score, best_size, _)) = &self.best else {
            return true;
        };
        let (top_score, top_size) = self.ahead[position];
        let room = (self.limits.max - self.path.len()).min(self.groups.len() - position);
        let steps = i64::try_from(room).unwrap_or(i64::MAX);
        let bound = (
            score.saturating_add(steps.saturating_mul(top_score)),
            size.saturating_add(room.saturating_mul(top_size)),
        );
        bound > (*best_score, *best_size)
    }

    /// Whether the search would have recorded exactly this set: it is complete, and was not before its last group.
    fn is_found(&self, set: &[usize]) -> bool {
        let size: usize = set
            .iter()
            .map(|&position| self.groups[position].size())
            .sum();
        let last = set
            .iter()
            .max()
            .map_or(0, |&position| self.groups[position].size());
        self.is_complete(set.len(), size) && !self.is_complete(set.len() - 1, size - last)
    }
}
