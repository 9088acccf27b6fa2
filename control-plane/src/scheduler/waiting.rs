//! The bindings without a decision, and what would have to change for them to get one.
//!
//! A fleet reports all the time, and thousands of bindings may wait: what one report costs must not grow with them. Those that may go to
//! the same clusters and ask for the same amounts are one class, of which one answer is worked out for each change, and a class wakes
//! those of its bindings only whose lack of room is made up for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::api::binding::ResourceBindingSpec;

use super::capacity::GradeRule;
use super::measure;
use super::news::{ClusterNews, Help, Needs};
use super::wish::{Wait, Wish};

/// Room that appears wakes the waiting this much later, so that many reports of many clusters are answered once.
const GATHER_ROOM: Duration = Duration::from_millis(300);
/// The longest time that a binding waits for its next look when room has appeared. It doubles with each look in vain.
const LONGEST_GATHER: Duration = Duration::from_mins(1);

/// Who waits for what; `K` names a binding.
#[derive(Debug)]
pub struct Waiting<K>(Mutex<State<K>>);

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self(Mutex::new(State {
            deciding: HashSet::new(),
            entries: HashMap::new(),
            classes: HashMap::new(),
        }))
    }
}

#[derive(Debug)]
struct State<K> {
    /// Bindings that are being looked at: any change may have come too late for that look.
    deciding: HashSet<K>,
    entries: HashMap<K, Entry>,
    classes: HashMap<Arc<str>, Class<K>>,
}

#[derive(Debug)]
struct Entry {
    class: Arc<str>,
    wish: Wish,
    /// The growth of its class with which it is helped.
    due: i64,
    /// Looks in vain, one after the other.
    vain: u32,
}

#[derive(Debug)]
struct Class<K> {
    needs: Needs,
    members: usize,
    /// Replicas for which room has appeared since the class exists. Room that went is not counted: a look too many does no harm.
    growth: i64,
    admission: BTreeSet<K>,
    /// With the growth at which each is helped.
    room: BTreeSet<(i64, K)>,
    anything: BTreeSet<K>,
}

impl<K: Clone + Ord + Hash> Waiting<K> {
    /// A look at the binding begins. Call it before the clusters are read, and [`put`](Self::put) when the look has ended.
    pub fn begin(&self, key: K) {
        self.lock().deciding.insert(key);
    }

    /// A look has ended: the binding waits for this, or, for `None`, waits no more.
    pub fn put(&self, key: &K, wait: Option<(&ResourceBindingSpec, Wait)>) {
        let mut state = self.lock();
        state.deciding.remove(key);
        let vain = state.take(key).map_or(0, |entry| entry.vain);
        if let Some((spec, wait)) = wait {
            state.insert(key, spec, wait, vain.saturating_add(1));
        }
        measure::waiting(state.entries.len());
    }

