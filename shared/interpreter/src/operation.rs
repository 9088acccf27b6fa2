//! Operations of an interpreter, and the names that customizations and scripts give to them.

use std::fmt;

/// Operation of an interpreter, with the names of Karmada's `InterpreterOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Number of replicas and requirements of each.
    InterpretReplica,
    /// Components of a workload with several pod templates.
    InterpretComponent,
    /// The object with another number of replicas.
    ReviseReplica,
    /// Fields of the object in the member that survive an update.
    Retain,
    /// Status of the template from the statuses of the members.
    AggregateStatus,
    /// Objects that must be propagated together with the object.
    InterpretDependency,
    /// The part of the status that is reported to the control plane.
    InterpretStatus,
    /// Health of the object.
    InterpretHealth,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 8] = [
        Self::InterpretReplica,
        Self::InterpretComponent,
        Self::ReviseReplica,
        Self::Retain,
        Self::AggregateStatus,
        Self::InterpretDependency,
        Self::InterpretStatus,
        Self::InterpretHealth,
    ];

    /// Returns the operation with a name of the API, such as `InterpretHealth`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_string() == name)
    }

    /// Returns the name of the function that a script defines for the operation.
    pub const fn function(self) -> &'static str {
        match self {
            Self::InterpretReplica => "GetReplicas",
            Self::InterpretComponent => "GetComponents",
            Self::ReviseReplica => "ReviseReplica",
            Self::Retain => "Retain",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretDependency => "GetDependencies",
            Self::InterpretStatus => "ReflectStatus",
            Self::InterpretHealth => "InterpretHealth",
        }
    }

    /// Returns the field of `spec.customizations` that holds the script for the operation.
    pub const fn field(self) -> &'static str {
        match self {
            Self::InterpretReplica => "replicaResource",
            Self::InterpretComponent => "componentResource",
            Self::ReviseReplica => "replicaRevision",
            Self::Retain => "retention",
            Self::AggregateStatus => "statusAggregation",
            Self::InterpretDependency => "dependencyInterpretation",
            Self::InterpretStatus => "statusReflection",
            Self::InterpretHealth => "healthInterpretation",
        }
    }

    /// Returns whether the answer is the object, changed.
    pub(crate) const fn changes_object(self) -> bool {
        matches!(
            self,
            Self::ReviseReplica | Self::Retain | Self::AggregateStatus
        )
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants have the names of the API.
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_the_names_of_the_api() {
        for operation in Operation::ALL {
            assert_eq!(Operation::named(&operation.to_string()), Some(operation));
            assert_eq!(Operation::ALL[operation.index()], operation);
        }
        assert_eq!(Operation::named("Prune"), None);
    }
}
