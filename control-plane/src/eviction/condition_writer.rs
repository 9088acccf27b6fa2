//! Writes the conditions and events of evictions, in the background.
//!
//! Of several notes about one binding and one cluster only the latest is written, and the condition
//! covers all clusters that the workload has to leave. Very many bindings may wait for the rate at
//! once, so such notes are written slowly and do not delay others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::Patch;
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::client;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use serde_json::json;
use tokio::time::Instant;

use super::evictor::Key;
use super::explain::{self, Note, Turn};
use crate::fleet::Fleet;
use crate::fleet::binding::event_reference;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};

/// Writers of notes that should be read at once, and of those that can wait.
const URGENT: usize = 8;
const PATIENT: usize = 2;
/// How long a note that can wait does so: many are overtaken by a better one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause of a patient writer after each note: 100 a second, a tenth of what an API server takes.
const PACE: Duration = Duration::from_millis(20);
/// How long the reason why no cluster takes a workload may be out of date, while that there is none
/// stays true: the numbers in it change with every report of any cluster.
const STALE: Duration = Duration::from_mins(5);

#[derive(Debug, thiserror::Error)]
#[error("cannot explain the eviction of {key}: {}", client::brief(error))]
struct Error {
    key: Key,
    error: Box<kube::Error>,
}

/// What is known of one workload: what is pending, and what came to an end and was not told yet.
/// One entry for each cluster, by name. A list, since there are as many of these as workloads wait,
/// and most have one entry.
#[derive(Clone, Debug, Default)]
struct Book(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    note: Note,
    /// When it was written.
    told: Option<Instant>,
}

impl Book {
    /// Takes a note; says whether it is news.
    fn take(&mut self, note: Note, now: Instant) -> bool {
        match self.place(&note.cluster) {
            Ok(at) => {
                let known = &mut self.0[at];
                let both_nowhere = matches!(
                    (&known.note.turn, &note.turn),
                    (Turn::Nowhere { .. }, Turn::Nowhere { .. })
                );
                let is_known = known.told.is_some_and(|told| {
                    known.note == note || both_nowhere && now.duration_since(told) < STALE
                });
                if !is_known {
                    *known = Entry { note, told: None };
                }
                !is_known
            }
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, Entry { note, told: None });
                true
            }
        }
    }

    /// All notes.
    fn notes(&self) -> Vec<Note> {
        self.0.iter().map(|entry| entry.note.clone()).collect()
    }

    /// The notes that were not written yet.
    fn untold(&self) -> impl Iterator<Item = &Note> {
        let untold = self.0.iter().filter(|entry| entry.told.is_none());
        untold.map(|entry| &entry.note)
    }

    /// These notes were written: what came to an end is forgotten.
    fn told(&mut self, notes: &[Note], now: Instant) {
        for note in notes {
            let Ok(at) = self.place(&note.cluster) else {
                continue;
            };
            if self.0[at].note != *note {
                // There has been news since.
                continue;
            }
            if note.is_pending() {
                self.0[at].told.get_or_insert(now);
            } else {
                self.0.remove(at);
            }
        }
    }

    fn place(&self, cluster: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|entry| entry.note.cluster.as_str().cmp(cluster))
    }
}

/// Takes notes. Cheap to clone.
#[derive(Clone)]
pub struct ConditionWriter {
    books: Arc<Mutex<HashMap<Key, Book>>>,
    urgent: Queue<Key>,
    patient: Queue<Key>,
}

