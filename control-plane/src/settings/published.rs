//! The settings that decide what moves, where and how fast, as flags. The leader publishes them on
//! its lease, so that tools answer by the settings of the running control plane.

use std::fmt::Display;

use anyhow::Context as _;
use clap::{Args as _, FromArgMatches as _};

use super::{Error, Settings};

/// Returns fields of the settings, each with its name and its value as a text.
macro_rules! fields {
    ($settings:expr, $($field:ident: $text:ident),*) => {
        [$((stringify!($field), $text(&$settings.$field))),*]
    };
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "`if_set` has none where nothing is set"
)]
fn always(value: &impl Display) -> Option<String> {
    Some(value.to_string())
}

#[allow(clippy::ref_option)] // the macro passes all fields alike
fn if_set(value: &Option<impl Display>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

impl Settings {
    /// Returns the settings that decide what moves as flags, those with default values left out.
    pub fn decisive(&self) -> Vec<String> {
        let usual = Self::default();
        let gates: Vec<String> = self
            .gates()
            .into_iter()
            .filter(|(name, on)| usual.gates().get(name) != Some(on))
            .map(|(name, on)| format!("{name}={on}"))
            .collect();
        let mut flags = Vec::new();
        if !gates.is_empty() {
            flags.push(format!("--feature-gates={}", gates.join(",")));
        }
        let own = self.values().into_iter().zip(usual.values());
        let changed = own.filter(|(own, usual)| own != usual);
        flags.extend(changed.filter_map(|((field, value), _)| {
            let name = field.replace('_', "-");
            Some(format!("--{name}={}", value?))
        }));
        flags
    }

    /// Returns the settings that decide, by the names of their fields.
    fn values(&self) -> [(&'static str, Option<String>); 22] {
        fields!(
            self,
            controllers: always,
            cluster_monitor_grace_period: always,
            cluster_failure_threshold: always,
            failover_eviction_timeout: if_set,
            default_not_ready_toleration_seconds: if_set,
            default_unreachable_toleration_seconds: if_set,
            enable_taint_manager: always,
            enable_no_execute_taint_eviction: always,
            no_execute_taint_eviction_purge_mode: always,
            condition_taints: always,
            preview_cluster_taint_policies: always,
            failback: always,
            failback_after: always,
            failback_window: always,
            resource_eviction_rate: always,
            secondary_resource_eviction_rate: always,
            unhealthy_cluster_threshold: always,
            large_cluster_num_threshold: always,
            evict_plugins: always,
            scheduler_name: always,
            plugins: always,
            node_grades: always
        )
    }

    /// Returns the settings of a command line of flags, and checks them.
    ///
    /// # Errors
    /// When a flag or its value is refused.
    pub fn of_flags(flags: &[String]) -> anyhow::Result<Self> {
        let command =
            Self::augment_args(clap::Command::new("muster-control-plane")).no_binary_name(true);
        let matches = command.try_get_matches_from(flags)?;
        let settings = Self::from_arg_matches(&matches)?;
        let checked: Result<(), Error> = settings.check();
        checked.context("the flags of the control plane")?;
        Ok(settings)
    }

    /// Returns the settings of published flags, and the flags that this version does not accept.
    pub fn of_published(flags: &[String]) -> (Self, Vec<String>) {
        let (known, unknown): (Vec<String>, Vec<String>) = flags
            .iter()
            .cloned()
            .partition(|flag| Self::of_flags(std::slice::from_ref(flag)).is_ok());
        match Self::of_flags(&known) {
            Ok(settings) => (settings, unknown),
            // Each is accepted by itself and all of them are not.
            Err(_) => (Self::default(), flags.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_decides_is_published_and_read_back() {
        for flags in [
            "",
            "--feature-gates=Failover=true",
            "--feature-gates=Failover=true,PropagateDeps=false --resource-eviction-rate=5",
            "--controllers=*,-taintmanager --failover-eviction-timeout=5m0s --default-not-ready-toleration-seconds=30 \
             --default-unreachable-toleration-seconds=0 --enable-taint-manager=false --enable-no-execute-taint-eviction=false \
             --no-execute-taint-eviction-purge-mode=Directly --resource-eviction-rate=0.25 --secondary-resource-eviction-rate=0 \
             --unhealthy-cluster-threshold=0.9 --large-cluster-num-threshold=3 --evict-plugins=ResourceHealth \
             --scheduler-name=other --plugins=*,-ClusterLocality --node-grades=averages",
        ] {
            let settings = Settings::of_flags(&words(flags)).unwrap();
            let published = settings.decisive();
            let (read, unknown) = Settings::of_published(&published);
            assert_eq!(unknown, Vec::<String>::new(), "{flags}");
            assert_eq!(read.decisive(), published, "{flags}");
            assert_eq!(published.len(), words(flags).len(), "{published:?}");
            assert_eq!(read.gates(), settings.gates(), "{flags}");
        }
    }

    #[test]
    fn a_flag_of_another_version_is_named_and_the_others_hold() {
        let flags = words("--resource-eviction-rate=5 --of-tomorrow=1");
        let (settings, unknown) = Settings::of_published(&flags);
        assert_eq!(unknown, ["--of-tomorrow=1"]);
        assert_eq!(settings.decisive(), ["--resource-eviction-rate=5"]);
    }

    #[test]
    fn where_files_are_and_who_connects_is_not_published() {
        let flags = words("--kubeconfig=/secret --leader-elect=false");
        assert!(Settings::of_flags(&flags).unwrap().decisive().is_empty());
    }
}
