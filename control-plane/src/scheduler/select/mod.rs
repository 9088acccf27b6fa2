//! Choosing among the clusters that fit, under the spread constraints.
//!
//! Spreading by cluster and by region gives Karmada's results. Karmada only filters by zone and provider; here
//! they spread as regions do, see [`Spreading`].

mod by_cluster;
mod by_group;

use muster_shared::api::policy::SpreadConstraint;

use super::candidate::{Candidate, rank};

/// How constraints are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spreading {
    /// Every constraint that names a field is met by the result; an upper bound that is not given is none.
    #[default]
    EveryField,
    /// Karmada behaviour: only cluster and region constraints spread, the others merely ask for the field.
    ClusterAndRegion,
}

/// Why a selection is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Fewer clusters fit than the constraint asks for.
    #[error("the number of feasible clusters is less than spreadConstraint.MinGroups")]
    TooFewClusters,
    /// The best choice of that many clusters does not hold the replicas.
    #[error("no enough resource when selecting {0} clusters")]
    NotEnoughCapacity(usize),
    /// Fewer groups of this field exist than the constraint asks for.
    #[error("the number of feasible {0} is less than spreadConstraint.MinGroups")]
    TooFewGroups(Field),
    /// No allowed set of groups has as many clusters as the cluster constraint asks for.
    #[error("the number of clusters is less than the cluster spreadConstraint.MinGroups")]
    TooFewClustersInGroups,
    /// The chosen clusters would break another constraint.
    #[error("the clusters that meet the other spread constraints do not meet the one by {0}")]
    Conflicting(Field),
    /// The constraints name no field that spreads.
    #[error("just support cluster and region spread constraint")]
    Unsupported,
}

/// What a group of clusters has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The cluster itself.
    Cluster,
    /// `spec.region`
    Region,
    /// `spec.provider`
    Provider,
    /// `spec.zones`: a cluster may lie in several.
    Zone,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster",
            Self::Region => "region",
            Self::Provider => "provider",
            Self::Zone => "zone",
        })
    }
}

impl Field {
    /// The groups that the cluster belongs to.
    fn groups<'a>(self, candidate: &Candidate<'a>) -> &'a [String] {
        match self {
            Self::Cluster => candidate.cluster.cluster().metadata.name.as_slice(),
            Self::Region => candidate.cluster.region(),
            Self::Provider => candidate.cluster.provider(),
            Self::Zone => candidate.cluster.zones(),
        }
    }
}

/// How many groups of one field are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// At least so many.
    pub min: usize,
    /// At most so many.
    pub max: usize,
}

/// The spread constraints of a placement, by field; of several for one field the last counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    /// Constraint on the number of clusters.
    pub cluster: Option<Groups>,
    /// Constraint on the number of regions.
    pub region: Option<Groups>,
    /// Constraint on the number of zones.
    pub zone: Option<Groups>,
    /// Constraint on the number of providers.
    pub provider: Option<Groups>,
    /// Whether there is a constraint at all, one by label or by an unknown field included.
    pub any: bool,
}

impl Spread {
    /// Reads the constraints of a placement.
    ///
    /// A constraint without field and label counts clusters, as admission would have written. `minGroups` 0 is 1, and
    /// `maxGroups` 0 or absent is no upper bound; Karmada takes both literally, and so looks for a placement on
    /// nothing.
    pub fn of(constraints: &[SpreadConstraint], spreading: Spreading) -> Self {
        let mut spread = Self {
            any: !constraints.is_empty(),
            ..Self::default()
        };
        for constraint in constraints {
            let [min, max] = [constraint.min_groups, constraint.max_groups]
                .map(|bound| usize::try_from(bound).unwrap_or(0));
            let groups = match spreading {
                Spreading::EveryField => Groups {
                    min: min.max(1),
                    max: if max == 0 { usize::MAX } else { max },
                },
                Spreading::ClusterAndRegion => Groups { min, max },
            };
            let field = constraint
                .spread_by_field
                .as_ref()
                .map_or("", |field| field.as_str());
            match field {
                "" if constraint
                    .spread_by_label
                    .as_deref()
                    .unwrap_or_default()
                    .is_empty() =>
                {
                    spread.cluster = Some(groups);
                }
                "cluster" => spread.cluster = Some(groups),
                "region" => spread.region = Some(groups),
                "zone" => spread.zone = Some(groups),
                "provider" => spread.provider = Some(groups),
                _ => {}
            }
        }
        spread
    }
}

/// What the selection must be able to hold.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Replicas of the workload.
    pub replicas: i64,
    /// The whole number of replicas goes to each cluster, so that a lack of room in one is not made up by others;
    /// capacity then orders the clusters but refuses none (Karmada behaviour).
    pub duplicated: bool,
}

/// Chooses clusters, best first; the result may be empty only when `candidates` is.
///
/// # Errors
/// When the constraints cannot be met with these candidates.
pub fn select<'a>(
    mut candidates: Vec<Candidate<'a>>,
    spread: &Spread,
    load: Load,
    spreading: Spreading,
) -> Result<Vec<Candidate<'a>>, SelectError> {
    rank(&mut candidates);
    if !spread.any {
        return Ok(candidates);
    }
    let all_fields = spreading == Spreading::EveryField;
    let leading = [
        (Field::Region, spread.region),
        (Field::Provider, spread.provider.filter(|_| all_fields)),
        (Field::Zone, spread.zone.filter(|_| all_fields)),
    ]
    .into_iter()
    .find_map(|(field, groups)| Some((field, groups?)));
    let chosen = match (leading, spread.cluster) {
        (Some((field, mut groups)), clusters) => {
            // Each region and provider that is chosen takes a cluster.
            if let Some(clusters) = clusters.filter(|_| all_fields && field != Field::Zone) {
                groups.max = groups.max.min(clusters.max);
            }
            by_group::select(&candidates, field, groups, clusters, load)?
        }
        (None, Some(groups)) => by_cluster::select(candidates, groups, load)?,
        (None, None) => return Err(SelectError::Unsupported),
    };
    if all_fields {
        check(&chosen, spread)?;
    }
    Ok(chosen)
}

/// Only one field leads the choice; the constraints by the others are at least never broken.
fn check(selected: &[Candidate<'_>], spread: &Spread) -> Result<(), SelectError> {
    let constraints = [
        (Field::Cluster, spread.cluster),
        (Field::Region, spread.region),
        (Field::Provider, spread.provider),
        (Field::Zone, spread.zone),
    ];
    for (field, groups) in constraints {
        let Some(groups) = groups else { continue };
        let mut names: Vec<&String> = selected
            .iter()
            .flat_map(|candidate| field.groups(candidate))
            .collect();
        names.sort_unstable();
        names.dedup();
        if !(groups.min..=groups.max).contains(&names.len()) {
            return Err(SelectError::Conflicting(field));
        }
    }
    Ok(())
}
