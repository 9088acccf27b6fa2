//! New copies of workloads that are not created yet, as the conditions of bindings report them.

use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{DATA_PENDING, REMOVAL_PENDING};

/// Returns the conditions by which a new copy is not created yet: it waits for its data, or for the
/// removal of an old one.
pub(super) fn held_back(all: &[Condition]) -> impl Iterator<Item = &Condition> {
    let kinds = [REMOVAL_PENDING, DATA_PENDING].into_iter();
    let found = kinds.filter_map(|it| conditions::get(all, it));
    found.filter(|it| it.status == conditions::TRUE)
}
