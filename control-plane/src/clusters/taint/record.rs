//! State of the taint controller for a cluster, stored in an annotation of the cluster so that it
//! survives a restart.
//!
//! It records which policy added a taint (a taint without a record belongs to a user and is never
//! removed), and since when the conditions of a policy match or do not match.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::Taint;
use serde::{Deserialize, Serialize};

use super::window::Window;

/// The annotation on a Cluster that holds the record as JSON.
pub const ANNOTATION: &str = "taints.muster.io/record";

/// Bytes that the record may have at most. All annotations of an object together have 256 KiB, and
/// a write that is larger is refused whole: taints, too, would come and go no more.
pub const LIMIT: usize = 96 * 1024;

/// Bytes up to which windows are begun: what waits must not take the room of the taints that it
/// waits for.
pub(super) const WINDOWS_LIMIT: usize = LIMIT / 2;

/// The record of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// The taints that policies answer for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Owned>,
    /// Since when the conditions of policies with time windows match or do not, by policy name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<String, Window>,
}

/// A taint that policies answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owned {
    /// Key of the taint.
    pub key: String,
    /// Effect of the taint.
    pub effect: String,
    /// A policy of the shipped form put it there. Any policy of that form may remove it: the last
    /// one that speaks wins, as in Karmada.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shipped: bool,
    /// The policies of the proposed form that want it. It goes when the last of them lets go.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub held_by: BTreeSet<String>,
    /// Somebody took it off by hand, which is how an administrator stops a migration. It is not put
    /// back before everyone who wants it has let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Timestamp>,
}

impl Record {
    /// Reads the annotation. Missing: nobody has kept a record yet. Unreadable: nothing is ours.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        annotation.map(|text| serde_json::from_str(text).unwrap_or_default())
    }

    /// Returns the record of a cluster; `None` if it has none.
    pub fn on(cluster: &Cluster) -> Option<Self> {
        Self::read(cluster.annotations().get(ANNOTATION).map(String::as_str))
    }

    /// Returns the annotation's text.
    ///
    /// # Panics
    /// Never: maps with text keys always serialise.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("maps with text keys serialise: invariant of the type")
    }

    /// Returns the policies that the record speaks of, each once.
    pub fn policies(&self) -> BTreeSet<&str> {
        let holders = self.taints.iter().flat_map(|owned| &owned.held_by);
        holders
            .chain(self.windows.keys())
            .map(String::as_str)
            .collect()
    }

    /// Returns how many bytes the record's text comes to at most, whatever becomes of its taints.
    pub(super) fn size(&self) -> usize {
        let longest = |owned: &Owned| Owned {
            held_by: owned.held_by.clone(),
            ..Owned::longest(&owned.key, &owned.effect)
        };
        size_of(&Self {
            taints: self.taints.iter().map(longest).collect(),
            windows: self.windows.clone(),
        })
    }

    /// Returns the entry of a taint, if policies answer for it.
    pub fn owned(&self, key: &str, effect: &str) -> Option<&Owned> {
        self.taints.iter().find(|owned| owned.is(key, effect))
    }

    /// Returns whether a taint on the cluster was put there by a policy.
    pub fn answers_for(&self, taint: &Taint) -> bool {
        self.owned(&taint.key, &taint.effect)
            .is_some_and(|owned| owned.withdrawn.is_none())
    }

    /// Returns whether a taint of policies is on its way out: no policy of the shipped form wants
    /// it, the conditions of none of the others match any more, and it goes when they have not done
    /// so for as long as each of these says.
    pub fn is_going(&self, taint: &Taint) -> bool {
        let owned = self.owned(&taint.key, &taint.effect);
        let is_held = |it: &&Owned| !it.shipped && !it.held_by.is_empty();
        let owned = owned.filter(|it| it.withdrawn.is_none() && is_held(it));
        let has_let_go = |policy: &String| self.windows.get(policy).is_some_and(|it| !it.matched);
        owned.is_some_and(|it| it.held_by.iter().all(has_let_go))
    }

    /// Returns the entry of a taint, and makes it if there is none.
    pub(super) fn entry(&mut self, key: &str, effect: &str) -> &mut Owned {
        let at = self
            .taints
            .iter()
            .position(|owned| owned.is(key, effect))
            .unwrap_or_else(|| {
                self.taints.push(Owned::of(key, effect));
                self.taints.len() - 1
            });
        &mut self.taints[at]
    }
}

/// Returns how many bytes a part of a record takes in its text, with the comma after it.
pub(super) fn size_of(part: &impl Serialize) -> usize {
    serde_json::to_string(part).map_or(0, |text| text.len() + 1)
}

impl Owned {
    /// Returns the entry of a taint that nobody wants yet.
    fn of(key: &str, effect: &str) -> Self {
        Self {
            key: key.to_owned(),
            effect: effect.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the entry of a taint when its text is longest, but for its holders: a policy of the
    /// shipped form put it there, and somebody took it off by hand.
    pub(super) fn longest(key: &str, effect: &str) -> Self {
        Self {
            shipped: true,
            withdrawn: Some(Timestamp::MAX),
            ..Self::of(key, effect)
        }
    }

    fn is(&self, key: &str, effect: &str) -> bool {
        self.key == key && self.effect == effect
    }

    /// Returns whether nobody wants the taint any more.
    pub fn is_free(&self) -> bool {
        !self.shipped && self.held_by.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{at, taint};

    fn record() -> Record {
        let window: Window = serde_json::from_value(serde_json::json!({
            "since": at(5), "matched": true, "statuses": "False", "generation": 3,
        }))
        .unwrap();
        let mut record = Record::default();
        record.entry("down", "NoExecute").held_by = ["p1", "policy2"].map(str::to_owned).into();
        record.entry("cut", "NoSchedule").shipped = true;
        record.entry("off", "NoExecute").withdrawn = Some(at(9));
        record.windows = [("p3".to_owned(), window)].into();
        record
    }

    #[test]
    fn a_record_knows_its_policies_and_whose_taints_it_answers_for() {
        let record = record();
        let policies: Vec<&str> = record.policies().into_iter().collect();
        assert_eq!(policies, ["p1", "p3", "policy2"]);
        for (key, effect, answers) in [
            ("down", "NoExecute", true),
            ("down", "NoSchedule", false),
            ("cut", "NoSchedule", true),
            // Whoever put that one back did it by hand.
            ("off", "NoExecute", false),
            ("other", "NoExecute", false),
        ] {
            let found = record.answers_for(&taint(key, effect));
            assert_eq!(found, answers, "{key}:{effect}");
        }
    }
}
