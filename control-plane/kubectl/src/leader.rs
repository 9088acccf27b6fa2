//! Who acts, and which members are silent while nobody does.

use jiff::{SignedDuration, Timestamp};
use muster_shared::k8s::Lease;
use serde::Serialize;

/// Seconds that a lease holds if it does not say so (the API's rule asks for a number; the default
/// of the agents).
const LEASE_SECONDS: i32 = 40;

/// The control plane's leader.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leader {
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    /// Whether the lease has not run out.
    pub acts: bool,
    /// Whether the lease could not be read: who acts is not known.
    pub is_unread: bool,
}

/// The reason of a member that is silent while nobody says so.
pub(super) const SILENT: &str = "SilentAndNotJudged";

impl Leader {
    /// Returns the leader, by its lease as far as that could be read.
    pub(super) fn of(lease: &Result<Option<Lease>, String>, now: Timestamp) -> Self {
        let Some(spec) = lease.iter().flatten().find_map(|lease| lease.spec.as_ref()) else {
            return Self {
                is_unread: lease.is_err(),
                ..Self::default()
            };
        };
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        let ends = renewed.and_then(|at| {
            at.checked_add(SignedDuration::from_secs(seconds.into()))
                .ok()
        });
        let holder = spec.holder_identity.clone().filter(|it| !it.is_empty());
        Self {
            acts: holder.is_some() && ends.is_some_and(|ends| now <= ends),
            holder,
            renewed,
            is_unread: false,
        }
    }

    /// Returns a sentence that nobody leads, if that is known.
    pub(super) fn missing(&self) -> Option<String> {
        if self.acts || self.is_unread {
            return None;
        }
        let Some(renewed) = self.renewed else {
            return Some(
                "no lease says that anybody leads (there is none with --leader-elect=false)"
                    .to_owned(),
            );
        };
        let holder = self.holder.as_deref().unwrap_or("a former one");
        Some(format!(
            "nobody leads (the last was {holder}, which renewed its lease at {renewed:.0})"
        ))
    }

    /// Returns whether the member with this lease is silent, and its last report would be shown as
    /// the truth, because no leader acts.
    pub(super) fn leaves_silent(&self, member: Option<&Lease>, now: Timestamp) -> bool {
        let is_judged = self.acts || self.is_unread;
        !is_judged && member.is_some_and(|lease| is_silent(lease, now))
    }
}

/// Returns what is said of a workload in clusters that are silent while nobody says so.
pub(super) fn unjudged(clusters: &[&str]) -> String {
    let clusters = clusters.join(", ");
    format!("no control plane leads that could judge whether {clusters} is silent")
}

/// Returns the time of the last renewal of a lease.
pub(super) fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// Returns whether a member has not renewed its lease for twice as long as that holds: while no
/// leader acts, nobody else says that the member is silent, and its last report would stand for
/// ever. The member's clock may differ from this one's.
pub(super) fn is_silent(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else {
        return false;
    };
    let seconds = spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS);
    let longest = SignedDuration::from_secs(2 * i64::from(seconds));
    renewed(lease).is_some_and(|at| now.duration_since(at) > longest)
}
