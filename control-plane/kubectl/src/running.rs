//! The settings of the running control plane, which its leader publishes on its lease.

use muster_control_plane::settings::{FAILOVER, Settings};
use muster_shared::client;
use muster_shared::k8s::{Api, Client, Lease};
use muster_shared::self_report::LeaderReport;
use serde::Serialize;

/// Source of settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Source {
    /// Flags behind `--`.
    CommandLine,
    /// The lease of the leader.
    Leader,
    /// The gates by the lease of the leader, of a version that publishes no more; the defaults.
    Gates,
    /// The defaults: no leader publishes any.
    #[default]
    Defaults,
}

/// Settings by which a command answers.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub settings: Settings,
    pub source: Source,
    /// Published flags that this version does not accept.
    pub unknown: Vec<String>,
}

impl Running {
    /// Returns the settings by the flags that a command was given or, without any, by the lease of
    /// the leader.
    ///
    /// # Errors
    /// When the flags of the command are refused.
    pub fn of(flags: &[String], lease: Option<&Lease>) -> anyhow::Result<Self> {
        let known = |settings, source| Self {
            settings,
            source,
            unknown: Vec::new(),
        };
        if !flags.is_empty() {
            return Ok(known(Settings::of_flags(flags)?, Source::CommandLine));
        }
        let Some(report) = lease.and_then(LeaderReport::of) else {
            return Ok(known(Settings::default(), Source::Defaults));
        };
        let (flags, source) = if let Some(flags) = report.flags {
            (flags, Source::Leader)
        } else {
            let gates = report.feature_gates.iter();
            let gates = gates.map(|(name, on)| format!("--feature-gates={name}={on}"));
            // One by one, so that an unknown gate costs no other; the last of them would win.
            let known: Vec<String> = gates
                .filter(|flag| Settings::of_flags(std::slice::from_ref(flag)).is_ok())
                .map(|flag| flag["--feature-gates=".len()..].to_owned())
                .collect();
            let flag = format!("--feature-gates={}", known.join(","));
            (vec![flag], Source::Gates)
        };
        let (settings, unknown) = Settings::of_published(&flags);
        Ok(Self {
            settings,
            source,
            unknown,
        })
    }

    /// Reads them. A lease that cannot be read is as none: the source says so.
    ///
    /// # Errors
    /// When the flags of the command are refused.
    pub async fn read(client: &Client, flags: &[String]) -> anyhow::Result<Self> {
        let given = Self::of(flags, None)?;
        if given.source == Source::CommandLine {
            return Ok(given);
        }
        Self::of(
            flags,
            lease(client, &given.settings).await.ok().flatten().as_ref(),
        )
    }

    /// Returns the settings with failover on, unless the command line said what they are, and
    /// whether it is off in the running control plane.
    pub fn with_failover(&self) -> anyhow::Result<(Settings, bool)> {
        let settings = &self.settings;
        if self.source == Source::CommandLine || settings.gate(&FAILOVER) {
            return Ok((settings.clone(), false));
        }
        let mut gates = settings.gates();
        gates.insert(FAILOVER.name.to_owned(), true);
        let gates: Vec<String> = gates
            .iter()
            .map(|(name, on)| format!("{name}={on}"))
            .collect();
        let others = settings.decisive().into_iter();
        let others = others.filter(|flag| !flag.starts_with("--feature-gates="));
        let on = [format!("--feature-gates={}", gates.join(","))];
        let flags: Vec<String> = others.chain(on).collect();
        Ok((Settings::of_flags(&flags)?, self.source != Source::Defaults))
    }

