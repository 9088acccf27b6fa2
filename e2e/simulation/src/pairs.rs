//! Coverage of pairs: which two features concerned one workload at the same time, during which kind
//! of fault.
//!
//! A meeting begins when two features concern a workload and a fault lasts, or none does, and that
//! was not so a moment before. What is met is read off the history.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fault_kind::FaultKind;
use crate::feature::{Feature, Subject, WORKLOADS, ordered_by, set_by};
use crate::history::{Api, Entry, History, Key, Phase, World};

/// Two features, the first one first in [`Feature::ALL`], and the name of a fault, or [`NO_FAULT`].
pub type Meeting = (Feature, Feature, String);

/// Name of the state in which no fault lasts.
pub const NO_FAULT: &str = "none";

/// Meetings that a table has to have of each pair at the least.
pub const ENOUGH: u64 = 10;

/// Rare pairs of a fault that are named in a summary; the file of all counts has the others.
const SHOWN: usize = 8;

/// Time for which an order counts after it was given.
const ORDER_LASTS: SignedDuration = SignedDuration::from_mins(1);

/// How often each pair was met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Meeting, u64)>", into = "Vec<(Meeting, u64)>")]
pub struct Pairs(BTreeMap<Meeting, u64>);

impl From<Vec<(Meeting, u64)>> for Pairs {
    fn from(counts: Vec<(Meeting, u64)>) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl From<Pairs> for Vec<(Meeting, u64)> {
    fn from(pairs: Pairs) -> Self {
        pairs.0.into_iter().collect()
    }
}

impl Pairs {
    /// Returns the pairs that a history shows, from the beginning of its busy phase on.
    pub fn of(history: &History) -> Self {
        let mut reader = Reader::default();
        for entry in history.entries() {
            reader.read(entry);
        }
        reader.pairs
    }

    /// Adds what another history shows.
    pub fn add(&mut self, other: &Self) {
        for (meeting, count) in &other.0 {
            *self.0.entry(meeting.clone()).or_default() += count;
        }
    }

    /// Returns how often two features met during a fault, in the order of [`Feature::ALL`].
    pub fn count(&self, one: Feature, other: Feature, fault: &str) -> u64 {
        let (one, other) = (one.min(other), one.max(other));
        let meeting = (one, other, fault.to_owned());
        self.0.get(&meeting).copied().unwrap_or_default()
    }

    /// Returns how often two features met, whatever failed.
    pub fn whatever_fails(&self, one: Feature, other: Feature) -> u64 {
        let faults = faults();
        faults.iter().map(|it| self.count(one, other, it)).sum()
    }

    /// Returns the pairs of two features that were met too rarely, whatever failed.
    pub fn rare(&self) -> Vec<(Feature, Feature, u64)> {
        let counted = pairs().map(|(one, other)| (one, other, self.whatever_fails(one, other)));
        counted.filter(|(.., count)| *count < ENOUGH).collect()
    }

    /// Returns the pairs that were met too rarely during a kind of fault.
    pub fn rare_during_faults(&self) -> Vec<(Meeting, u64)> {
        let faults = faults();
        let all = pairs().flat_map(|(one, other)| {
            let faults = faults.iter();
            faults.map(move |it| ((one, other, it.clone()), self.count(one, other, it)))
        });
        all.filter(|(_, count)| *count < ENOUGH).collect()
    }

