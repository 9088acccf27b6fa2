//! Selects among the clusters that passed the filters, under the spread constraints.
//!
//! Results for constraints by cluster and by region are Karmada's. Karmada only filters by zone and
//! provider, and rejects labels; here they work like regions.

mod by_cluster;
mod by_fields;
mod by_group;
mod sets;

use muster_shared::api::policy::SpreadConstraint;

use super::Behaviour;
use super::candidate::{Candidate, rank};
use by_fields::Growth;

/// Reason why a selection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Fewer clusters fit than the minimum.
    #[error("the number of feasible clusters is less than spreadConstraint.MinGroups")]
    TooFewClusters,
    /// The best selection of that many clusters does not have the capacity.
    #[error("no enough resource when selecting {0} clusters")]
    NotEnoughCapacity(usize),
    /// There are fewer groups of this field than the minimum.
    #[error("the number of feasible {0} is less than spreadConstraint.MinGroups")]
    TooFewGroups(Field),
    /// No set of groups has the minimum number of clusters.
    #[error("the number of clusters is less than the cluster spreadConstraint.MinGroups")]
    TooFewClustersInGroups,
    /// The selected clusters would violate another constraint.
    #[error("the clusters that meet the other spread constraints do not meet the one by {0}")]
    Conflicting(Field),
    /// The constraints have no field by which clusters spread.
    #[error("just support cluster and region spread constraint")]
    Unsupported,
}

/// Field by which clusters are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Each cluster is a group.
    Cluster,
    /// `spec.region` of the clusters.
    Region,
    /// `spec.provider` of the clusters.
    Provider,
    /// `spec.zones` of the clusters, of which each may have several.
    Zone,
    /// Value of a label of the clusters.
    Label,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster",
            Self::Region => "region",
            Self::Provider => "provider",
            Self::Zone => "zone",
            Self::Label => "label",
        })
    }
}

/// A field, and for labels which one.
#[derive(Debug, Clone, Copy)]
struct Axis<'s> {
    field: Field,
    label: &'s str,
}

impl Axis<'_> {
    /// Returns the groups that the cluster belongs to.
    fn groups<'a>(self, candidate: &Candidate<'a>) -> &'a [String] {
        let cluster = candidate.cluster;
        match self.field {
            Field::Cluster => cluster.cluster().metadata.name.as_slice(),
            Field::Region => cluster.region(),
            Field::Provider => cluster.provider(),
            Field::Zone => cluster.zones(),
            Field::Label => cluster.label(self.label),
        }
    }
}

/// Numbers of groups of one field that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// At least so many.
    pub min: usize,
    /// At most so many.
    pub max: usize,
}

/// The spread constraints of a placement, by field; of several for one field the last counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread<'s> {
    /// Constraint on the number of clusters.
    pub cluster: Option<Groups>,
    /// Constraint on the number of regions.
    pub region: Option<Groups>,
    /// Constraint on the number of zones.
    pub zone: Option<Groups>,
    /// Constraint on the number of providers.
    pub provider: Option<Groups>,
    /// A label, and the constraint on the number of its values.
    pub label: Option<(&'s str, Groups)>,
    /// Whether there is a constraint at all, one by an unknown field included.
    pub any: bool,
}

impl<'s> Spread<'s> {
    /// Reads the constraints of a placement.
    ///
    /// A constraint without field and label counts clusters, as admission would have written.
    /// `minGroups` 0 is 1, and `maxGroups` 0 or absent is no upper bound; Karmada takes both
    /// literally, and so searches for a placement on nothing.
    pub fn of(constraints: &'s [SpreadConstraint], behaviour: Behaviour) -> Self {
        let mut spread = Self {
            any: !constraints.is_empty(),
            ..Self::default()
        };
        for constraint in constraints {
            let [min, max] = [constraint.min_groups, constraint.max_groups]
                .map(|bound| usize::try_from(bound).unwrap_or(0));
            let groups = match behaviour {
                Behaviour::Muster => Groups {
                    min: min.max(1),
                    max: if max == 0 { usize::MAX } else { max },
                },
                Behaviour::Karmada => Groups { min, max },
            };
            let field = constraint
                .spread_by_field
                .as_ref()
                .map_or("", |field| field.as_str());
            let label = constraint.spread_by_label.as_deref().unwrap_or_default();
            match field {
                "" if label.is_empty() => spread.cluster = Some(groups),
                "" if behaviour == Behaviour::Muster => spread.label = Some((label, groups)),
                "cluster" => spread.cluster = Some(groups),
                "region" => spread.region = Some(groups),
                "zone" => spread.zone = Some(groups),
                "provider" => spread.provider = Some(groups),
                _ => {}
            }
        }
        spread
    }

    /// Returns the constraints that there are, the one that leads the choice first.
    fn constraints(&self) -> Vec<(Axis<'s>, Groups)> {
        let (label, labels) = self.label.unzip();
        let label = label.unwrap_or_default();
        [
            (Field::Region, self.region),
            (Field::Provider, self.provider),
            (Field::Zone, self.zone),
            (Field::Label, labels),
            (Field::Cluster, self.cluster),
        ]
        .into_iter()
        .filter_map(|(field, groups)| Some((Axis { field, label }, groups?)))
        .collect()
    }
}

