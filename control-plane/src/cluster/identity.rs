//! Decides which Cluster registered a member first, if two have the same `spec.id`.
//!
//! Karmada's agent lists all Clusters to find out, which requires the right to see them. An agent
//! whose rights are limited to its own Cluster cannot. Here the control plane decides, and sets a
//! condition on the Cluster that came later; the agent of that Cluster reads it and applies
//! nothing.
//!
//! The first holder of an id is recorded in an annotation of the Cluster's execution namespace,
//! which agents cannot write, so that no agent can take over another's id while the control plane
//! is down.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::{Condition, Namespace};
use muster_shared::names::condition::UNIQUE_IDENTITY;

/// Claim of a Cluster to be a certain member. Their order is that of their rights to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Whether the execution namespace of the Cluster does not have the id.
    pub unrecorded: bool,
    /// Whether the Cluster already has `UniqueIdentity`=False. Keeps the decision stable across
    /// restarts of the control plane, which lose `since`.
    pub refused: bool,
    /// When we saw it claim the id, by our count; 0 when it did before we began to watch. An old
    /// Cluster that takes another's id on comes later than that one, whatever their ages.
    pub since: u64,
    /// When the Cluster was created.
    pub created: Option<Timestamp>,
    /// Its name.
    pub name: String,
}

/// The annotation of an execution namespace: the id that its Cluster held first, as `spec.id` has
/// it.
pub const RECORD: &str = "clusters.muster.io/id";

/// Whether the id of a Cluster is to be written upon its execution namespace: it is the first to
/// hold it, and that is not written yet.
pub fn is_to_be_recorded(cluster: &Cluster, claims: &[Claim], namespace: &Namespace) -> bool {
    let id = cluster.spec.id.as_deref().filter(|id| !id.is_empty());
    let first = claims.iter().min();
    id.is_some()
        && first.is_some_and(|first| first.name == cluster.name_any())
        && recorded(namespace) != id
}

/// The id that an execution namespace says its Cluster held first.
pub fn recorded(namespace: &Namespace) -> Option<&str> {
    namespace.annotations().get(RECORD).map(String::as_str)
}

/// What is to be said about the identity of a Cluster; nothing as long as there was never a doubt.
pub fn judge(cluster: &Cluster, claims: &[Claim], now: Timestamp) -> Option<Condition> {
    let name = cluster.name_any();
    let known = cluster.condition(UNIQUE_IDENTITY);
    let observation = match claims.iter().min() {
        Some(first) if first.name != name => {
            let message = format!(
                "this member (id {:?}) is registered already, under the name {:?}; delete the Cluster that is wrong",
                cluster.spec.id.as_deref().unwrap_or_default(),
                first.name
            );
            conditions::new(UNIQUE_IDENTITY, FALSE, "RegisteredAlready", &message, now)
        }
        _ if known.is_some() => {
            let message = "no other Cluster has this id";
            conditions::new(UNIQUE_IDENTITY, TRUE, "OnlyRegistration", message, now)
        }
        _ => return None,
    };
    let same = known.is_some_and(|known| {
        known.status == observation.status && known.message == observation.message
    });
    (!same).then_some(observation)
}

/// Who claims which id, and whose id is recorded. A Cluster that could not be read since this
/// process began has no claim here; what it held is known from its execution namespace.
#[derive(Debug, Default)]
pub struct Identities {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: u64,
    holders: HashMap<String, BTreeSet<String>>,
    claims: HashMap<String, (String, u64)>,
    /// The clusters by the ids that are recorded on their execution namespaces.
    recorded: HashMap<String, BTreeSet<String>>,
    records: HashMap<String, String>,
}

