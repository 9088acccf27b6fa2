//! Workloads with copies on clusters that are silent.

use std::collections::BTreeSet;

use muster_control_plane::movement::eviction::explain;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::names::condition;

use super::{SILENT, Waiting, title};
use crate::leader::unjudged;

/// Returns a workload whose state is not known, with the reason why nothing moves it as far as one
/// is reported. `silent` are clusters that are silent while no leader judges that.
pub(super) fn of_silent(binding: &AnyBinding, silent: &BTreeSet<String>) -> Option<Waiting> {
    let conditions = &binding.status().conditions;
    let applied = conditions::get(conditions, condition::FULLY_APPLIED);
    let applied = applied.filter(|it| it.status == conditions::UNKNOWN);
    let on = binding.spec.copies().map(|it| &it.name);
    let on: Vec<&str> = on
        .filter(|it| silent.contains(*it))
        .map(String::as_str)
        .collect();
    if let Some(applied) = applied {
        let stays = conditions::get(conditions, explain::CONDITION);
        let stays = stays.filter(|it| explain::STAYING.contains(&it.reason.as_str()));
        let reported = Waiting::of(title(binding), stays.unwrap_or(applied));
        let since = Some(applied.last_transition_time.0);
        return Some(Waiting { since, ..reported });
    }
    (!on.is_empty()).then(|| Waiting {
        workload: title(binding),
        reason: SILENT.to_owned(),
        message: unjudged(&on),
        ..Waiting::default()
    })
}
