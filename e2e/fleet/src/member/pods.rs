//! All pods of a member as compact records, indexed by owner and node: a hundred thousand whole
//! pods would be a gigabyte.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::place::Amounts;

/// Namespace and name.
pub type Key = (String, String);

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// The controller that made a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
}

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Namespace and name.
    pub key: Key,
    /// Identity.
    pub uid: String,
    /// Version, to know which of two records is newer.
    pub version: u64,
    /// The controller that made it.
    pub owner: Option<Maker>,
    /// Where it runs.
    pub node: Option<String>,
    /// How far it has come.
    pub phase: Phase,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// It was asked to go.
    pub deleting: bool,
    /// When it was made.
    pub created: Timestamp,
    /// When it started.
    pub started: Option<Timestamp>,
    /// Label that says which version of a template it was made from.
    pub revision: Option<String>,
    /// The scheduler has said that there is no room.
    pub unschedulable: bool,
    /// What it asks of a node.
    pub asked: Amounts,
    /// Names and images of its containers.
    pub containers: Vec<(String, String)>,
}

impl Record {
    /// Reads a pod.
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|reference| reference.controller == Some(true));
        let condition = |kind: &str| {
            status
                .and_then(|status| status.conditions.as_ref())
                .into_iter()
                .flatten()
                .find(|condition| condition.type_ == kind)
        };
        let ready = condition("Ready").filter(|condition| condition.status == "True");
        let label = |name: &str| {
            meta.labels
                .as_ref()
                .and_then(|labels| labels.get(name))
                .cloned()
        };
        let created = meta
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Self {
            key: (
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
            owner: owner.map(|reference| Maker {
                kind: reference.kind.clone(),
                name: reference.name.clone(),
                uid: reference.uid.clone(),
            }),
            node: spec
                .and_then(|spec| spec.node_name.clone())
                .filter(|name| !name.is_empty()),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            ready_since: ready.map(|condition| {
                condition
                    .last_transition_time
                    .as_ref()
                    .map_or(created, |time| time.0)
            }),
            deleting: meta.deletion_timestamp.is_some(),
            created,
            started: status
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0),
            revision: label("pod-template-hash").or_else(|| label("controller-revision-hash")),
            unschedulable: condition("PodScheduled")
                .is_some_and(|condition| condition.status == "False"),
            asked: spec.map(Amounts::of_pod).unwrap_or_default(),
            containers: spec
                .iter()
                .flat_map(|spec| &spec.containers)
                .map(|container| {
                    (
                        container.name.clone(),
                        container.image.clone().unwrap_or_default(),
                    )
                })
                .collect(),
        }
    }

    /// Counts among its owner's replicas: neither leaving nor ended.
    pub fn active(&self) -> bool {
        !self.deleting && self.phase <= Phase::Running
    }

    /// Returns whether the pod is ready to serve.
    pub fn ready(&self) -> bool {
        self.ready_since.is_some()
    }
}

/// A change of a pod: how it was and how it is.
#[derive(Clone, Debug)]
pub struct Change {
    /// Before; `None`: it is new.
    pub old: Option<Arc<Record>>,
    /// After; `None`: it is gone.
    pub new: Option<Arc<Record>>,
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// All pods of a member.
#[derive(Default)]
pub struct Pods {
    state: Mutex<State>,
    listeners: Vec<Listener>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<Key, Arc<Record>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
    by_node: HashMap<String, BTreeSet<Key>>,
    listed: Option<BTreeMap<Key, Arc<Record>>>,
}

impl Pods {
    /// Returns a collection without pods. Listeners are called after each change and must be quick.
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self {
            state: Mutex::default(),
            listeners,
        }
    }

    /// Takes in what the watch shows.
    pub fn follow(&self, event: Event<Pod>) {
        match event {
            Event::Init => self.state.lock().listed = Some(BTreeMap::new()),
            Event::InitApply(pod) => {
                let record = Arc::new(Record::of(&pod));
                if let Some(listed) = &mut self.state.lock().listed {
                    listed.insert(record.key.clone(), record);
                }
            }
            Event::InitDone => {
                let listed = self.state.lock().listed.take().unwrap_or_default();
                let gone: Vec<Arc<Record>> = {
                    let state = self.state.lock();
                    let gone = state
                        .records
                        .values()
                        .filter(|record| !listed.contains_key(&record.key));
                    gone.cloned().collect()
                };
                for record in gone {
                    self.remove(&record.key, &record.uid);
                }
                for record in listed.into_values() {
                    self.admit(record);
                }
            }
            Event::Apply(pod) => self.admit(Arc::new(Record::of(&pod))),
            Event::Delete(pod) => {
                let record = Record::of(&pod);
                if let Some(listed) = &mut self.state.lock().listed {
                    listed.remove(&record.key);
                }
                self.remove(&record.key, &record.uid);
            }
        }
    }

