//! Records the history while it happens, and shows each entry to the oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_test_apiserver::store::{Change, Write};
use parking_lot::Mutex;
use serde_json::Value;

use crate::clock;
use crate::history::{
    Actor, Api, Entry, Event, History, Key, Outcome, Request, Resource, Verb, World,
};
use crate::network::{Call, Kind};
use crate::oracle::{Suite, Violation};

/// Who makes the request that a server is busy with.
#[derive(Clone, Debug)]
pub struct Author {
    /// Who asks.
    pub actor: Actor,
    /// What is asked.
    pub verb: Verb,
    /// The subresource that is asked for.
    pub subresource: String,
    /// Whether the answer will reach the caller.
    pub answered: bool,
    /// Whether the request has changed something.
    pub committed: Arc<AtomicBool>,
}

tokio::task_local! {
    static AUTHOR: Author;
}

/// Lets what is written meanwhile be that of an author.
pub async fn author<F: Future>(author: Author, work: F) -> F::Output {
    AUTHOR.scope(author, work).await
}

/// The recorder of one simulation.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    objects: BTreeMap<Key, Arc<Value>>,
    oracles: Option<Suite>,
    violations: Vec<Violation>,
}

impl Debug for Recorder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.state.lock().history.fmt(f)
    }
}

impl Recorder {
    /// Returns a recorder that shows entries to oracles.
    pub fn new(oracles: Suite) -> Arc<Self> {
        let recorder = Self::default();
        recorder.state.lock().oracles = Some(oracles);
        Arc::new(recorder)
    }

    /// Records an event of the world.
    pub fn world(&self, event: World) {
        self.state.lock().push(Event::World(event));
    }

    /// Records a request that changed nothing.
    pub fn failed(&self, author: &Author, call: &Call, outcome: Outcome) {
        if call.kind != Kind::Write {
            return;
        }
        let mut state = self.state.lock();
        let request = Request {
            api: call.api.clone(),
            actor: author.actor.clone(),
            verb: author.verb,
            resource: call.resource.clone(),
            namespace: some(&call.namespace),
            name: call.name.clone(),
            before: None,
            after: None,
            outcome,
            answered: author.answered && outcome != Outcome::Lost,
        };
        let held = state.objects.get(&request.key()).cloned();
        state.push(Event::Request(Request {
            before: held.clone(),
            after: held,
            ..request
        }));
    }

    /// Records a committed write.
    pub fn committed(&self, api: &Api, write: &Write<'_>) {
        let author = AUTHOR.try_with(Clone::clone).ok();
        let change = write.event.change;
        let head = &write.event.object.head;
        let (group, plural) = write.resource.split_once('/').unwrap_or_default();
        let own = match change {
            Change::Added => Verb::Create,
            Change::Modified => Verb::Update,
            Change::Deleted => Verb::Delete,
        };
        // What follows from a request (an owner's deletion, a name that is generated) keeps its
        // author.
        let (actor, verb, subresource, answered) = match author {
            Some(author) => {
                author.committed.store(true, Ordering::Relaxed);
                (
                    author.actor,
                    author.verb,
                    author.subresource,
                    author.answered,
                )
            }
            None => (Actor::Server, own, String::new(), true),
        };
        let mut state = self.state.lock();
        let mut request = Request {
            api: api.clone(),
            actor,
            verb,
            resource: Resource::new(group, plural).subresource(&subresource),
            namespace: some(head.namespace()),
            name: head.name().to_owned(),
            before: None,
            after: None,
            outcome: Outcome::Committed,
            answered,
        };
        let key = request.key();
        request.before = state.objects.get(&key).cloned();
        if change == Change::Deleted {
            state.objects.remove(&key);
        } else {
            let object = Arc::new(write.event.object.value());
            request.after = Some(Arc::clone(&object));
            state.objects.insert(key, object);
        }
        state.push(Event::Request(request));
    }

    /// Records that the store of the standby is that of the fleet API from now on: as if somebody
    /// had written what differs.
    pub fn exchange(&self) {
        let mut state = self.state.lock();
        let (mut former, mut restored) = (BTreeMap::new(), BTreeMap::new());
        for (key, object) in std::mem::take(&mut state.objects) {
            let api = |api| Key { api, ..key.clone() };
            match key.api {
                Api::Fleet => former.insert(api(Api::Fleet), object),
                Api::Standby => restored.insert(api(Api::Fleet), object),
                Api::Member(_) => state.objects.insert(key, object),
            };
        }
        let keys: BTreeSet<&Key> = former.keys().chain(restored.keys()).collect();
        for key in keys {
            let (before, after) = (former.get(key), restored.get(key));
            let verb = match (before, after) {
                (Some(before), Some(after)) if is_same(before, after) => continue,
                (Some(_), Some(_)) => Verb::Update,
                (None, _) => Verb::Create,
                (_, None) => Verb::Delete,
            };
            state.push(Event::Request(Request {
                api: Api::Fleet,
                actor: Actor::Setup,
                verb,
                resource: Resource::new(&key.group, &key.plural),
                namespace: some(&key.namespace),
                name: key.name.clone(),
                before: before.cloned(),
                after: after.cloned(),
                outcome: Outcome::Committed,
                answered: true,
            }));
        }
        let former = former.into_iter().map(|(key, object)| {
            let api = Api::Standby;
            (Key { api, ..key }, object)
        });
        state.objects.extend(former.chain(restored));
        state.push(Event::World(World::Promoted));
    }

    /// Returns all objects of all APIs.
    pub fn objects(&self) -> BTreeMap<Key, Arc<Value>> {
        self.state.lock().objects.clone()
    }

    /// Returns one object.
    pub fn object(&self, key: &Key) -> Option<Arc<Value>> {
        self.state.lock().objects.get(key).cloned()
    }

    /// Calls a function with the history.
    pub fn with_history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.state.lock().history)
    }

    /// Violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.state.lock().violations.clone()
    }

    /// Asks the oracles about the end, and returns all violations.
    pub fn end(&self, end: &crate::oracle::End) -> Vec<Violation> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(oracles) = &mut state.oracles {
            state.violations.extend(oracles.end(end));
        }
        state.violations.clone()
    }

    /// Takes the history out.
    pub fn take_history(&self) -> History {
        std::mem::take(&mut self.state.lock().history)
    }
}

impl State {
    fn push(&mut self, event: Event) {
        let at = clock::now();
        let entry = self.history.push(Entry { at, event });
        if let Some(oracles) = &mut self.oracles {
            self.violations.extend(oracles.observe(entry));
        }
    }
}

/// Returns whether two objects differ by their versions at most.
fn is_same(one: &Value, other: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = Value::Null;
        object
    };
    without(one) == without(other)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