impl Identities {
    /// Takes note of a Cluster's id; `known_before` for what the first list tells. Gives the others
    /// whose case that changes.
    pub fn note(&self, name: &str, id: Option<&str>, known_before: bool) -> Vec<String> {
        let mut inner = self.lock();
        let id = id.filter(|id| !id.is_empty());
        let before = inner.claims.get(name).map(|(id, _)| id.clone());
        if before.as_deref() == id {
            return Vec::new();
        }
        let mut others = BTreeSet::new();
        if let Some(before) = before {
            inner.claims.remove(name);
            if let Some(holders) = inner.holders.get_mut(&before) {
                holders.remove(name);
                others.extend(holders.iter().cloned());
                if holders.is_empty() {
                    inner.holders.remove(&before);
                }
            }
        }
        if let Some(id) = id {
            if !known_before {
                inner.count += 1;
            }
            let since = if known_before { 0 } else { inner.count };
            inner.claims.insert(name.to_owned(), (id.to_owned(), since));
            let holders = inner.holders.entry(id.to_owned()).or_default();
            others.extend(holders.iter().cloned());
            holders.insert(name.to_owned());
        }
        others.into_iter().collect()
    }

    /// Takes note of the id that is recorded on the execution namespace of a Cluster. Gives the
    /// others whose case that changes.
    pub fn note_record(&self, name: &str, id: Option<&str>) -> Vec<String> {
        let mut inner = self.lock();
        let before = inner.records.get(name).cloned();
        if before.as_deref() == id {
            return Vec::new();
        }
        let mut others = BTreeSet::new();
        if let Some(before) = before {
            inner.records.remove(name);
            if let Some(recorded) = inner.recorded.get_mut(&before) {
                recorded.remove(name);
                if recorded.is_empty() {
                    inner.recorded.remove(&before);
                }
            }
            others.extend(inner.holders.get(&before).into_iter().flatten().cloned());
        }
        if let Some(id) = id {
            inner.records.insert(name.to_owned(), id.to_owned());
            let recorded = inner.recorded.entry(id.to_owned()).or_default();
            recorded.insert(name.to_owned());
            others.extend(inner.holders.get(id).into_iter().flatten().cloned());
        }
        others.remove(name);
        others.into_iter().collect()
    }

    /// Takes note that a Cluster has gone that could not be read. Gives the others whose case that
    /// changes.
    pub fn note_departure(&self, name: &str) -> Vec<String> {
        let others = self.note(name, None, false);
        let inner = self.lock();
        let recorded = inner.records.get(name);
        let holders = recorded.and_then(|id| inner.holders.get(id));
        let others: BTreeSet<_> = holders
            .into_iter()
            .flatten()
            .cloned()
            .chain(others)
            .collect();
        others.into_iter().collect()
    }

