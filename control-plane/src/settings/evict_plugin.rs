//! Checks that may complete a graceful eviction task: `--evict-plugins` (from the proposal).

use muster_shared::settings::{Error, Words};

/// Name of the flag.
const FLAG: &str = "evict-plugins";

/// Names of the plugins, in the order of the fields of [`EvictPlugins`].
const NAMES: [&str; 2] = ["BackInResult", "ResourceHealth"];

/// The plugins in force; all of them unless the flag says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictPlugins {
    /// The scheduler chose the cluster again.
    pub back_in_result: bool,
    /// Every chosen cluster reports a healthy copy, and at least one is available now.
    pub resource_health: bool,
}

impl Default for EvictPlugins {
    fn default() -> Self {
        Self {
            back_in_result: true,
            resource_health: true,
        }
    }
}

impl EvictPlugins {
    /// Reads a list of `*`, `name` and `-name`, of which the later words count.
    ///
    /// # Errors
    /// When a name is unknown, or when no plugin is left: no old copy would ever be removed.
    pub fn parse(words: &Words) -> Result<Self, Error> {
        let [back_in_result, resource_health] = words.chosen(FLAG, &NAMES)?;
        if back_in_result || resource_health {
            return Ok(Self {
                back_in_result,
                resource_health,
            });
        }
        let known = NAMES.join(", ");
        Err(Error::invalid(
            FLAG,
            format!("without one no old copy would ever be removed; known are *, {known}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<[bool; 2], String> {
        let words: Words = text.parse().unwrap();
        let plugins = EvictPlugins::parse(&words).map_err(|error| error.to_string())?;
        Ok([plugins.back_in_result, plugins.resource_health])
    }

    #[test]
    fn plugins_are_named_and_switched_each_by_itself() {
        for (text, expected) in [
            ("*", [true, true]),
            ("ResourceHealth,BackInResult", [true, true]),
            ("ResourceHealth", [false, true]),
            ("BackInResult", [true, false]),
            ("*,-ResourceHealth", [true, false]),
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