    /// Takes in a pod as a write answered it, so that the writer sees it before the watch shows
    /// it.
    pub fn admit(&self, new: Arc<Record>) {
        let old = {
            let mut state = self.state.lock();
            if let Some(known) = state.records.get(&new.key)
                && (known.version >= new.version)
            {
                return;
            }
            let old = state.records.insert(new.key.clone(), Arc::clone(&new));
            if let Some(old) = &old {
                state.unlink(old);
            }
            state.link(&new);
            old
        };
        self.notify(&Change {
            old,
            new: Some(new),
        });
    }

    /// Forgets a pod of that identity.
    pub fn remove(&self, key: &Key, uid: &str) {
        let old = {
            let mut state = self.state.lock();
            match state.records.get(key) {
                Some(known) if known.uid == uid => {}
                _ => return,
            }
            let old = state.records.remove(key);
            if let Some(old) = &old {
                state.unlink(old);
            }
            old
        };
        if old.is_some() {
            self.notify(&Change { old, new: None });
        }
    }

    /// Returns one pod.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.state.lock().records.get(key).cloned()
    }

    /// Returns the pods that a controller made, by name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Record>> {
        let state = self.state.lock();
        let keys = state.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.records.get(key).cloned())
            .collect()
    }

    /// Returns the pods on a node.
    pub fn on_node(&self, node: &str) -> Vec<Arc<Record>> {
        let state = self.state.lock();
        let keys = state.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| state.records.get(key).cloned())
            .collect()
    }

    fn notify(&self, change: &Change) {
        for listener in &self.listeners {
            listener(change);
        }
    }
}

impl State {
    fn link(&mut self, record: &Record) {
        if let Some(owner) = &record.owner {
            self.by_owner
                .entry(owner.uid.clone())
                .or_default()
                .insert(record.key.clone());
        }
        if let Some(node) = &record.node {
            self.by_node
                .entry(node.clone())
                .or_default()
                .insert(record.key.clone());
        }
    }

    fn unlink(&mut self, record: &Record) {
        let owner = record.owner.as_ref().map(|owner| &owner.uid);
        for (index, name) in [
            (&mut self.by_owner, owner),
            (&mut self.by_node, record.node.as_ref()),
        ] {
            let Some(name) = name else { continue };
            if let Some(keys) = index.get_mut(name) {
                keys.remove(&record.key);
                if keys.is_empty() {
                    index.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, version: u64, node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "default", "name": name, "uid": format!("uid-{name}"),
                "resourceVersion": version.to_string(),
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r1", "controller": true}],
            },
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node},
        }))
        .unwrap()
    }

    fn names(records: &[Arc<Record>]) -> Vec<&str> {
        records.iter().map(|record| record.key.1.as_str()).collect()
    }

    #[test]
    fn pods_are_found_by_owner_and_by_node() {
        let pods = Pods::default();
        pods.follow(Event::Apply(pod("a", 1, None)));
        pods.follow(Event::Apply(pod("b", 2, Some("n"))));
        assert_eq!(names(&pods.owned_by("r1")), ["a", "b"]);
        assert_eq!(names(&pods.on_node("n")), ["b"]);
        pods.follow(Event::Delete(pod("b", 3, Some("n"))));
        assert!(pods.on_node("n").is_empty());
    }

    #[test]
    fn what_a_write_answered_is_not_undone_by_an_older_event() {
        let pods = Pods::default();
        pods.admit(Arc::new(Record::of(&pod("a", 5, Some("n")))));
        pods.follow(Event::Apply(pod("a", 4, None)));
        assert_eq!(names(&pods.on_node("n")), ["a"]);
    }

    #[test]
    fn a_new_list_forgets_what_it_does_not_name() {
        let pods = Pods::default();
        pods.follow(Event::Apply(pod("a", 1, None)));
        pods.follow(Event::Init);
        pods.follow(Event::InitApply(pod("b", 2, None)));
        pods.follow(Event::InitDone);
        assert_eq!(names(&pods.owned_by("r1")), ["b"]);
    }
}