    /// The Clusters that claim the id that a Cluster claims, itself included, with the time when
    /// the claim was seen; and those that claim nothing and on whose execution namespace the id is
    /// recorded.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let inner = self.lock();
        let Some((id, _)) = inner.claims.get(name) else {
            return Vec::new();
        };
        let holders = inner.holders.get(id).into_iter().flatten();
        let recorded = inner.recorded.get(id).into_iter().flatten();
        let unread = recorded.filter(|name| !inner.claims.contains_key(*name));
        let since = |name: &String| inner.claims.get(name).map_or(0, |(_, since)| *since);
        let all: BTreeSet<_> = holders.chain(unread).collect();
        all.into_iter()
            .map(|name| (name.clone(), since(name)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim of a Cluster that we saw make it at `since`, with its execution namespace.
pub fn claim(cluster: &Cluster, namespace: Option<&Namespace>, since: u64) -> Claim {
    Claim {
        unrecorded: cluster.spec.id.is_none()
            || namespace.and_then(recorded) != cluster.spec.id.as_deref(),
        refused: cluster
            .condition(UNIQUE_IDENTITY)
            .is_some_and(|condition| condition.status == FALSE),
        since,
        created: cluster.creation_timestamp().map(|time| time.0),
        name: cluster.name_any(),
    }
}

/// The claim of a Cluster that claimed an id and cannot be read any more. Whatever it is now, it
/// has not given the id up as far as anybody knows.
pub fn unread_claim(
    name: &str,
    id: Option<&str>,
    namespace: Option<&Namespace>,
    since: u64,
) -> Claim {
    Claim {
        unrecorded: id.is_none() || namespace.and_then(recorded) != id,
        refused: false,
        since,
        created: Some(Timestamp::MAX),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cluster(name: &str, identity: Option<&str>) -> Cluster {
        let conditions: Vec<_> = identity
            .map(|status| conditions::new(UNIQUE_IDENTITY, status, "r", "m", at(0)))
            .into_iter()
            .collect();
        serde_json::from_value(json!({"metadata": {"name": name},
            "spec": {"syncMode": "Pull", "id": "1"}, "status": {"conditions": conditions}}))
        .unwrap()
    }

    /// Name, refused before, since, age.
    fn claims(list: &[(&str, bool, u64, i64)]) -> Vec<Claim> {
        let claim = |&(name, refused, since, created): &(&str, bool, u64, i64)| Claim {
            unrecorded: true,
            refused,
            since,
            created: Some(at(created)),
            name: name.to_owned(),
        };
        list.iter().map(claim).collect()
    }

    #[test]
    fn the_later_registration_is_the_wrong_one() {
        for (list, before, expected) in [
            (claims(&[("b", false, 0, 5)]), None, None),
            (claims(&[]), None, None),
            // Seen by us, whatever their ages.
            (
                claims(&[("a", false, 0, 9), ("b", false, 1, 5)]),
                None,
                Some(FALSE),
            ),
            (
                claims(&[("a", false, 2, 1), ("b", false, 1, 5)]),
                None,
                None,
            ),
            // Both were there before us: by age, then by name.
            (
                claims(&[("a", false, 0, 1), ("b", false, 0, 5)]),
                None,
                Some(FALSE),
            ),
            (
                claims(&[("a", false, 0, 9), ("b", false, 0, 5)]),
                None,
                None,
            ),
            (
                claims(&[("a", false, 0, 5), ("b", false, 0, 5)]),
                None,
                Some(FALSE),
            ),
            // Who was refused stays refused as long as there is another.
            (
                claims(&[("a", false, 0, 9), ("b", true, 0, 5)]),
                Some(FALSE),
                Some(FALSE),
            ),
            (claims(&[("a", true, 0, 1), ("b", false, 0, 5)]), None, None),
            (claims(&[("b", true, 0, 5)]), Some(FALSE), Some(TRUE)),
        ] {
            let said = judge(&cluster("b", before), &list, at(10));
            let status = said.as_ref().map(|said| said.status.as_str());
            assert_eq!(status, expected, "{list:?}");
            if status == Some(FALSE) {
                assert!(said.unwrap().message.contains("\"a\""));
            }
        }
    }

    fn namespace(id: Option<&str>) -> Namespace {
        let annotations = id.map(|id| json!({ RECORD: id }));
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}}))
            .unwrap()
    }

