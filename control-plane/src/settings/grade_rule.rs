//! Resources that a node of a grade is assumed to have: `--node-grades`.

use std::fmt;
use std::str::FromStr;

/// Estimate of the replicas that a node of a grade can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GradeRule {
    /// As many replicas as fit into the lower ends of the grade's ranges (Karmada behaviour): never
    /// too many.
    #[default]
    Minimums,
    /// As many as fit into the lower ends plus an equal share of what the nodes have beyond them.
    /// The grade of a node is that of its scarcest resource; how much it has of the others is in
    /// the totals that the agent reports. Resources that the grades do not have are counted by
    /// their totals.
    Averages,
    /// As many as fit into the lower ends, and at least one if that fits below the upper ends: the
    /// rule of the examples in Karmada's documentation of resource models.
    UpperBounds,
    /// Grades are ignored; only the totals of the cluster count (feature gate
    /// `CustomizedClusterResourceModeling` off).
    Ignored,
}

impl GradeRule {
    /// All rules.
    pub const ALL: [Self; 4] = [
        Self::Minimums,
        Self::Averages,
        Self::UpperBounds,
        Self::Ignored,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Minimums => "minimums",
            Self::Averages => "averages",
            Self::UpperBounds => "upper-bounds",
            Self::Ignored => "ignored",
        }
    }
}

impl fmt::Display for GradeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GradeRule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|rule| rule.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is none of {names}")
        })
    }
}

muster_shared::deserialize_parsed!(GradeRule);