    /// Returns all counts as lines of CSV: two features, a fault and how often they met.
    pub fn csv(&self) -> String {
        let mut text = "feature,other,fault,met\n".to_owned();
        for (one, other) in pairs() {
            for fault in faults() {
                let count = self.count(one, other, &fault);
                let _ = writeln!(text, "{},{},{fault},{count}", one.name(), other.name());
            }
        }
        text
    }
}

impl std::fmt::Display for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = pairs().count();
        let kinds = faults().len();
        let (rare, rarer) = (self.rare(), self.rare_during_faults());
        writeln!(
            f,
            "features: {} of {all} pairs met at least {ENOUGH} times, {} of {} pairs with a fault",
            all - rare.len(),
            all * kinds - rarer.len(),
            all * kinds
        )?;
        for (one, other, count) in rare {
            writeln!(f, "  {} + {}: {count}", one.name(), other.name())?;
        }
        for fault in faults() {
            let rare = rarer.iter().filter(|((.., it), _)| *it == fault);
            let names: Vec<String> = rare
                .map(|((one, other, _), count)| format!("{}+{} {count}", one.name(), other.name()))
                .collect();
            let shown = &names[..names.len().min(SHOWN)];
            if !names.is_empty() {
                writeln!(f, "  {fault}: {} rare: {}", names.len(), shown.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Returns all pairs of features.
pub fn pairs() -> impl Iterator<Item = (Feature, Feature)> {
    let first = Feature::ALL.into_iter().enumerate();
    first.flat_map(|(at, one)| {
        let others = Feature::ALL.into_iter().skip(at + 1);
        let met = others.filter(move |other| !one.excludes(*other));
        met.map(move |other| (one, other))
    })
}

/// Names of the kinds of faults, and of their absence.
pub fn faults() -> Vec<String> {
    let kinds = FaultKind::NAMES.into_iter().map(str::to_owned);
    kinds.chain([NO_FAULT.to_owned()]).collect()
}

/// Reads a history.
#[derive(Default)]
struct Reader {
    pairs: Pairs,
    is_begun: bool,
    /// Names of the workloads that the fleet had.
    workloads: BTreeSet<String>,
    /// Features that objects set.
    set: BTreeMap<Key, Vec<(Feature, Subject)>>,
    /// Orders with the time at which they cease to count.
    orders: BTreeMap<(Feature, Subject), Timestamp>,
    /// Kinds of the faults that last, by their numbers.
    faults: BTreeMap<u64, String>,
    /// Meetings that last, each with its workload.
    met: BTreeSet<(String, Meeting)>,
}

impl Reader {
    fn read(&mut self, entry: &Entry) {
        let orders = self.orders.len();
        self.orders.retain(|_, until| *until > entry.at);
        let mut is_changed = self.orders.len() < orders;
        match entry.world() {
            Some(World::Phase(phase)) => {
                self.is_begun = *phase >= Phase::Busy;
                is_changed = true;
            }
            Some(World::FaultBegins { id, kind, .. }) => {
                self.faults.insert(*id, kind.clone());
                is_changed = true;
            }
            Some(World::FaultEnds { id }) => {
                self.faults.remove(id);
                is_changed = true;
            }
            _ => {}
        }
        if let Some(request) = entry.commit() {
            for order in ordered_by(request) {
                self.orders.insert(order, entry.at + ORDER_LASTS);
                is_changed = true;
            }
            if request.api == Api::Fleet {
                let plural = &request.resource.plural;
                let after = request.after.as_deref();
                let set = after.map_or_else(Vec::new, |after| set_by(plural, after));
                let key = request.key();
                if WORKLOADS.contains(&plural.as_str()) {
                    is_changed |= self.workloads.insert(request.name.clone());
                }
                if self.set.get(&key).is_none_or(|was| *was != set)
                    && (self.set.contains_key(&key) || !set.is_empty())
                {
                    self.set.insert(key, set);
                    is_changed = true;
                }
            }
        }
        if is_changed && self.is_begun {
            self.meet();
        }
    }

    /// Counts what meets now and did not before.
    fn meet(&mut self) {
        let set = self.set.values().flatten().cloned();
        let all: BTreeSet<(Feature, Subject)> = set.chain(self.orders.keys().cloned()).collect();
        let mut everywhere = BTreeSet::new();
        let names = self
            .workloads
            .iter()
            .map(|name| (name.as_str(), BTreeSet::new()));
        let mut workloads: BTreeMap<&str, BTreeSet<Feature>> = names.collect();
        for (feature, subject) in &all {
            match subject {
                Subject::Workload(name) => {
                    workloads.entry(name).or_default().insert(*feature);
                }
                // Each workload of a small fleet may be in each cluster.
                Subject::Cluster(_) | Subject::Fleet => {
                    everywhere.insert(*feature);
                }
            }
        }
        let mut faults: BTreeSet<&str> = self.faults.values().map(String::as_str).collect();
        if faults.is_empty() {
            faults.insert(NO_FAULT);
        }
        let mut met = BTreeSet::new();
        for (name, features) in workloads {
            let features: Vec<Feature> = features.union(&everywhere).copied().collect();
            for (at, one) in features.iter().enumerate() {
                for other in &features[at + 1..] {
                    for fault in &faults {
                        let meeting = (*one, *other, (*fault).to_owned());
                        met.insert((name.to_owned(), meeting));
                    }
                }
            }
        }
        for (_, meeting) in met.difference(&self.met) {
            *self.pairs.0.entry(meeting.clone()).or_default() += 1;
        }
        self.met = met;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::history::{Actor, Event, Outcome, Request, Resource, Verb};

    /// A history in which things happen a second apart.
    #[derive(Default)]
    struct Story {
        history: History,
        seconds: i64,
    }

    impl Story {
        fn push(&mut self, event: Event) {
            self.seconds += 1;
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.seconds);
            self.history.push(Entry { at, event });
        }

        fn world(&mut self, world: World) {
            self.push(Event::World(world));
        }

        fn write(&mut self, plural: &str, name: &str, object: Value) {
            let mut object = object;
            object["metadata"]["name"] = json!(name);
            self.push(Event::Request(Request {
                actor: Actor::Person("ada".to_owned()),
                after: Some(Arc::new(object)),
                answered: true,
                api: Api::Fleet,
                before: None,
                name: name.to_owned(),
                namespace: None,
                outcome: Outcome::Committed,
                resource: Resource::new("", plural),
                verb: Verb::Patch,
            }));
        }

        fn fault(&mut self, id: u64, begins: bool) {
            self.world(if begins {
                World::FaultBegins {
                    detail: json!({}),
                    id,
                    kind: "lag".to_owned(),
                }
            } else {
                World::FaultEnds { id }
            });
        }
    }

    const ONE: Feature = Feature::Preserve;
    const OTHER: Feature = Feature::Cordon;

    fn cordoned() -> Value {
        json!({"spec": {"taints": [{"key": crate::feature::CORDON, "effect": "NoSchedule"}]}})
    }

    fn preserving() -> Value {
        json!({"spec": {"preserveResourcesOnDeletion": true}})
    }

    #[test]
    fn features_meet_when_they_concern_one_workload_at_a_time() {
        let mut story = Story::default();
        story.world(World::Phase(Phase::Busy));
        story.write("deployments", "web", json!({}));
        story.write("propagationpolicies", "web", preserving());
        story.write("clusters", "m1", cordoned());
        story.fault(1, true);
        story.fault(1, false);
        story.write("clusters", "m1", json!({}));
        story.write("clusters", "m1", cordoned());
        let pairs = Pairs::of(&story.history);
        assert_eq!(pairs.count(ONE, OTHER, NO_FAULT), 3);
        assert_eq!(pairs.count(OTHER, ONE, "lag"), 1);
        assert_eq!(pairs.whatever_fails(ONE, OTHER), 4);
        assert_eq!(pairs.count(ONE, Feature::Drain, NO_FAULT), 0);
    }

    #[test]
    fn features_of_two_workloads_do_not_meet() {
        let mut story = Story::default();
        story.world(World::Phase(Phase::Busy));
        story.write("propagationpolicies", "web", preserving());
        let lazy = json!({"spec": {"activationPreference": "Lazy"}});
        story.write("propagationpolicies", "api", lazy);
        let pairs = Pairs::of(&story.history);
        assert_eq!(pairs.whatever_fails(ONE, Feature::Lazy), 0);
    }
}
