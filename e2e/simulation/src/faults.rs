//! Faults: what goes wrong, when, and with whom.
//!
//! A fault is a part of the plan, with a number of its own and a generator of its own: leaving one
//! out of a plan leaves the decisions of all others as they were.

mod refusal;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use self::refusal::Refusal;
pub use self::verdict::{Piece, Verdict, Way};
pub use crate::fault_kind::{FaultKind, Moment};
use crate::history::{Actor, Api, Process, Verb};
use crate::network::{Call, Kind};
use crate::random::Random;

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Number in the plan.
    pub id: u64,
    /// Milliseconds since the beginning of the busy phase at which it begins.
    pub from: u64,
    /// Milliseconds at which it ends.
    pub until: u64,
    /// What goes wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// The faults that are going on.
#[derive(Debug, Default)]
pub struct Faults {
    active: Mutex<BTreeMap<u64, Active>>,
    /// How many times each kind did something.
    counts: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Active {
    kind: FaultKind,
    random: Random,
    /// Writes of the process that is to be killed.
    writes: u64,
}

impl Faults {
    /// Begins a fault.
    pub fn begin(&self, seed: u64, fault: &Fault) {
        let active = Active {
            kind: fault.kind.clone(),
            random: Random::new(seed, &format!("fault {}", fault.id)),
            writes: 0,
        };
        self.active.lock().insert(fault.id, active);
        if fault.kind.acts_at_once() {
            self.count(&fault.kind);
        }
    }

    /// Ends a fault.
    pub fn end(&self, id: u64) {
        self.active.lock().remove(&id);
    }

    /// Returns how many times each kind of fault did something.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().clone()
    }

    /// Returns the state of the way between a party and a server.
    pub fn way(&self, actor: &Actor, api: &Api) -> Way {
        let mut way = Way::Open;
        for active in self.active.lock().values() {
            match &active.kind {
                kind if !kind.concerns(actor, api) => {}
                FaultKind::Partition { silent: false, .. } => way = Way::Reset,
                FaultKind::Partition { .. } | FaultKind::Down { .. } => return Way::Silent,
                _ => {}
            }
        }
        way
    }

    /// Returns what a party says of its peers, if it lies.
    pub fn lie(&self, actor: &Actor) -> Option<bool> {
        let active = self.active.lock();
        active.values().find_map(|it| match &it.kind {
            FaultKind::Lie { member, reaches } => {
                let is_liar = matches!(actor, Actor::Process(Process::Agent(it)) if it == member);
                is_liar.then_some(*reaches)
            }
            _ => None,
        })
    }

    /// Returns whether a party may read other objects of a kind, by its plural, than a server has
    /// now.
    pub fn distorts(&self, actor: &Actor, api: &Api, plural: &str) -> bool {
        let active = self.active.lock();
        let mut kinds = active.values().map(|active| &active.kind);
        kinds.any(|kind| kind.distorts() && kind.concerns(actor, api) && kind.is_about(plural))
    }

    /// Returns whether a list of a kind, by its plural, lacks its next object for a party.
    pub fn leaves_out(&self, actor: &Actor, api: &Api, plural: &str) -> bool {
        let mut leaves_out = false;
        for active in self.active.lock().values_mut() {
            if let FaultKind::Short { share, .. } = active.kind
                && active.kind.concerns(actor, api)
                && active.kind.is_about(plural)
                && active.random.per_mille(share)
            {
                leaves_out = true;
                self.count(&active.kind);
            }
        }
        leaves_out
    }

