//! What each check of `--evict-plugins` reads.
//!
//! A task is complete as soon as one enabled plugin passes. Not plugins, and always in force: a
//! cluster that left the fleet, `suppressDeletion`, and the policy's own grace period.

use super::assess::{Age, Done, Situation};
use crate::settings::evict_plugin::EvictPlugins;

/// Returns why a task is done, if any plugin that is enabled ends it.
pub fn any(plugins: EvictPlugins, task: &Age<'_>, situation: &Situation<'_>) -> Option<Done> {
    let back = situation.is_target(&task.task.from_cluster);
    let is_replaced = || task.task.suppress_deletion.is_none() && situation.is_replaced(task);
    let passes = plugins.back_in_result && back || plugins.resource_health && is_replaced();
    passes.then_some(if back {
        Done::BackInPlace
    } else {
        Done::Replaced
    })
}
