//! Keys that wait until the templates of a kind have been listed.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use muster_shared::queue::{Next, Queue};

use super::template::Kind;
use super::templates::Templates;

type Waiting<K> = Arc<Mutex<HashMap<Kind, HashSet<K>>>>;

/// Keys of a queue whose work needs a template of a kind that has not been listed. A kind may not
/// be listed for a long time (it does not exist, its conversion webhook is broken, a right is
/// missing): keys that wait here cost nothing, and are added to the queue again when the kind
/// becomes known.
pub struct Parked<K> {
    templates: Templates,
    queue: Queue<K>,
    waiting: Waiting<K>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Parked<K> {
    /// Keys of a queue. Call it before any kind is named.
    pub fn new(templates: &Templates, queue: &Queue<K>) -> Self {
        let waiting: Waiting<K> = Arc::default();
        let (of, to) = (Arc::clone(&waiting), queue.clone());
        templates.on_known(move |kind| {
            let mut waiting = of.lock().unwrap_or_else(PoisonError::into_inner);
            for key in waiting.remove(kind).into_iter().flatten() {
                to.add(key);
            }
        });
        Self {
            templates: templates.clone(),
            queue: queue.clone(),
            waiting,
        }
    }

    /// Has a key worked on again when a kind becomes known.
    pub fn wait(&self, kind: &Kind, key: K) -> Next {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(kind.clone()).or_default().insert(key.clone());
        drop(waiting);
        // It may have become known since the caller looked, and then nothing tells of it any more.
        if self.templates.is_known(kind) {
            self.queue.add(key);
        }
        Next::Done
    }
}