    /// Returns why no taint moves anything, that of a drain included; `None` if taints do.
    pub fn ignores_taints(&self) -> Option<&'static str> {
        let is_off = !self.settings.runs("taintmanager");
        is_off.then_some(
            "the control plane runs without the controller taintmanager (--controllers, --enable-taint-manager), so that no taint moves anything, nor does a drain",
        )
    }

    /// Returns why taints of effect `NoExecute` move nothing; `None` if they do.
    pub fn ignores_no_execute(settings: &Settings) -> Option<&'static str> {
        (!settings.enable_no_execute_taint_eviction).then_some(
            "taints of effect NoExecute move nothing (--enable-no-execute-taint-eviction=false), a drain excepted",
        )
    }

    /// Returns that failovers are not recorded; `None` if they are.
    pub fn records_nothing(settings: &Settings) -> Option<&'static str> {
        (!settings.runs("failoverHistory")).then_some(
            "the control plane runs without the controller failoverHistory (--controllers): failovers are not recorded, and what is shown to go on may be over",
        )
    }

    /// Returns why requests for a new placement may never be carried out; `None` if they are.
    pub fn ignores_requests(&self) -> Option<&'static str> {
        let is_off = !self.settings.runs("workloadRebalancer");
        is_off.then_some(
            "the control plane runs without the controller workloadRebalancer (--controllers): nothing moves unless another program carries the request out",
        )
    }
}

/// Reads the lease of the control plane's leader.
pub(super) async fn lease(client: &Client, settings: &Settings) -> Result<Option<Lease>, String> {
    let namespace = &settings.leader_elect_resource_namespace;
    let name = &settings.leader_elect_resource_name;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = client::get_opt(&leases, name).await;
    lease.map_err(|error| format!("get lease {namespace}/{name}: {}", client::brief(&error)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_shared::names::annotation;
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, flags: Option<&[&str]>) -> Lease {
        let report = LeaderReport {
            identity: "cp-0".to_owned(),
            feature_gates: BTreeMap::from([
                ("Failover".to_owned(), true),
                ("OfTomorrow".to_owned(), true),
            ]),
            flags: flags.map(|flags| flags.iter().map(|it| (*it).to_owned()).collect()),
            ..LeaderReport::default()
        };
        serde_json::from_value(json!({
            "metadata": {"annotations": {annotation::LEADER: report.write()}},
            "spec": {"holderIdentity": holder},
        }))
        .unwrap()
    }

    #[test]
    fn flags_of_the_command_win_then_those_of_the_leader_then_the_defaults() {
        let published = [
            "--feature-gates=Failover=true",
            "--resource-eviction-rate=5",
        ];
        let given = vec!["--resource-eviction-rate=7".to_owned()];
        let of = |holder| Some(lease(holder, Some(&published)));
        for (flags, lease, source, failover, rate) in [
            (given, of("cp-0"), Source::CommandLine, false, 7.0),
            (vec![], of("cp-0"), Source::Leader, true, 5.0),
            (vec![], Some(lease("cp-0", None)), Source::Gates, true, 0.5),
            (vec![], of("cp-1"), Source::Defaults, false, 0.5),
            (vec![], None, Source::Defaults, false, 0.5),
        ] {
            let running = Running::of(&flags, lease.as_ref()).unwrap();
            let settings = &running.settings;
            assert_eq!(running.source, source);
            assert_eq!(settings.gate(&FAILOVER), failover, "{source:?}");
            let found = settings.resource_eviction_rate;
            assert!((found - rate).abs() < 1e-9, "{source:?}: {found}");
        }
        for (flag, ignores) in [
            ("--resource-eviction-rate=7", [false, false]),
            ("--enable-taint-manager=false", [true, false]),
            ("--controllers=*,-taintmanager", [true, false]),
            ("--controllers=*,-workloadRebalancer", [false, true]),
        ] {
            let running = Running::of(&[flag.to_owned()], None).unwrap();
            let found = [running.ignores_taints(), running.ignores_requests()];
            assert_eq!(found.map(|it| it.is_some()), ignores, "{flag}");
        }
        let wrong = ["--resource-eviction-rate=-1".to_owned()];
        Running::of(&wrong, None).unwrap_err();
    }
}
