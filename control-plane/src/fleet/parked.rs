//! Keys that wait until the templates of a kind have been listed.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use muster_interpreter::webhook::Pending;
use muster_shared::queue::{Next, Queue};
use parking_lot::Mutex;

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
            let mut waiting = of.lock();
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
        self.waiting
            .lock()
            .entry(kind.clone())
            .or_default()
            .insert(key.clone());
        // It may have become known since the caller read it, and then nothing reports it any more.
        if self.templates.is_known(kind) {
            self.leave(&key);
            self.queue.add(key);
        }
        Next::Done
    }

    /// Has a key worked on again when a webhook has answered, if that is the reason of an error.
    /// Returns whether it is; then nothing has failed, and what is there stays.
    pub fn waits(&self, error: &muster_interpreter::Error, key: &K) -> bool {
        error.waits(&self.queue, || key.clone())
    }

    /// Has a key worked on again when a webhook has answered about the present version of an
    /// object. Until then its answer about an earlier one counts.
    pub fn wakes(&self, pending: Pending, key: &K) {
        pending.wakes(&self.queue, key.clone());
    }

    /// Forgets a key whose object is gone.
    pub fn leave(&self, key: &K) {
        self.waiting.lock().retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_keys_that_came_and_went_while_they_waited() {
        let nothing = tower::service_fn(|_: Request<Body>| async {
            let response = Response::builder().status(404);
            Ok::<_, std::io::Error>(response.body(Body::empty()).unwrap())
        });
        let client = Client::new(nothing, "default");
        let templates = Templates::new(client.clone(), client, CancellationToken::new());
        let queue = Queue::new("test");
        let parked = Parked::new(&templates, &queue);
        let missing = [
            Kind::new("example.com/v1", "A"),
            Kind::new("example.com/v1", "B"),
        ];
        parked.wait(&missing[0], "stays".to_owned());
        for number in 0..100_000 {
            let key = format!("k{number}");
            for kind in &missing {
                parked.wait(kind, key.clone());
            }
            parked.leave(&key);
        }
        // Nothing waits for a kind that is known.
        let known = Kind::new("v1", "Event");
        parked.wait(&known, "known".to_owned());
        assert_eq!(queue.len(), 1);
        let waiting = parked.waiting.lock();
        let keys: Vec<_> = waiting.values().flatten().collect();
        assert_eq!(keys, ["stays"]);
        assert_eq!(waiting.len(), 1);
    }
}
