//! `kubectl muster version`: versions of this program, of the control plane and of the agents, and
//! whether they fit together.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::check::listed;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Client, Lease};
use muster_shared::self_report::{AgentReport, LeaderReport};
use serde::Serialize;

use super::leader::Leader;
use super::output::Format;
use super::view::{Member, State, View};

/// Version of this program.
const OWN: &str = env!("CARGO_PKG_VERSION");
/// Clusters that one line names.
const NAMED: usize = 5;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Prints the version of this program alone, and asks no API.
    #[arg(long)]
    client: bool,
}

impl Options {
    /// Returns the version of this program, if it alone is asked for.
    pub fn own(&self) -> Option<anyhow::Result<String>> {
        // Nobody else was asked: it is not said that others have nothing.
        let alone = serde_json::json!({"client": OWN});
        let text = || format!("Client:         {OWN}\n");
        self.client.then(|| self.output.print(text, &alone))
    }
}

/// The versions of a fleet.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: &'static str,
    /// Version of the leader, or of the last one; `null` if it is not known.
    control_plane: Option<String>,
    /// Last renewal of the lease of a leader that does not lead any more.
    dead_since: Option<Timestamp>,
    /// Clusters by the version of their agent.
    agents: BTreeMap<String, Vec<String>>,
    /// Clusters whose agents do not say theirs: they have never reported, or others' agents.
    unknown: Vec<String>,
    /// Silent clusters among those above: their agents may not run any more.
    silent: Vec<String>,
    /// Versions that do not fit together.
    skew: Vec<String>,
    /// What could not be read.
    unread: Vec<String>,
}

/// Returns the answer as text.
pub(super) async fn carry_out(client: &Client, options: &Options) -> anyhow::Result<String> {
    let View {
        leader,
        clusters,
        leases,
    } = View::read(client, &Settings::default()).await;
    let errors = [
        leader.as_ref().err(),
        leases.as_ref().err(),
        clusters.as_ref().err(),
    ];
    let unread = errors.into_iter().flatten().cloned().collect();
    let now = calendar();
    let state = Leader::of(&leader, now);
    let leader = leader.ok().flatten();
    let mut versions = Versions::of(
        (leader.as_ref(), &state),
        &leases.unwrap_or_default(),
        &clusters.unwrap_or_default(),
        now,
    );
    versions.unread = unread;
    options.output.print(|| versions.table(), &versions)
}

impl Versions {
    fn of(
        (leader, state): (Option<&Lease>, &Leader),
        leases: &BTreeMap<String, Lease>,
        clusters: &[Cluster],
        now: Timestamp,
    ) -> Self {
        let is_dead = !state.acts && !state.is_unread;
        let mut versions = Self {
            client: OWN,
            control_plane: leader.and_then(LeaderReport::of).map(|it| it.version),
            dead_since: state.renewed.filter(|_| is_dead),
            ..Self::default()
        };
        let pulled = clusters
            .iter()
            .filter(|it| it.spec.sync_mode == ClusterSyncMode::Pull);
        for cluster in pulled {
            let name = cluster.name_any();
            let lease = leases.get(&name);
            let member = Member::of(cluster, lease, state.leaves_silent(lease, now));
            if member.state == State::Silent {
                versions.silent.push(name.clone());
            }
            match lease.and_then(AgentReport::of) {
                Some(report) => versions
                    .agents
                    .entry(report.version)
                    .or_default()
                    .push(name),
                None => versions.unknown.push(name),
            }
        }
        versions.skew = versions.skew();
        versions
    }

    fn skew(&self) -> Vec<String> {
        let mut skew = Vec::new();
        if let Some(version) = self.control_plane.as_ref().filter(|it| *it != OWN) {
            skew.push(format!(
                "this program ({OWN}) is not of the version of the control plane ({version})"
            ));
        }
        let Some(own) = &self.control_plane else {
            return skew;
        };
        for (version, clusters) in self.agents.iter().filter(|(version, _)| *version != own) {
            skew.push(format!(
                "agents of version {version}, the control plane has {own}: {}",
                listed(clusters, NAMED)
            ));
        }
        skew
    }

