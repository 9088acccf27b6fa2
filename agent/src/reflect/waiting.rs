//! Objects about which a webhook was asked: they are looked at again when it has answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use muster_interpreter::webhook::Pending;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::work::desired::ObjectKey;

/// Bytes of the objects of all kinds that are kept at most. The others are read again.
const MOST_BYTES: usize = 16 << 20;
/// Objects of all kinds that are read again at a time.
const MOST_READ: usize = 4;

/// What the objects of all kinds that wait may take together. Cheap to clone.
#[derive(Clone)]
pub struct Room {
    taken: Arc<AtomicUsize>,
    reads: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            taken: Arc::default(),
            reads: Arc::new(Semaphore::new(MOST_READ)),
        }
    }
}

impl Room {
    /// Returns the text of an object, if there is room for it.
    fn keep(&self, object: &Value) -> Option<Kept> {
        let text: Box<str> = object.to_string().into();
        let before = self.taken.fetch_add(text.len(), Ordering::Relaxed);
        // Gives the room back where it is too much.
        let kept = Kept {
            text,
            room: self.clone(),
        };
        (before + kept.text.len() <= MOST_BYTES).then_some(kept)
    }
}

/// Text of an object: a tree takes many times as much memory.
struct Kept {
    text: Box<str>,
    room: Room,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.room
            .taken
            .fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

/// An object that was read again.
pub(super) enum Read {
    /// The object, and the reason why it cannot be read as a whole.
    Object(Value, Option<String>),
    /// There is none: the watch tells of that.
    Gone,
    /// The member has not answered.
    Failed,
}

/// Reads an object of the kind from the member.
pub(super) type Reader = Arc<dyn Fn(ObjectKey) -> BoxFuture<'static, Read> + Send + Sync>;

/// What is to be done after an answer.
pub(super) enum Next {
    /// Look at the object, of which the second text says why it cannot be read.
    Look(ObjectKey, Value, Option<String>),
    /// List all objects, because one cannot be read.
    List,
}

/// Objects of one kind that wait.
pub(super) struct Waiting {
    room: Room,
    reader: Reader,
    /// The newest version of each object; `None` where there is no room for it.
    objects: HashMap<ObjectKey, Option<Kept>>,
    answers: FuturesUnordered<BoxFuture<'static, (ObjectKey, Option<Read>)>>,
}

impl Waiting {
    /// Makes a list in which no object waits yet.
    pub(super) fn new(room: Room, reader: Reader) -> Self {
        Self {
            room,
            reader,
            objects: HashMap::new(),
            answers: FuturesUnordered::new(),
        }
    }

    /// Has an object wait until a question is answered. One that changes waits once, and is looked
    /// at when the first of its questions is answered.
    pub(super) fn keep(&mut self, place: &ObjectKey, object: &Value, pending: Pending) {
        // Its former version makes room.
        let waits = self.objects.remove(place).is_some();
        let kept = self.room.keep(object);
        self.objects.insert(place.clone(), kept);
        if !waits {
            let key = place.clone();
            self.answers.push(Box::pin(async move {
                pending.answered().await;
                (key, None)
            }));
        }
    }

    /// Forgets an object that is gone, or that was seen anew without a question.
    pub(super) fn forget(&mut self, place: &ObjectKey) {
        self.objects.remove(place);
    }

