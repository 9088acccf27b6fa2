//! Enabled plugins of the scheduler: `--plugins`, with the names of Karmada's scheduler.

use muster_shared::settings::{Error, Words};

use super::filter::ReturnRule;
use crate::settings::SCHEDULER_PLUGINS;

/// Rule of the scheduler that can be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Filter: the cluster serves the kind.
    ApiEnablement,
    /// Filter: the taints of the cluster are tolerated.
    TaintToleration,
    /// Filter: the placement selects the cluster.
    ClusterAffinity,
    /// Filter: the cluster has the fields of the spread constraints.
    SpreadConstraint,
    /// Filter: the workload is not being evicted from the cluster.
    ClusterEviction,
    /// Score: clusters that have the workload are preferred.
    ClusterLocality,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ApiEnablement,
        Self::TaintToleration,
        Self::ClusterAffinity,
        Self::SpreadConstraint,
        Self::ClusterEviction,
        Self::ClusterLocality,
    ];

    /// Returns the name, as Karmada has it.
    pub const fn name(self) -> &'static str {
        SCHEDULER_PLUGINS[self as usize]
    }
}

/// The rules in force; all of them unless somebody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugins([bool; Plugin::ALL.len()]);

impl Default for Plugins {
    fn default() -> Self {
        Self([true; Plugin::ALL.len()])
    }
}

impl Plugins {
    /// Reads a list of `*`, `name` and `-name`, of which the later words count (Karmada behaviour).
    ///
    /// # Errors
    /// When a name is unknown: a rule that somebody counts on would not hold.
    pub fn parse(words: &Words) -> Result<Self, Error> {
        words.chosen("plugins", &SCHEDULER_PLUGINS).map(Self)
    }

    /// Returns whether a rule is in force.
    pub const fn has(self, plugin: Plugin) -> bool {
        self.0[plugin as usize]
    }

    /// Returns when a cluster may take back what leaves it. Who asks for the filter by its name,
    /// rather than by `*`, means the classic one of Karmada.
    pub fn return_rule(self, words: &Words) -> ReturnRule {
        let name = Plugin::ClusterEviction.name();
        if !self.has(Plugin::ClusterEviction) {
            ReturnRule::Always
        } else if words.0.iter().any(|word| word == name) {
            ReturnRule::TaskDone
        } else {
            ReturnRule::Recovered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_force_as_the_last_word_on_them_says() {
        use ReturnRule::{Always, Recovered, TaskDone};
        for (text, affinity, return_rule) in [
            ("*", true, Recovered),
            ("*,-ClusterAffinity", false, Recovered),
            ("-ClusterAffinity,*", true, Recovered),
            ("*,ClusterEviction", true, TaskDone),
            ("*,-ClusterEviction", true, Always),
            ("APIEnablement,ClusterAffinity", true, Always),
            ("", false, Always),
        ] {
            let words: Words = text.parse().unwrap();
            let plugins = Plugins::parse(&words).unwrap();
            assert_eq!(plugins.has(Plugin::ClusterAffinity), affinity, "{text}");
            assert_eq!(plugins.return_rule(&words), return_rule, "{text}");
        }
        assert_eq!(
            Plugins::parse(&"*".parse().unwrap()).unwrap(),
            Plugins::default()
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = Plugins::parse(&"*,-Luck".parse().unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("Luck") && text.contains("ClusterLocality"),
            "{text}"
        );
    }
}