/// Load that the selection must be able to hold.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Replicas of the workload.
    pub replicas: i64,
    /// Whether a reschedule was requested, so that what is placed need not stay.
    pub fresh: bool,
    /// The whole number of replicas goes to each cluster, so that a lack of room in one is not made
    /// up by others; capacity then orders the clusters but refuses none (Karmada behaviour).
    pub duplicated: bool,
    /// Whether clusters are being left, so that there may be copies to replace.
    pub replacing: bool,
}

impl Load {
    /// Returns whether what these candidates hold is a placement that needs no more room: copies of
    /// the whole, or all replicas.
    fn is_held_by<'c, 'a: 'c>(self, holders: impl Iterator<Item = &'c Candidate<'a>>) -> bool {
        let (mut copies, mut replicas) = (0, 0);
        for holder in holders {
            copies += 1;
            replicas += holder.held_replicas();
        }
        copies > 0 && (self.duplicated || replicas >= self.replicas)
    }

    fn fits_into(self, chosen: &[Candidate<'_>]) -> bool {
        let room = || -> i64 { chosen.iter().map(Candidate::available).sum() };
        self.duplicated || room() >= self.replicas
    }
}

/// Chooses clusters, best first; the result may be empty only when `candidates` is.
///
/// # Errors
/// When the constraints cannot be met with these candidates.
pub fn select<'a>(
    mut candidates: Vec<Candidate<'a>>,
    spread: &Spread<'_>,
    load: Load,
    behaviour: Behaviour,
) -> Result<Vec<Candidate<'a>>, SelectError> {
    rank(&mut candidates);
    if !spread.any {
        return Ok(candidates);
    }
    let all_fields = behaviour == Behaviour::Muster;
    let spreads = |field| match field {
        Field::Cluster => false,
        Field::Region => true,
        Field::Provider | Field::Zone | Field::Label => all_fields,
    };
    let constraints = spread.constraints();
    let leading = constraints.iter().find(|(axis, _)| spreads(axis.field));
    match (leading, spread.cluster) {
        (Some((axis, groups)), clusters) => {
            let mut groups = *groups;
            // Each group that is chosen takes a cluster, but for zones, of which a cluster may have
            // several.
            if let Some(clusters) = clusters.filter(|_| all_fields && axis.field != Field::Zone) {
                groups.max = groups.max.min(clusters.max);
            }
            if !all_fields {
                return by_group::select(&candidates, *axis, groups, clusters, load);
            }
            let more = clusters.map_or(0, |clusters| clusters.max);
            let by_fields = |kept: &[usize], growth| {
                by_fields::select(&candidates, &constraints, kept, more, growth)
            };
            let kept = if load.fresh {
                Vec::new()
            } else {
                holding(&candidates)
            };
            // Groups are scored by what they hold as well, so that a second choice among them may
            // differ from the first although nothing happened in between. Where nothing needs room,
            // what is placed is the choice as far as the constraints allow, and it only grows in
            // the groups that it is in: these the first choice has filled, so that it stays the
            // same.
            if load.is_held_by(kept.iter().map(|&position| &candidates[position])) {
                // In a failover there are to be as many as if the choice were made anew.
                let least = if load.replacing {
                    let anew: Vec<_> = candidates.iter().map(Candidate::unheld).collect();
                    let anew = by_group::select(&anew, *axis, groups, clusters, load);
                    anew.map_or(0, |anew| anew.len())
                } else {
                    0
                };
                if let Some(choice) = by_fields(&kept, Growth::InItsGroups(least)) {
                    return Ok(choice);
                }
            }
            // What the leading field chose may break other constraints that another choice would
            // keep; and it may give up clusters that hold the workload without need.
            let led = by_group::select(&candidates, *axis, groups, clusters, load);
            let led = led.and_then(|chosen| check(chosen, &constraints));
            let chosen = led.or_else(|error| by_fields(&[], Growth::Anywhere).ok_or(error))?;
            if load.fresh || holding(&chosen).len() == kept.len() {
                return Ok(chosen);
            }
            let keeping =
                by_fields(&kept, Growth::Anywhere).filter(|choice| load.fits_into(choice));
            Ok(keeping.unwrap_or(chosen))
        }
        (None, Some(groups)) => by_cluster::select(candidates, groups, load),
        (None, None) => Err(SelectError::Unsupported),
    }
}

/// Returns the positions of the candidates that hold the workload.
fn holding(candidates: &[Candidate<'_>]) -> Vec<usize> {
    let all = candidates.iter().enumerate();
    all.filter(|(_, candidate)| candidate.held.is_some())
        .map(|(position, _)| position)
        .collect()
}

/// Returns the chosen clusters, if they keep all constraints.
fn check<'a>(
    chosen: Vec<Candidate<'a>>,
    constraints: &[(Axis<'_>, Groups)],
) -> Result<Vec<Candidate<'a>>, SelectError> {
    for (axis, groups) in constraints {
        let names = chosen.iter().flat_map(|candidate| axis.groups(candidate));
        let mut names: Vec<&String> = names.collect();
        names.sort_unstable();
        names.dedup();
        if !(groups.min..=groups.max).contains(&names.len()) {
            return Err(SelectError::Conflicting(axis.field));
        }
    }
    Ok(chosen)
}
