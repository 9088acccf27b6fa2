//! Objects about which a webhook was asked: they are interpreted again when it has answered.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use muster_interpreter::webhook::Pending;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::work::desired::ObjectKey;

/// Bytes of the objects of all kinds that are kept at most. A list shows the others again when
/// their questions are answered.
const MOST_BYTES: usize = 16 << 20;

/// Room for the objects of all kinds that wait, in bytes. Cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_BYTES)))
    }
}

/// Text of an object, and its room: a tree takes many times as much memory.
type Kept = (Box<str>, OwnedSemaphorePermit);

impl Room {
    /// Returns the text of an object, if there is room for it.
    fn keep(&self, object: &Value) -> Option<Kept> {
        let text: Box<str> = object.to_string().into();
        let bytes = u32::try_from(text.len()).ok()?;
        let room = Arc::clone(&self.0).try_acquire_many_owned(bytes);
        Some((text, room.ok()?))
    }
}

/// Objects of one kind that wait.
pub(super) struct Waiting {
    room: Room,
    /// The newest version of each object; `None` if there was no room for it.
    objects: HashMap<ObjectKey, Option<Kept>>,
    answers: FuturesUnordered<BoxFuture<'static, ObjectKey>>,
}

impl Waiting {
    /// Makes a list in which no object waits yet.
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            objects: HashMap::new(),
            answers: FuturesUnordered::new(),
        }
    }

    /// Has an object wait until a question is answered. One that changes waits once, and is looked
    /// at when the first of its questions is answered.
    pub(super) fn keep(&mut self, place: &ObjectKey, object: &Value, pending: Pending) {
        // The former version of the object makes room.
        let waits = self.objects.remove(place).is_some();
        self.objects.insert(place.clone(), self.room.keep(object));
        if !waits {
            let key = place.clone();
            self.answers.push(Box::pin(async move {
                pending.answered().await;
                key
            }));
        }
    }

    /// Forgets an object that is gone, or that was seen anew without a question.
    pub(super) fn forget(&mut self, place: &ObjectKey) {
        self.objects.remove(place);
    }

    /// Waits for an object that can be interpreted again; `None` for one that found no room. May be
    /// dropped and called again.
    pub(super) async fn answered(&mut self) -> (ObjectKey, Option<Value>) {
        loop {
            let Some(place) = self.answers.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            if let Some(kept) = self.objects.remove(&place) {
                // The text was written by `Room::keep`, so it parses.
                let object = kept.and_then(|(text, _)| serde_json::from_str(&text).ok());
                return (place, object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use muster_interpreter::Interpreters;
    use muster_interpreter::webhook::Hooks;
    use serde_json::json;

    use super::*;
    use crate::testing;

    /// Returns a question to the interpreters that nothing answers until they have other webhooks.
    fn asked(interpreters: &Interpreters, object: &Value) -> Pending {
        interpreters.health(object).unwrap_err().pending().unwrap()
    }

    fn interpreters() -> Interpreters {
        let interpreters = Interpreters::of(&[]);
        testing::ask_webhook(&interpreters, "*");
        interpreters
    }

    fn widget(name: &str, size: usize) -> (ObjectKey, Value) {
        let object = json!({ "apiVersion": "v1", "kind": "Widget", "metadata": { "name": name },
            "text": "x".repeat(size) });
        (ObjectKey::of(&object, 0).unwrap(), object)
    }

    #[tokio::test]
    async fn objects_of_all_kinds_share_the_room_and_those_without_are_reported_when_they_are_answered()
     {
        let (interpreters, room) = (interpreters(), Room::default());
        let mut kinds = [Waiting::new(room.clone()), Waiting::new(room.clone())];
        for (at, name) in ["a", "b", "c", "d", "e"].iter().enumerate() {
            let (place, object) = widget(name, MOST_BYTES / 4);
            let pending = asked(&interpreters, &object);
            kinds[at % 2].keep(&place, &object, pending);
        }
        let waits = |it: &mut Waiting| it.answered().now_or_never().is_none();
        assert!(kinds.iter_mut().all(waits));
        // Without webhooks no question is open any more, and all objects that wait are given back.
        interpreters.set_hooks(Hooks::default());
        let mut reported = Vec::new();
        for kind in &mut kinds {
            while let Some((place, object)) = kind.answered().now_or_never() {
                reported.push((place.name, object.is_some()));
            }
        }
        reported.sort();
        let expected = [
            ("a", true),
            ("b", true),
            ("c", true),
            ("d", false),
            ("e", false),
        ];
        assert_eq!(
            reported,
            expected.map(|(name, is_kept)| (name.to_owned(), is_kept))
        );
        assert_eq!(room.0.available_permits(), MOST_BYTES);
    }

    #[tokio::test]
    async fn an_object_that_changes_waits_once_in_its_newest_version() {
        let (interpreters, room) = (interpreters(), Room::default());
        let mut waiting = Waiting::new(room.clone());
        for size in 1..100 {
            let (place, object) = widget("a", size);
            waiting.keep(&place, &object, asked(&interpreters, &object));
        }
        assert_eq!(waiting.answers.len(), 1);
        let (gone, object) = widget("b", 1);
        waiting.keep(&gone, &object, asked(&interpreters, &object));
        waiting.forget(&gone);
        interpreters.set_hooks(Hooks::default());
        let Some((place, object)) = waiting.answered().now_or_never() else {
            panic!("it is answered");
        };
        assert_eq!(
            (place.name.as_str(), object),
            ("a", Some(widget("a", 99).1))
        );
        assert!(waiting.answered().now_or_never().is_none());
        assert_eq!(room.0.available_permits(), MOST_BYTES);
    }
}