impl ConditionWriter {
    /// Starts the writers.
    pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) -> Self {
        let writer = Self {
            books: Arc::default(),
            urgent: Queue::new("eviction notes"),
            patient: Queue::new("eviction notes that can wait"),
        };
        for (name, queue, writers, pace) in [
            ("eviction notes", &writer.urgent, URGENT, Duration::ZERO),
            ("patient eviction notes", &writer.patient, PATIENT, PACE),
        ] {
            let writer = writer.clone();
            fleet.work(
                tasks,
                name,
                queue.clone(),
                writers,
                move |fleet, key: Key| {
                    let writer = writer.clone();
                    async move {
                        let next = if key.namespace.is_some() {
                            writer.write::<ResourceBinding>(&fleet, key).await
                        } else {
                            writer.write::<ClusterResourceBinding>(&fleet, key).await
                        };
                        tokio::time::sleep(pace).await;
                        next
                    }
                },
            );
        }
        writer
    }

    /// Takes notes, all before any is written; each replaces an earlier one about the same binding
    /// and cluster.
    pub fn tell(&self, notes: Vec<(Key, Note)>) {
        let (now, mut news) = (Instant::now(), Vec::new());
        let mut books = self.lock();
        for (key, note) in notes {
            let urgent = note.is_urgent();
            if books.entry(key.clone()).or_default().take(note, now) {
                news.push((key, urgent));
            }
        }
        drop(books);
        for (key, urgent) in news {
            if urgent {
                self.urgent.add(key);
            } else {
                self.patient.add_after(key, PATIENCE);
            }
        }
    }

    /// Forgets what was to be told of bindings that are gone: others of their names have nothing to
    /// do with it.
    pub fn forget(&self, gone: &[Key]) {
        for key in gone {
            self.lock().remove(key);
        }
    }

    async fn write<B: BindingKind>(&self, fleet: &Fleet, key: Key) -> Result<Next, Error> {
        // The next workload leaves before the last is told of.
        let client = fleet.status_writer.turn().await;
        let Some(book) = self.lock().get(&key).cloned() else {
            return Ok(Next::Done);
        };
        if book.untold().next().is_none() {
            return Ok(Next::Done);
        }
        let binding = B::cache(fleet).get(key.namespace.as_deref(), &key.name);
        let Some(binding) = binding.filter(|it| it.meta().deletion_timestamp.is_none()) else {
            self.lock().remove(&key);
            return Ok(Next::Done);
        };
        let notes = book.notes();
        let before = &binding.status().conditions;
        if let Some(list) = explain::merge(before, &notes, fleet.clock.now()) {
            let patch = json!({
                "metadata": {"resourceVersion": binding.meta().resource_version},
                "status": {"conditions": list},
            });
            let api = B::api(&client, &key);
            match api
                .patch_status(&key.name, &patch_params(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => book
                    .untold()
                    .for_each(|note| publish(fleet, binding.as_ref(), note)),
                Err(error) if client::is_conflict(&error) => return Ok(Next::Again),
                Err(error) if client::is_not_found(&error) => {}
                Err(error) => {
                    return Err(Error {
                        key,
                        error: Box::new(error),
                    });
                }
            }
        }
        let mut books = self.lock();
        if let Some(book) = books.get_mut(&key) {
            book.told(&notes, Instant::now());
            if book.0.is_empty() {
                books.remove(&key);
            }
        }
        Ok(Next::Done)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Book>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn publish<B: Binding>(fleet: &Fleet, binding: &B, note: &Note) {
    let (key, cluster, reason) = (BindingKey::of(binding), &note.cluster, note.reason());
    if !matches!(note.turn, Turn::Evicted { .. }) {
        // That was logged as it happened.
        tracing::info!(binding = %key, cluster, reason, "{}", note.message());
    }
    fleet
        .events
        .publish(binding, note.severity(), note.reason(), note.message());
    if matches!(
        note.turn,
        Turn::Evicted { .. }
            | Turn::Nowhere { .. }
            | Turn::Unpreserved { .. }
            | Turn::Failed { .. }
    ) {
        let resource = event_reference(&binding.spec().resource);
        fleet
            .events
            .publish_about(resource, note.severity(), note.reason(), note.message());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(cluster: &str, turn: Turn) -> Note {
        Note {
            cluster: cluster.into(),
            turn,
        }
    }

    fn nowhere(cluster: &str, why: &str) -> Note {
        let (cause, why) = ("taint x:NoExecute".into(), why.into());
        note(cluster, Turn::Nowhere { cause, why })
    }

    #[tokio::test(start_paused = true)]
    async fn that_there_is_no_place_is_written_once_and_its_numbers_not_with_every_report() {
        let start = Instant::now();
        let mut book = Book::default();
        assert!(book.take(nowhere("m1", "3 are full"), start));
        book.told(&book.notes(), start);
        let mut written = Vec::new();
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            if book.take(nowhere("m1", &format!("{second} are full")), now) {
                written.push(second);
                book.told(&book.notes(), now);
            }
        }
        let expected: Vec<u64> = (1..12).map(|five| five * 300).collect();
        assert_eq!(written, expected, "one every five minutes");
        let queued = note("m1", Turn::Queued { cause: "x".into() });
        assert!(book.take(queued.clone(), start), "another turn is news");
        book.told(&book.notes(), start);
        assert!(!book.take(queued, start), "the same is none");
    }

    #[test]
    fn a_book_remembers_what_is_pending_until_that_comes_to_an_end() {
        let now = Instant::now();
        let mut book = Book::default();
        book.take(nowhere("m1", "full"), now);
        book.take(nowhere("m2", "full"), now);
        book.told(&book.notes(), now);
        book.take(note("m1", Turn::Recovered), now);
        let untold: Vec<&Note> = book.untold().collect();
        assert_eq!(untold, [&note("m1", Turn::Recovered)]);
        assert_eq!(book.notes().len(), 2, "the condition speaks of both");
        let written = book.notes();
        book.take(nowhere("m1", "full"), now);
        book.told(&written, now);
        assert_eq!(
            book.untold().count(),
            1,
            "what came meanwhile is written, too"
        );
        book.take(note("m1", Turn::Moved), now);
        book.take(note("m2", Turn::Moved), now);
        book.told(&book.notes(), now);
        assert!(book.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_to_be_told_of_a_binding_that_is_gone_is_forgotten() {
        let writer = ConditionWriter {
            books: Arc::default(),
            urgent: Queue::new("urgent"),
            patient: Queue::new("patient"),
        };
        let key = |name: &str| {
            Key::new(BindingKey {
                namespace: Some("default".to_owned()),
                name: name.to_owned(),
            })
        };
        writer.tell(vec![
            (key("a"), nowhere("m1", "full")),
            (key("b"), nowhere("m1", "full")),
        ]);
        writer.forget(&[]);
        assert_eq!(writer.lock().len(), 2);
        writer.forget(&[key("a"), key("unknown")]);
        let books = writer.lock();
        assert_eq!(books.keys().collect::<Vec<_>>(), [&key("b")]);
    }
}