    /// Decides what happens to a request.
    pub fn judge(&self, actor: &Actor, call: &Call) -> Verdict {
        let mut verdict = Verdict::default();
        for active in self.active.lock().values_mut() {
            if !active.kind.concerns(actor, &call.api) {
                continue;
            }
            let random = &mut active.random;
            let acts = match &active.kind {
                FaultKind::Refuse { code, share, .. } => {
                    let fits = fits(*code, call) && random.per_mille(*share);
                    if fits {
                        verdict.refusal = Some(Refusal::of(*code));
                    }
                    fits
                }
                FaultKind::Quota { .. } => {
                    let is_pod = call.resource.plural == "pods" && call.is_stored();
                    let creates =
                        is_pod && call.verb == Verb::Create && call.resource.subresource.is_empty();
                    if creates {
                        verdict.refusal = Some(Refusal::QUOTA);
                    }
                    creates
                }
                FaultKind::Deny { plural, fails, .. } => {
                    let asks = call.is_stored() && call.resource.plural == *plural;
                    if asks {
                        verdict.refusal = Some(if *fails {
                            Refusal::NO_WEBHOOK
                        } else {
                            Refusal::of(403)
                        });
                    }
                    asks
                }
                FaultKind::LoseRequests { share, .. } => {
                    let loses = random.per_mille(*share);
                    verdict.loses_request |= loses;
                    loses
                }
                FaultKind::LoseAnswers { share, .. } => {
                    let loses = random.per_mille(*share);
                    verdict.loses_answer |= loses;
                    loses
                }
                FaultKind::Slow { delay, .. } => {
                    verdict.delay += Duration::from_millis(random.below(delay + 1));
                    true
                }
                FaultKind::Crash {
                    nth,
                    moment,
                    of_all,
                    ..
                } if call.is_stored() && (*of_all || call.decides()) => {
                    active.writes += 1;
                    let is_now = active.writes == *nth;
                    verdict.crash = if is_now { Some(*moment) } else { verdict.crash };
                    is_now
                }
                FaultKind::Stale { .. } => {
                    let is_list = call.kind == Kind::List;
                    verdict.is_stale |= is_list;
                    is_list
                }
                _ => false,
            };
            if acts {
                self.count(&active.kind);
            }
        }
        verdict
    }

    /// Decides what happens to the next piece of a watch. `seen` are the faults that the watch has
    /// had already.
    pub fn piece(&self, actor: &Actor, api: &Api, kind: &str, seen: &mut Vec<u64>) -> Piece {
        let mut piece = Piece::default();
        for (id, active) in self.active.lock().iter_mut() {
            if !active.kind.concerns(actor, api) || !active.kind.is_about(kind) {
                continue;
            }
            if let FaultKind::Lag { lag, .. } = &active.kind {
                piece.lag += Duration::from_millis(*lag);
            }
            let (share, distortion) = match active.kind {
                FaultKind::Garble { share, .. } if TYPED.contains(&kind) => {
                    (share, &mut piece.garbles)
                }
                FaultKind::Nonsense { share, .. } => (share, &mut piece.is_nonsense),
                _ => (0, &mut piece.garbles),
            };
            if active.random.per_mille(share) {
                *distortion = true;
                self.count(&active.kind);
            }
            if seen.contains(id) {
                continue;
            }
            match &active.kind {
                FaultKind::Lag { .. } => {}
                FaultKind::Break { .. } => piece.breaks = true,
                FaultKind::Miss { pause, .. } => {
                    piece.misses = Some(Duration::from_millis(*pause));
                }
                FaultKind::Repeat { .. } => piece.repeats = true,
                _ => continue,
            }
            seen.push(*id);
            self.count(&active.kind);
        }
        piece
    }

    /// Returns whether a watch that has nothing to send is to break or to end, which it did not
    /// yet.
    pub fn ends(&self, actor: &Actor, api: &Api, kind: &str, seen: &[u64]) -> bool {
        let active = self.active.lock();
        let mut active = active.iter().filter(|(id, _)| !seen.contains(id));
        active.any(|(_, active)| {
            matches!(
                active.kind,
                FaultKind::Break { .. } | FaultKind::Miss { .. }
            ) && active.kind.concerns(actor, api)
                && active.kind.is_about(kind)
        })
    }

    fn count(&self, kind: &FaultKind) {
        let mut counts = self.counts.lock();
        *counts.entry(kind.name()).or_default() += 1;
    }
}

/// Kinds that the product reads with a `spec` of a certain shape. Of all others any is fine, and
/// what a cache has of one version of an object is never read again.
const TYPED: [&str; 12] = [
    "clusters",
    "works",
    "resourcebindings",
    "clusterresourcebindings",
    "propagationpolicies",
    "clusterpropagationpolicies",
    "overridepolicies",
    "clusteroverridepolicies",
    "clustertaintpolicies",
    "workloadrebalancers",
    "nodes",
    "pods",
];

/// Returns whether a server gives such a code to such a request.
fn fits(code: u16, call: &Call) -> bool {
    match code {
        403 | 409 | 422 => call.kind == Kind::Write,
        410 => matches!(call.kind, Kind::List | Kind::Watch),
        _ => true,
    }
}
