//! Credentials and tokens that end.

use jiff::{SignedDuration, Timestamp};
use muster_shared::check::common::ends_soon;
use muster_shared::client::Life;
use muster_shared::self_report::{AgentReport, LeaderReport};

use super::{Expiry, Snapshot};

/// Returns what has ended, or ends soon and should have been renewed. The first to end comes first.
pub(super) fn expires(snapshot: &Snapshot) -> Vec<Expiry> {
    let now = snapshot.now;
    let mut expires = Vec::new();
    let mut add = |what: String, life: Option<Life>| {
        if let Some(life) = life.filter(|it| it.end <= now || ends_soon(*it, now)) {
            expires.push(Expiry {
                what,
                end: life.end,
            });
        }
    };
    let leader = snapshot.leader.as_ref().ok().and_then(Option::as_ref);
    if let Some(report) = leader.and_then(LeaderReport::of) {
        let what = format!("credentials of the control plane ({})", report.identity);
        add(what, report.credentials);
    }
    for (cluster, lease) in snapshot.leases.iter().flatten() {
        let report = AgentReport::of(lease);
        let what = format!("credentials of the agent of {cluster}");
        add(what, report.and_then(|it| it.credentials));
    }
    for entry in snapshot.tokens.iter().flatten() {
        // A token that has ended is of no use to anybody, and is removed by the fleet API.
        let end = entry
            .expiration
            .filter(|it| *it > now && is_today(*it, now));
        if let Some(end) = end {
            let what = format!("bootstrap token {}", entry.token.id);
            expires.push(Expiry { what, end });
        }
    }
    expires.sort_by_key(|it| it.end);
    expires
}

fn is_today(end: Timestamp, now: Timestamp) -> bool {
    end.duration_since(now) < SignedDuration::from_hours(1)
}