    #[test]
    fn an_older_cluster_that_takes_an_id_on_while_nobody_looks_does_not_get_it() {
        // The attacker is older, and has removed from its own status what it was told.
        let mut attacker = cluster("a", None);
        attacker.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(1)));
        let mut victim = cluster("v", None);
        victim.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(5)));
        let (own, none) = (namespace(Some("1")), namespace(None));
        for (of_attacker, of_victim, wrong) in [
            (Some(&none), Some(&own), "a"),
            (None, Some(&own), "a"),
            // The record of another id counts for nothing.
            (Some(&namespace(Some("2"))), Some(&own), "a"),
            // Nothing is recorded: the older is the first.
            (Some(&none), Some(&none), "v"),
        ] {
            let claims = [
                claim(&attacker, of_attacker, 0),
                claim(&victim, of_victim, 0),
            ];
            for cluster in [&attacker, &victim] {
                let said = judge(cluster, &claims, at(10));
                let refused = said.is_some_and(|said| said.status == FALSE);
                assert_eq!(refused, cluster.name_any() == wrong, "{claims:?}");
            }
        }
    }

    #[test]
    fn a_second_registration_does_not_get_the_id_while_the_first_cannot_be_read() {
        let (own, none) = (namespace(Some("1")), namespace(None));
        let mut second = cluster("a", None);
        second.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(5)));
        for (of_first, since, is_refused) in [(&own, 3, true), (&none, 1, true), (&none, 3, false)]
        {
            let claims = [
                claim(&second, Some(&none), 2),
                unread_claim("v", Some("1"), Some(of_first), since),
            ];
            let said = judge(&second, &claims, at(10));
            let refused = said.is_some_and(|said| said.status == FALSE);
            assert_eq!(refused, is_refused, "{claims:?}");
            assert_eq!(
                is_to_be_recorded(&second, &claims, &none),
                !is_refused,
                "{claims:?}"
            );
        }
    }

    #[test]
    fn the_first_holder_alone_is_recorded_and_once() {
        let (a, b) = (cluster("a", None), cluster("b", None));
        let both = claims(&[("a", false, 0, 1), ("b", false, 1, 5)]);
        assert!(is_to_be_recorded(&a, &both, &namespace(None)));
        assert!(is_to_be_recorded(&a, &both, &namespace(Some("0"))));
        assert!(!is_to_be_recorded(&a, &both, &namespace(Some("1"))));
        assert!(!is_to_be_recorded(&b, &both, &namespace(None)));
        assert!(!is_to_be_recorded(&b, &[], &namespace(None)));
        let mut nobody = cluster("a", None);
        nobody.spec.id = None;
        assert!(!is_to_be_recorded(&nobody, &both, &namespace(None)));
    }

    #[test]
    fn nothing_is_said_twice() {
        let list = claims(&[("a", false, 0, 1), ("b", false, 1, 5)]);
        let mut cluster = cluster("b", None);
        let said = judge(&cluster, &list, at(10)).unwrap();
        cluster.status.as_mut().unwrap().conditions.push(said);
        assert_eq!(judge(&cluster, &list, at(20)), None);
    }

    #[test]
    fn whoever_is_concerned_by_a_change_is_looked_at() {
        let identities = Identities::default();
        let note = |name: &str, id: Option<&str>| identities.note(name, id, false);
        assert!(note("a", Some("1")).is_empty());
        assert!(note("b", Some("2")).is_empty());
        assert!(note("c", None).is_empty() && note("d", Some("")).is_empty());
        assert_eq!(note("c", Some("1")), ["a"]);
        assert!(note("c", Some("1")).is_empty(), "known");
        assert_eq!(identities.holders("a"), [("a".into(), 1), ("c".into(), 3)]);
        assert_eq!(note("c", Some("2")), ["a", "b"], "both cases change");
        assert_eq!(identities.holders("a"), [("a".into(), 1)]);
        assert_eq!(note("c", None), ["b"]);
        assert!(identities.holders("c").is_empty());
        identities.note("e", Some("9"), true);
        assert_eq!(identities.holders("e"), [("e".into(), 0)]);
    }

    #[test]
    fn what_is_recorded_counts_for_a_cluster_that_was_never_read() {
        let identities = Identities::default();
        assert!(identities.note_record("first", Some("1")).is_empty());
        assert!(identities.note("second", Some("1"), true).is_empty());
        let both = [("first".to_owned(), 0), ("second".to_owned(), 0)];
        assert_eq!(identities.holders("second"), both);
        // It is read at last, and is another member: the record counts for nothing.
        assert!(identities.note("first", Some("2"), false).is_empty());
        assert_eq!(identities.holders("second"), both[1..]);
        identities.note("first", None, false);
        assert_eq!(identities.holders("second"), both);
        for change in [
            identities.note_departure("first"),
            identities.note_record("first", Some("3")),
            identities.note_record("first", Some("1")),
            identities.note_record("first", None),
        ] {
            assert_eq!(change, ["second"]);
        }
        assert_eq!(identities.holders("second"), both[1..]);
        assert!(
            identities.note_record("second", Some("1")).is_empty(),
            "its own"
        );
        assert_eq!(identities.holders("second"), both[1..]);
    }
}