    /// The bindings that a change of clusters helps, each with the time after which it is to be looked at. They are not named again
    /// before they have been looked at.
    pub fn helped(&self, news: &[ClusterNews<'_>], rule: GradeRule) -> Vec<(K, Duration)> {
        let mut state = self.lock();
        let State {
            deciding,
            entries,
            classes,
        } = &mut *state;
        let mut helped: Vec<(K, Duration)> = Vec::new();
        if !news.is_empty() {
            helped.extend(deciding.iter().map(|key| (key.clone(), Duration::ZERO)));
        }
        for class in classes.values_mut() {
            let help = news.iter().fold(Help::default(), |help, news| {
                help.and(news.help(&class.needs, rule))
            });
            class.growth = class.growth.saturating_add(help.growth);
            let at_once = |keys: BTreeSet<K>| keys.into_iter().map(|key| (key, Duration::ZERO));
            if help.admits {
                helped.extend(at_once(std::mem::take(&mut class.admission)));
                let room = std::mem::take(&mut class.room);
                helped.extend(room.into_iter().map(|(_, key)| (key, Duration::ZERO)));
            }
            if help.touches {
                helped.extend(at_once(std::mem::take(&mut class.anything)));
            }
            if help.growth > 0 {
                while let Some((due, _)) = class.room.first()
                    && *due <= class.growth
                    && let Some((_, key)) = class.room.pop_first()
                {
                    helped.push((key, GATHER_ROOM));
                }
                for key in std::mem::take(&mut class.anything) {
                    let vain = entries.get(&key).map_or(0, |entry| entry.vain);
                    helped.push((key, pause(vain)));
                }
            }
        }
        helped
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Ord + Hash> State<K> {
    fn insert(&mut self, key: &K, spec: &ResourceBindingSpec, wait: Wait, vain: u32) {
        let name: Arc<str> = Needs::name(spec).into();
        let class = self.classes.entry(Arc::clone(&name));
        let class = class.or_insert_with(|| Class {
            needs: Needs::of(spec),
            members: 0,
            growth: 0,
            admission: BTreeSet::new(),
            room: BTreeSet::new(),
            anything: BTreeSet::new(),
        });
        class.members += 1;
        let due = class.growth.saturating_add(wait.lacking.max(1));
        match wait.wish {
            Wish::Nothing => {}
            Wish::Admission => {
                class.admission.insert(key.clone());
            }
            Wish::Room => {
                class.room.insert((due, key.clone()));
            }
            Wish::Anything => {
                class.anything.insert(key.clone());
            }
        }
        let entry = Entry {
            class: name,
            wish: wait.wish,
            due,
            vain,
        };
        self.entries.insert(key.clone(), entry);
    }

    fn take(&mut self, key: &K) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Some(class) = self.classes.get_mut(&entry.class) {
            match entry.wish {
                Wish::Nothing => {}
                Wish::Admission => {
                    class.admission.remove(key);
                }
                Wish::Room => {
                    class.room.remove(&(entry.due, key.clone()));
                }
                Wish::Anything => {
                    class.anything.remove(key);
                }
            }
            class.members -= 1;
            if class.members == 0 {
                self.classes.remove(&entry.class);
            }
        }
        Some(entry)
    }
}

/// The time after which a binding is looked at that may be helped by room anywhere: many reports are answered by one look, and the more
/// looks were in vain, the more reports.
fn pause(vain: u32) -> Duration {
    let doubled = GATHER_ROOM.saturating_mul(1 << vain.saturating_sub(1).min(16));
    doubled.min(LONGEST_GATHER)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::fixtures::{aggregated, cluster, decoded, deployment, tainted};

    /// Who is woken when the cluster changes so.
    fn helped(waiting: &Waiting<&'static str>, old: &Value, new: &Value) -> Vec<&'static str> {
        let (old, new) = (decoded(old), decoded(new));
        let news: Vec<_> = ClusterNews::between(Some(&old), Some(&new))
            .into_iter()
            .collect();
        let mut helped: Vec<_> = waiting
            .helped(&news, GradeRule::Minimums)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        helped.sort_unstable();
        helped
    }

    #[test]
    fn who_lacks_room_is_woken_when_as_much_has_appeared_and_once_only() {
        let waiting = Waiting::default();
        let spec = deployment(30, &aggregated());
        let wait = |lacking| Wait {
            wish: Wish::Room,
            lacking,
        };
        waiting.put(&"lacks 1", Some((&spec, wait(1))));
        waiting.put(&"lacks 5", Some((&spec, wait(5))));
        let at = |cores| cluster("m", cores);
        assert_eq!(helped(&waiting, &at(10), &at(13)), ["lacks 1"]);
        assert!(
            helped(&waiting, &at(13), &at(14)).is_empty(),
            "1 is woken, 5 lacks one more"
        );
        assert_eq!(helped(&waiting, &at(14), &at(15)), ["lacks 5"]);
        assert!(helped(&waiting, &at(15), &at(99)).is_empty());
        // Looked at in vain, it waits for as much as it lacks then.
        waiting.put(&"lacks 5", Some((&spec, wait(2))));
        assert!(helped(&waiting, &at(10), &at(11)).is_empty());
        assert_eq!(helped(&waiting, &at(10), &at(11)), ["lacks 5"]);
        // One that waits no more is forgotten.
        waiting.put(&"lacks 1", Some((&spec, wait(1))));
        waiting.put(&"lacks 1", None);
        waiting.put(&"lacks 5", None);
        assert!(helped(&waiting, &at(10), &at(99)).is_empty());
        assert!(waiting.lock().classes.is_empty());
    }

    #[test]
    fn a_cluster_that_admits_again_wakes_whoever_may_go_there_whatever_it_lacks() {
        let waiting = Waiting::default();
        let here = deployment(30, &aggregated());
        let mut elsewhere = aggregated();
        elsewhere["clusterAffinity"] = json!({ "clusterNames": ["other"] });
        let elsewhere = deployment(30, &elsewhere);
        for (key, spec, wish) in [
            ("admission", &here, Wish::Admission),
            ("room", &here, Wish::Room),
            ("anything", &here, Wish::Anything),
            ("nothing", &here, Wish::Nothing),
            ("elsewhere", &elsewhere, Wish::Anything),
        ] {
            waiting.put(&key, Some((spec, Wait { wish, lacking: 100 })));
        }
        let ill = tainted("m", 10, "x", "NoSchedule");
        assert_eq!(
            helped(&waiting, &ill, &cluster("m", 10)),
            ["admission", "anything", "room"]
        );
    }

    #[test]
    fn a_change_during_a_look_is_not_missed() {
        let waiting = Waiting::default();
        waiting.begin("looking");
        assert!(helped(&waiting, &cluster("m", 10), &cluster("m", 10)).is_empty());
        assert_eq!(
            helped(&waiting, &cluster("m", 10), &cluster("m", 11)),
            ["looking"]
        );
        waiting.put(&"looking", None);
        assert!(helped(&waiting, &cluster("m", 10), &cluster("m", 11)).is_empty());
    }

    #[test]
    fn looks_in_vain_become_rarer() {
        let millis = |vain| pause(vain).as_millis();
        assert_eq!([millis(1), millis(2), millis(5)], [300, 600, 4_800]);
        assert_eq!(pause(u32::MAX), LONGEST_GATHER);
    }

    #[test]
    fn alike_bindings_are_one_class_however_many_they_are() {
        let waiting = Waiting::default();
        for number in 0..1_000 {
            let cores = ["1", "2", "3"][number % 3];
            let mut spec = deployment(30, &aggregated());
            spec.replica_requirements =
                serde_json::from_value(json!({ "resourceRequest": { "cpu": cores } })).unwrap();
            let wait = Wait {
                wish: Wish::Room,
                lacking: 1_000,
            };
            waiting.put(&number, Some((&spec, wait)));
        }
        assert_eq!(waiting.lock().classes.len(), 3);
    }
}
