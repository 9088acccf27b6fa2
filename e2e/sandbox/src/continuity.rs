//! Watches that no workload is ever without a copy that it would otherwise have had.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::picture::Picture;
use super::scenario::{SETTINGS, SHOP, SHOP_REPLICAS, WEB, WEB_REPLICAS};
use muster_test_fleet::harness::observer::Observer;

/// The least that must serve at any moment after everything ran once, and what did serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The workload.
    pub name: &'static str,
    /// What is counted.
    pub of: &'static str,
    /// The least allowed.
    pub least: i64,
    /// What the picture shows.
    pub seen: i64,
}

/// Counts what serves, cut-off members included: their copies go on working.
///
/// For `web` its replicas over all members, for the others the members that have them complete.
pub fn floors(picture: &Picture) -> [Floor; 3] {
    let web = picture
        .workload(WEB)
        .copies
        .values()
        .map(|copy| copy.ready)
        .sum();
    let complete = |name: &str, replicas: i64| {
        let workload = picture.workload(name);
        let count = workload
            .copies
            .values()
            .filter(|copy| copy.ready >= replicas)
            .count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    [
        Floor {
            name: WEB,
            of: "ready replicas",
            least: WEB_REPLICAS,
            seen: web,
        },
        Floor {
            name: SHOP,
            of: "complete copies",
            least: 2,
            seen: complete(SHOP, SHOP_REPLICAS),
        },
        Floor {
            name: SETTINGS,
            of: "copies",
            least: 2,
            seen: complete(SETTINGS, 1),
        },
    ]
}

/// A moment at which something was missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: String,
}

/// Watches from its creation on; every change that any member's API shows is checked.
#[derive(Clone, Default)]
pub struct Continuity {
    gaps: Arc<Mutex<Vec<Gap>>>,
}

impl Continuity {
    /// Begins to watch. Everything must run by now.
    pub fn watch(observer: &Observer) -> Self {
        let continuity = Self::default();
        let watching = continuity.clone();
        observer.on_each_change(move |view| watching.observe(&Picture::of(view)));
        continuity
    }

    fn observe(&self, picture: &Picture) {
        for floor in floors(picture)
            .into_iter()
            .filter(|floor| floor.seen < floor.least)
        {
            let Floor {
                name,
                of,
                least,
                seen,
            } = floor;
            let what = format!("{name} had {seen} {of} instead of at least {least}");
            let mut gaps = self.gaps.lock();
            if gaps.last().is_none_or(|last| last.what != what) {
                gaps.push(Gap {
                    at: Timestamp::now(),
                    what,
                });
            }
        }
    }

    /// Returns the moments at which something was missing.
    pub fn gaps(&self) -> Vec<Gap> {
        self.gaps.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Copy, Workload};

    #[test]
    fn a_copy_that_goes_before_its_replacement_serves_is_a_gap() {
        let copies = |list: &[(&str, i64, i64)]| Workload {
            copies: list
                .iter()
                .map(|(name, wanted, ready)| {
                    (
                        (*name).to_owned(),
                        Copy {
                            wanted: *wanted,
                            ready: *ready,
                        },
                    )
                })
                .collect(),
            ..Workload::default()
        };
        let picture = |web: &[(&str, i64, i64)]| {
            let mut picture = Picture::default();
            picture.workloads.insert(WEB, copies(web));
            picture
                .workloads
                .insert(SHOP, copies(&[("member1", 2, 2), ("member2", 2, 2)]));
            picture
                .workloads
                .insert(SETTINGS, copies(&[("member1", 1, 1), ("member2", 1, 1)]));
            picture
        };
        let continuity = Continuity::default();
        continuity.observe(&picture(&[("member1", 1, 1), ("member2", 3, 2)]));
        assert!(continuity.gaps().is_empty());
        continuity.observe(&picture(&[("member2", 3, 2)]));
        assert_eq!(
            continuity.gaps()[0].what,
            "web had 2 ready replicas instead of at least 3"
        );
    }
}