    fn table(&self) -> String {
        let mut lines = vec![format!("Client:         {}", self.client)];
        if let Some(version) = &self.control_plane {
            let dead = self.dead_since.map_or_else(String::new, |since| {
                format!(", which does not lead any more: no control plane does since {since:.0}")
            });
            lines.push(format!("Control plane:  {version}{dead}"));
        } else {
            lines.push("Control plane:  not known".to_owned());
        }
        for (version, clusters) in &self.agents {
            lines.push(format!(
                "Agents:         {version}: {}",
                listed(clusters, NAMED)
            ));
        }
        if !self.unknown.is_empty() {
            lines.push(format!(
                "Agents:         not known: {}",
                listed(&self.unknown, NAMED)
            ));
        }
        if !self.silent.is_empty() {
            lines.push(format!(
                "Silent:         {}: their agents may not run",
                listed(&self.silent, NAMED)
            ));
        }
        lines.extend(self.skew.iter().map(|it| format!("Skew:           {it}")));
        lines.extend(self.unread.iter().map(|it| format!("COULD NOT READ: {it}")));
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{condition, member, read};

    fn leader(version: &str) -> Lease {
        let report = LeaderReport {
            identity: "cp-0".to_owned(),
            version: version.to_owned(),
            ..LeaderReport::default()
        };
        read(json!({
            "metadata": {"annotations": {annotation::LEADER: report.write()}},
            "spec": {
                "holderIdentity": "cp-0", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        }))
    }

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + jiff::SignedDuration::from_secs(seconds)
    }

    fn agent(name: &str, version: &str) -> Lease {
        let renewed = "2026-01-01T00:00:00.000000Z";
        let report = AgentReport {
            version: version.to_owned(),
            credentials: None,
        };
        let annotations = json!({annotation::FENCES: renewed, annotation::AGENT: report.write()});
        read(json!({
            "metadata": {"name": name, "annotations": annotations}, "spec": {"renewTime": renewed},
        }))
    }

    fn cluster(name: &str) -> Cluster {
        let ready = condition("Ready", "True", "R", "", "2026-01-01T00:00:00Z");
        member(name, &json!({"status": {"conditions": [ready]}}))
    }

    #[test]
    fn of_this_program_alone_nothing_is_reported_of_others() {
        let alone = |output| {
            let options = Options {
                output,
                client: true,
            };
            options.own().unwrap().unwrap()
        };
        assert_eq!(alone(Format::Yaml), format!("client: \"{OWN}\"\n"));
        assert_eq!(alone(Format::Table), format!("Client:         {OWN}\n"));
    }

    #[test]
    fn who_has_another_version_than_the_control_plane_is_named() {
        let clusters = ["m1", "m2", "m3"].map(cluster);
        let leases = [agent("m1", OWN), agent("m2", "0.0.9")];
        let leases = leases.map(|it| (it.name_any(), it)).into();
        let of = |leader: Option<Lease>, seconds: i64| {
            let lease = Ok(leader);
            let now = at(seconds);
            let state = Leader::of(&lease, now);
            let leader = lease.as_ref().ok().and_then(Option::as_ref);
            Versions::of((leader, &state), &leases, &clusters, now)
        };
        let versions = of(Some(leader(OWN)), 5);
        assert_eq!(
            versions.table(),
            format!(
                "Client:         {OWN}\nControl plane:  {OWN}\nAgents:         0.0.9: m2\nAgents:         {OWN}: m1\n\
                 Agents:         not known: m3\nSkew:           agents of version 0.0.9, the control plane has {OWN}: m2\n"
            )
        );
        // A leader that is dead, and with it whoever would say which agents are.
        let text = of(Some(leader(OWN)), 500).table();
        for part in [
            "which does not lead any more: no control plane does since 2026-01-01T00:00:00Z\n",
            "Silent:         m1, m2: their agents may not run\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let newer = of(Some(leader("9.0.0")), 5);
        assert_eq!(newer.skew.len(), 3, "{:?}", newer.skew);
        // One that acts without an election has no lease to say it on.
        let none = of(None, 5);
        assert!(none.skew.is_empty());
        let text = none.table();
        assert!(text.contains("\nControl plane:  not known\n"), "{text}");
    }
}
