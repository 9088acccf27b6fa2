//! Objects about which a webhook was asked: they are looked at again when it has answered.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use muster_shared::interpreter::webhook::Pending;
use serde_json::Value;

use crate::work::desired::ObjectKey;

/// Objects that are kept at most: whole objects. The others are shown again by a list.
const MOST: usize = 256;
/// Time after which a list shows the objects again for which there was no room.
const LIST_AGAIN: Duration = Duration::from_secs(5);

/// Objects of one kind that wait.
#[derive(Default)]
pub(super) struct Waiting {
    /// The newest version of each object.
    objects: HashMap<ObjectKey, Value>,
    answers: FuturesUnordered<BoxFuture<'static, ObjectKey>>,
}

impl Waiting {
    /// Keeps an object until a question is answered. Returns the time after which a list has to
    /// show it again, where there is no room.
    pub(super) fn keep(
        &mut self,
        place: &ObjectKey,
        object: Value,
        pending: Pending,
    ) -> Option<Duration> {
        if self.objects.len() >= MOST && !self.objects.contains_key(place) {
            return Some(LIST_AGAIN);
        }
        let key = place.clone();
        // One that changes all the time does not make a future each time.
        if self.objects.insert(key.clone(), object).is_none() || self.answers.len() < 2 * MOST {
            self.answers.push(Box::pin(async move {
                pending.answered().await;
                key
            }));
        }
        None
    }

    /// Forgets an object that is gone, or that was seen anew without a question.
    pub(super) fn forget(&mut self, place: &ObjectKey) {
        self.objects.remove(place);
    }

    /// Waits for an object that can be looked at again. May be dropped and called again.
    pub(super) async fn answered(&mut self) -> (ObjectKey, Value) {
        loop {
            match self.answers.next().await {
                Some(place) => {
                    if let Some(object) = self.objects.remove(&place) {
                        return (place, object);
                    }
                }
                None => std::future::pending().await,
            }
        }
    }
}