    /// Waits for an object that can be looked at again. May be dropped and called again.
    pub(super) async fn answered(&mut self) -> Next {
        loop {
            let Some((place, read)) = self.answers.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let Some(kept) = self.objects.remove(&place) else {
                continue;
            };
            let kept = kept.and_then(|kept| serde_json::from_str(&kept.text).ok());
            match (kept, read) {
                // What the watch has shown meanwhile is as new as what was read.
                (Some(object), _) => return Next::Look(place, object, None),
                (None, Some(Read::Object(object, unreadable))) => {
                    return Next::Look(place, object, unreadable);
                }
                (None, Some(Read::Gone)) => {}
                (None, Some(Read::Failed)) => return Next::List,
                (None, None) => {
                    self.objects.insert(place.clone(), None);
                    let (reader, reads) = (Arc::clone(&self.reader), Arc::clone(&self.room.reads));
                    self.answers.push(Box::pin(async move {
                        // It is never closed.
                        let _permit = reads.acquire_owned().await;
                        let read = reader(place.clone()).await;
                        (place, Some(read))
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use muster_interpreter::Interpreters;
    use muster_interpreter::webhook::Hooks;
    use serde_json::json;

    use super::*;

    /// Returns a question to the interpreters that nothing answers until they have other webhooks.
    fn asked(interpreters: &Interpreters, object: &Value) -> Pending {
        interpreters.health(object).unwrap_err().pending().unwrap()
    }

    fn interpreters() -> Interpreters {
        muster_shared::tls::install_provider();
        let configuration = json!({ "metadata": { "name": "c" }, "webhooks": [{
            "name": "w.example.com", "interpreterContextVersions": ["v1alpha1"],
            "clientConfig": { "url": "https://localhost:1/" },
            "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"] }],
        }] });
        let interpreters = Interpreters::of(&[]);
        let configuration = serde_json::from_value(configuration).unwrap();
        interpreters.set_hooks(Hooks::new([&configuration]));
        interpreters
    }

    fn widget(name: &str, size: usize) -> (ObjectKey, Value) {
        let object = json!({ "apiVersion": "v1", "kind": "Widget", "metadata": { "name": name },
            "text": "x".repeat(size) });
        (ObjectKey::of(&object, 0).unwrap(), object)
    }

    fn waiting(room: &Room, reads: &Arc<Mutex<Vec<String>>>) -> Waiting {
        let reads = Arc::clone(reads);
        let reader = move |place: ObjectKey| -> BoxFuture<'static, Read> {
            let read = match place.name.as_str() {
                "gone" => Read::Gone,
                "failing" => Read::Failed,
                name => Read::Object(json!({ "read": name }), None),
            };
            reads.lock().unwrap().push(place.name);
            Box::pin(async move { read })
        };
        Waiting::new(room.clone(), Arc::new(reader))
    }

    #[tokio::test]
    async fn objects_of_all_kinds_share_the_room_and_those_without_are_read_again() {
        let (interpreters, room) = (interpreters(), Room::default());
        let reads = Arc::default();
        let mut kinds = [waiting(&room, &reads), waiting(&room, &reads)];
        let large = MOST_BYTES / 4;
        for (at, name) in ["a", "b", "c", "d", "e", "gone", "failing"]
            .iter()
            .enumerate()
        {
            let (place, object) = widget(name, large);
            let pending = asked(&interpreters, &object);
            kinds[at % 2].keep(&place, &object, pending);
        }
        let taken = room.taken.load(Ordering::Relaxed);
        assert!((3 * large..=MOST_BYTES).contains(&taken), "{taken}");
        assert!(
            kinds
                .iter_mut()
                .all(|it| it.answered().now_or_never().is_none())
        );
        // What waits wakes up.
        interpreters.set_hooks(Hooks::default());
        let (mut kept, mut read, mut lists) = (Vec::new(), Vec::new(), 0);
        for kind in &mut kinds {
            while let Some(next) = kind.answered().now_or_never() {
                match next {
                    Next::Look(place, object, None) if object["read"] == *place.name => {
                        read.push(place.name);
                    }
                    Next::Look(place, ..) => kept.push(place.name),
                    Next::List => lists += 1,
                }
            }
        }
        kept.sort();
        read.sort();
        assert_eq!(
            (kept.concat(), read.concat(), lists),
            ("abc".into(), "de".into(), 1)
        );
        assert_eq!(reads.lock().unwrap().len(), 4, "each once");
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn an_object_that_changes_waits_once_in_its_newest_version() {
        let (interpreters, room) = (interpreters(), Room::default());
        let mut waiting = waiting(&room, &Arc::default());
        for size in 1..100 {
            let (place, object) = widget("a", size);
            waiting.keep(&place, &object, asked(&interpreters, &object));
        }
        assert_eq!(waiting.answers.len(), 1);
        let (gone, object) = widget("b", 1);
        waiting.keep(&gone, &object, asked(&interpreters, &object));
        waiting.forget(&gone);
        interpreters.set_hooks(Hooks::default());
        let Some(Next::Look(place, object, None)) = waiting.answered().now_or_never() else {
            panic!("it is answered");
        };
        assert_eq!((place.name.as_str(), object), ("a", widget("a", 99).1));
        assert!(waiting.answered().now_or_never().is_none());
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
