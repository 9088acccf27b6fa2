//! Annotation of a binding that records the last eviction by a taint, written by the patch that
//! evicts.
//!
//! Condition and event are written afterwards. If the process ends in between, the next one reports
//! the eviction from this record. Without a task (purge mode Directly) there would be no other
//! trace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_shared::clock::whole_second;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::annotation::LAST_EVICTION;
use serde::{Deserialize, Serialize};

use super::explain::{CONDITION, EvictionState, Note, left};

/// The longest text of one field, in bytes. Taints are written by people.
const LONGEST: usize = 512;

/// An eviction that took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The cluster that was left.
    pub from: String,
    /// The clusters that the workload was placed on.
    pub to: String,
    /// Purge mode.
    pub mode: String,
    /// Taint and rule.
    pub cause: String,
    /// Time of the eviction, in whole seconds.
    pub at: Timestamp,
}

impl Record {
    /// Returns the record of an eviction at `now`.
    pub fn new(from: &str, to: &str, mode: &str, cause: &str, now: Timestamp) -> Self {
        let text = |text: &str| bounded(text.to_owned());
        Self {
            from: text(from),
            to: text(to),
            mode: text(mode),
            cause: text(cause),
            at: whole_second(now),
        }
    }

    /// Returns the record among the annotations of a binding, if there is one that can be read.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        serde_json::from_str(annotations?.get(LAST_EVICTION)?).ok()
    }

    /// Returns the value of the annotation.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns whether the condition of the binding is newer than the eviction, so that it was
    /// reported. One of the same second may be what was said just before it.
    pub fn is_reported(&self, conditions: &[Condition]) -> bool {
        conditions::get(conditions, CONDITION).is_some_and(|known| {
            let when = known.last_transition_time.0;
            when > self.at || when == self.at && known.message.contains(&left(&self.from))
        })
    }

    /// Returns the eviction as the note that reports it.
    pub fn note(self) -> Note {
        Note {
            cluster: self.from,
            state: EvictionState::Evicted {
                cause: self.cause,
                to: self.to,
                mode: self.mode,
                at: self.at,
            },
        }
    }
}

/// Returns a text of somebody else's, cut to the length that an explanation may have: there are as
/// many explanations as workloads that wait.
pub fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn a_record_survives_the_way_through_an_annotation_and_is_bounded() {
        let long = "ä".repeat(10_000);
        let record = Record::new("m1", "m2,m3", "Directly", &long, at(7));
        assert!(record.write().len() < 1_200);
        let annotations = BTreeMap::from([(LAST_EVICTION.to_owned(), record.write())]);
        assert_eq!(Record::read(Some(&annotations)), Some(record));
        for odd in ["", "{", "[]", r#"{"from":1}"#] {
            let annotations = BTreeMap::from([(LAST_EVICTION.to_owned(), odd.to_owned())]);
            assert_eq!(Record::read(Some(&annotations)), None, "{odd}");
        }
    }

    #[test]
    fn an_eviction_is_reported_once_the_condition_is_as_new() {
        let record = Record::new("m1", "m2", "Directly", "taint", at(100));
        let evicted = record.clone().note().message();
        let condition =
            |second, text: &str| conditions::new(CONDITION, "False", "R", text, at(second));
        assert!(!record.is_reported(&[]));
        assert!(!record.is_reported(&[condition(99, &evicted)]));
        assert!(record.is_reported(&[condition(100, &evicted)]));
        assert!(record.is_reported(&[condition(500, "")]));
        // What was said before it, in the same second.
        let queued = "m1 has taint: it leaves when the eviction rate allows";
        assert!(!record.is_reported(&[condition(100, queued)]));
    }
}
