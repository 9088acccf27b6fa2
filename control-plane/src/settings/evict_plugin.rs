//! Checks that may complete a graceful eviction task: `--evict-plugins` (from the proposal).

use muster_shared::settings::{Error, Words};

/// Name of the flag.
const FLAG: &str = "evict-plugins";

/// Check that can complete a task. A new one is a variant here, which [`Self::ALL`] lists and the
/// graceful eviction controller carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictPlugin {
    /// The scheduler chose the cluster again.
    BackInResult,
    /// Every chosen cluster reports a healthy copy, and at least one is available now.
    ResourceHealth,
}

impl EvictPlugin {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 2] = [Self::BackInResult, Self::ResourceHealth];

    /// Returns the name in `--evict-plugins`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackInResult => "BackInResult",
            Self::ResourceHealth => "ResourceHealth",
        }
    }
}

/// The plugins in force; all of them unless the flag says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictPlugins([bool; EvictPlugin::ALL.len()]);

impl Default for EvictPlugins {
    fn default() -> Self {
        Self([true; EvictPlugin::ALL.len()])
    }
}

impl EvictPlugins {
    /// Reads a list of `*`, `name` and `-name`, of which the later words count.
    ///
    /// # Errors
    /// When a name is unknown, or when no plugin is left: no old copy would ever be removed.
    pub fn parse(words: &Words) -> Result<Self, Error> {
        let names = EvictPlugin::ALL.map(EvictPlugin::name);
        let chosen = words.chosen(FLAG, &names)?;
        if chosen.contains(&true) {
            return Ok(Self(chosen));
        }
        let known = names.join(", ");
        Err(Error::invalid(
            FLAG,
            format!("without one no old copy would ever be removed; known are *, {known}"),
        ))
    }

    /// Returns the plugins in force.
    pub fn iter(&self) -> impl Iterator<Item = EvictPlugin> {
        EvictPlugin::ALL
            .into_iter()
            .zip(self.0)
            .filter_map(|(plugin, on)| on.then_some(plugin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<EvictPlugin>, String> {
        let words: Words = text.parse().unwrap();
        let plugins = EvictPlugins::parse(&words).map_err(|error| error.to_string())?;
        Ok(plugins.iter().collect())
    }

    #[test]
    fn plugins_are_named_and_switched_each_by_itself() {
        use EvictPlugin::{BackInResult, ResourceHealth};
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
