//! Reasons why nothing moves now, whatever was ordered: nobody leads, or movement is paused.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Client, ConfigMap, Lease};
use serde::Serialize;
use tokio::time::timeout;

use super::leader::Leader;
use super::{running, view};

/// Time that one reading may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Leader and pause, from which follows whether anything may move. Where one could not be read,
/// that is no reason.
#[derive(Clone, Debug)]
pub(super) struct MovementState {
    /// Lease of the control plane's leader.
    lease: Result<Option<Lease>, String>,
    /// Record of a pause of the fleet; `None` if there is none.
    record: Result<Option<ConfigMap>, String>,
}

/// Reasons why nothing moves, and whether they hold for all clusters that were asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Standstill {
    /// The reasons, each with what ends it.
    #[serde(rename = "nothingMoves", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// A sentence if it is not known whether movement is paused.
    #[serde(rename = "pauseUnread", skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Whether nothing at all moves.
    #[serde(skip)]
    pub is_whole: bool,
}

impl Default for MovementState {
    fn default() -> Self {
        let unread = || "no answer in time".to_owned();
        Self {
            lease: Err(unread()),
            record: Err(unread()),
        }
    }
}

impl MovementState {
    /// Reads the lease of the leader, and the pause of the fleet.
    pub async fn read(client: &Client) -> Self {
        let settings = Settings::default();
        let both = futures::future::join(running::lease(client, &settings), view::pause(client));
        let Ok((lease, record)) = timeout(PATIENCE, both).await else {
            return Self::default();
        };
        Self { lease, record }
    }

    /// Returns whether all of it could be read, so that nothing else can stand in the way.
    pub fn is_read(&self) -> bool {
        self.lease.is_ok() && self.record.is_ok()
    }

    /// Returns the reason that nobody leads.
    pub fn nobody_leads(&self, now: Timestamp) -> Option<String> {
        let missing = Leader::of(&self.lease, now).missing()?;
        Some(format!(
            "{missing}: orders are carried out when a control plane does"
        ))
    }

    /// Returns why nothing moves out of some clusters.
    pub fn of<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a Cluster>,
        now: Timestamp,
    ) -> Standstill {
        let record = self.record.as_ref().ok().and_then(Option::as_ref);
        let fleet = Pause::all(record, [], now).next();
        let fleet = fleet.map(|it| format!("{it}; kubectl muster resume ends that"));
        let nobody = self.nobody_leads(now);
        let has_led = matches!(&self.lease, Ok(Some(_)));
        let is_whole = fleet.is_some() || (nobody.is_some() && has_led);
        let mut reasons: Vec<String> = nobody.into_iter().chain(fleet).collect();
        let (mut asked, mut paused) = (0, BTreeSet::new());
        for cluster in clusters {
            asked += 1;
            if let Some(pause) = Pause::all(None, [cluster], now).next() {
                let name = cluster.name_any();
                paused.insert(format!("{pause}; kubectl muster resume {name} ends that"));
            }
        }
        let are_all = asked > 0 && paused.len() == asked;
        reasons.extend(paused);
        Standstill {
            reasons,
            unread: view::pause_unread(&self.record),
            is_whole: is_whole || are_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::PAUSED;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{lease, member, read};

    fn cluster(name: &str, paused: &str) -> Cluster {
        let annotations = match paused {
            "" => json!({}),
            text => json!({PAUSED: text}),
        };
        member(name, &json!({"metadata": {"annotations": annotations}}))
    }

    #[test]
    fn a_dead_leader_and_each_pause_are_reasons_with_what_ends_them() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let record = |data: Value| Some(read(json!({"data": data})));
        let (by_ann, over) = (
            record(json!({"by": "ann", "reason": "upgrade"})),
            record(json!({"until": "2026-01-01T00:09:00Z"})),
        );
        let led = |renewed: &str| Ok(Some(lease("cp-0", renewed)));
        let awake = || led("2026-01-01T00:09:58.000000Z");
        let (dead, unread) = (led("2026-01-01T00:03:00.000000Z"), Err("no".to_owned()));
        let died = "nobody leads (the last was cp-0, which renewed its lease at 2026-01-01T00:03:00Z): orders are carried out when a control plane does";
        let none = "no lease says that anybody leads (there is none with --leader-elect=false): orders are carried out when a control plane does";
        let all = "all movement is paused by ann until somebody resumes it (reason: \"upgrade\"); kubectl muster resume ends that";
        let [m1, m2] = ["m1", "m2"].map(|name| {
            format!("movement out of {name} is paused until somebody resumes it (reason: \"disks\"); kubectl muster resume {name} ends that")
        });
        let (m1, m2) = (m1.as_str(), m2.as_str());
        for (lease, record, own, expected, is_whole) in [
            (awake(), None, ["", ""], vec![], false),
            (unread, None, ["", ""], vec![], false),
            (dead, None, ["", ""], vec![died], true),
            (Ok(None), None, ["", ""], vec![none], false),
            (awake(), by_ann, ["", ""], vec![all], true),
            (awake(), over, ["", ""], vec![], false),
            (awake(), None, ["disks", ""], vec![m1], false),
            (awake(), None, ["disks", "disks"], vec![m1, m2], true),
        ] {
            let record = Ok(record);
            let movement = MovementState { lease, record };
            let clusters = [cluster("m1", own[0]), cluster("m2", own[1])];
            let found = movement.of(&clusters, now);
            assert_eq!(found.reasons, expected);
            assert_eq!(found.is_whole, is_whole, "{expected:?}");
            assert_eq!(found.unread, None, "{expected:?}");
        }
        let unread = MovementState::default().of([], now).unread;
        let why = "it is not known whether movement is paused: no answer in time";
        assert_eq!(unread.as_deref(), Some(why));
    }
}
