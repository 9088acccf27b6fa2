//! What each check of `--evict-plugins` looks at.
//!
//! A task is complete as soon as one enabled plugin passes. Not plugins, and always in force: a
//! cluster that left the fleet, `suppressDeletion`, and the policy's own grace period.

use muster_shared::api::binding::GracefulEvictionTask;

use super::assess::{Done, Situation};
use crate::settings::evict_plugin::{EvictPlugin, EvictPlugins};

/// Why a task is done, if any plugin in force passes.
pub fn any(
    plugins: EvictPlugins,
    task: &GracefulEvictionTask,
    situation: &Situation<'_>,
) -> Option<Done> {
    plugins
        .iter()
        .find_map(|plugin| check(plugin, task, situation))
}

/// Why a plugin ends a task, if it does.
fn check(
    plugin: EvictPlugin,
    task: &GracefulEvictionTask,
    situation: &Situation<'_>,
) -> Option<Done> {
    let back = situation.is_target(&task.from_cluster);
    match plugin {
        EvictPlugin::BackInResult => back.then_some(Done::BackInPlace),
        EvictPlugin::ResourceHealth => {
            let passes =
                task.suppress_deletion.is_none() && situation.is_replaced(&task.from_cluster);
            passes.then_some(if back {
                Done::BackInPlace
            } else {
                Done::Replaced
            })
        }
    }
}
