//! Reads from a Work whether and when its objects are stopped, and writes what the control plane
//! learns about that. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::work::Work;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::fencing::{CONFIRMED, Orders, Times};
use muster_shared::k8s::{Condition, GroupVersionKind};

use crate::work::manifests::keys;

/// Orders of a Work about fencing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fenced {
    /// Longest times of its objects.
    pub longest: Times,
    /// Shortest time of its objects, in seconds.
    pub shortest: u32,
    /// Kinds of its fenced objects.
    pub kinds: BTreeSet<String>,
}

impl Fenced {
    /// Reads a Work; `None` if no object is fenced.
    pub fn of(work: &Work) -> Option<Self> {
        let orders = keys(work)
            .filter_map(|(_, key, manifest)| Some((Orders::of(manifest)?, kind_text(&key.kind))));
        let mut found: Option<Self> = None;
        for (orders, kind) in orders {
            let times = Times {
                after: orders.after_seconds,
                grace: orders.grace_seconds,
            };
            let known = found.get_or_insert_with(|| Self {
                longest: times,
                shortest: times.after,
                kinds: BTreeSet::new(),
            });
            known.longest = known.longest.max(times);
            known.shortest = known.shortest.min(times.after);
            known.kinds.insert(kind);
        }
        found
    }

    /// Returns the time without a renewal of the lease from which nothing of the Work is applied.
    pub fn after(&self) -> Duration {
        Duration::from_secs(self.shortest.into())
    }
}

/// Writes a kind as `group/version/Kind`.
pub fn kind_text(kind: &GroupVersionKind) -> String {
    format!("{}/{}/{}", kind.group, kind.version, kind.kind)
}

/// Reads a kind that [`kind_text`] wrote.
pub fn kind_of(text: &str) -> Option<GroupVersionKind> {
    let (group, rest) = text.split_once('/')?;
    let (version, kind) = rest.split_once('/')?;
    Some(GroupVersionKind::gvk(group, version, kind))
}

/// Returns what has to be confirmed before the objects are applied. The control plane must never
/// know a shorter time than that of an object in the member, and none for objects that are fenced
/// no more.
pub fn before(
    confirmed: Option<Times>,
    fenced: Option<&Fenced>,
    now: Timestamp,
) -> Option<Condition> {
    let confirmed = confirmed?;
    let Some(fenced) = fenced else {
        let why = "the policy asks for no fencing";
        return Some(refusal("NotRequested", why, now));
    };
    let longest = confirmed.max(fenced.longest);
    (longest != confirmed).then(|| confirmation(longest, now))
}

/// Returns the condition that confirms times.
pub fn confirmation(times: Times, now: Timestamp) -> Condition {
    let message = format!(
        "the agent stops the objects when it has not been able to renew the lease for {} s; their pods may take {} s to end",
        times.after, times.grace
    );
    conditions::new(CONFIRMED, TRUE, &times.reason(), &message, now)
}

/// Returns the condition that says why the objects are not stopped.
pub fn refusal(reason: &str, message: &str, now: Timestamp) -> Condition {
    conditions::new(CONFIRMED, FALSE, reason, message, now)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn work(afters: &[Option<u32>]) -> Work {
        let manifests = afters.iter().enumerate().map(|(n, after)| {
            let mut manifest = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": n.to_string(), "namespace": "default" },
            });
            if let Some(after_seconds) = *after {
                let stop = None;
                let orders = Orders {
                    after_seconds,
                    grace_seconds: 30,
                    stop,
                };
                orders.write(&mut manifest);
            }
            manifest
        });
        let manifests: Vec<Value> = manifests.collect();
        serde_json::from_value(json!({
            "metadata": { "name": "w", "namespace": "karmada-es-m1" },
            "spec": { "workload": { "manifests": manifests } },
        }))
        .unwrap()
    }

    #[test]
    fn a_work_is_fenced_by_its_objects() {
        assert_eq!(Fenced::of(&work(&[None])), None);
        let fenced = Fenced::of(&work(&[None, Some(60), Some(90)])).unwrap();
        assert_eq!((fenced.shortest, fenced.longest.after), (60, 90));
        let kinds: Vec<_> = fenced
            .kinds
            .iter()
            .filter_map(|kind| kind_of(kind))
            .collect();
        assert_eq!(kinds, [GroupVersionKind::gvk("apps", "v1", "Deployment")]);
    }

    #[test]
    fn the_control_plane_never_knows_a_shorter_time_than_the_member() {
        let now = Timestamp::UNIX_EPOCH;
        for (confirmed, after, expected) in [
            (None, None, None),
            (None, Some(60), None),
            (Some(60), Some(60), None),
            (Some(90), Some(60), None),
            (Some(60), Some(90), Some(("True", "After90Grace30"))),
            (Some(60), None, Some(("False", "NotRequested"))),
        ] {
            let fenced = Fenced::of(&work(&[after]));
            let confirmed = confirmed.map(|after| Times { after, grace: 30 });
            let reported = before(confirmed, fenced.as_ref(), now);
            let reported = reported
                .as_ref()
                .map(|it| (it.status.as_str(), it.reason.as_str()));
            assert_eq!(reported, expected, "{confirmed:?} {after:?}");
        }
    }
}
