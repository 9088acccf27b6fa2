//! Checks that may complete a graceful eviction task: `--evict-plugins` (from the proposal).
//!
//! A task is complete as soon as one enabled plugin passes. A new check is a new variant of
//! [`Plugin`]. Not plugins, and always in force: a cluster that left the fleet, `suppressDeletion`,
//! and the policy's own grace period.

use std::fmt;

use muster_shared::api::binding::GracefulEvictionTask;
use muster_shared::settings::{Error, Words};

use super::assess::{Done, Situation};
use crate::settings::{self, EVICT_PLUGINS};

/// Check that can complete a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// The scheduler chose the cluster again.
    BackInResult,
    /// Every chosen cluster reports a healthy copy, and at least one is available now.
    ResourceHealth,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::BackInResult, Self::ResourceHealth];

    /// The name in `--evict-plugins`.
    pub const fn name(self) -> &'static str {
        EVICT_PLUGINS[self as usize]
    }

    /// Why the check ends a task, if it does.
    pub fn check(self, task: &GracefulEvictionTask, situation: &Situation<'_>) -> Option<Done> {
        let back = situation.is_target(&task.from_cluster);
        match self {
            Self::BackInResult => back.then_some(Done::BackInPlace),
            Self::ResourceHealth => {
                let passes = task.suppress_deletion.is_none() && situation.is_replaced();
                passes.then_some(if back {
                    Done::BackInPlace
                } else {
                    Done::Replaced
                })
            }
        }
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The plugins in force; all of them unless somebody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugins([bool; Plugin::ALL.len()]);

impl Default for Plugins {
    fn default() -> Self {
        Self([true; Plugin::ALL.len()])
    }
}

impl Plugins {
    /// Reads a list of `*`, `name` and `-name`, of which the later words count.
    ///
    /// # Errors
    /// When a name is unknown, or when no plugin is left: no old copy would ever be removed.
    pub fn parse(words: &Words) -> Result<Self, Error> {
        settings::evict_plugins(words).map(Self)
    }

    /// The plugins in force.
    pub fn iter(&self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL
            .into_iter()
            .zip(self.0)
            .filter_map(|(plugin, on)| on.then_some(plugin))
    }

    /// Why a task is done, if any plugin passes.
    pub fn any(self, task: &GracefulEvictionTask, situation: &Situation<'_>) -> Option<Done> {
        self.iter().find_map(|plugin| plugin.check(task, situation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Plugin>, String> {
        let words: Words = text.parse().unwrap();
        let plugins = Plugins::parse(&words).map_err(|error| error.to_string())?;
        Ok(plugins.iter().collect())
    }

    #[test]
    fn plugins_are_named_and_switched_each_by_itself() {
        use Plugin::{BackInResult, ResourceHealth};
        for (text, expected) in [
            ("*", vec![BackInResult, ResourceHealth]),
            (
                "ResourceHealth,BackInResult",
                vec![BackInResult, ResourceHealth],
            ),
            ("ResourceHealth", vec![ResourceHealth]),
            ("BackInResult", vec![BackInResult]),
            ("*,-ResourceHealth", vec![BackInResult]),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_plugin_and_no_plugin_at_all_are_refused_with_the_known_names() {
        for text in ["", "Hope", "*,-Hope", "*,-ResourceHealth,-BackInResult"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("evict-plugins"), "{text:?}: {refused}");
            assert!(refused.contains("ResourceHealth"), "{text:?}: {refused}");
        }
    }
}
