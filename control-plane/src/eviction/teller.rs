//! Writes explanations on bindings: condition and event, in the background.
//!
//! Of several notes about one binding only the latest is written. Waiting for the rate may concern very many bindings
//! at once, so such notes are written slowly and never delay the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Patch;
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::client;
use muster_shared::conditions;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use serde_json::json;

use super::desk::Key;
use super::explain::{CONDITION, Note, Turn};
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::fleet::Fleet;
use crate::graceful_eviction::controller::reference;

/// Writers of notes that should be read at once, and of those that can wait.
const URGENT: usize = 8;
const PATIENT: usize = 2;
/// How long a note that can wait does so: many are overtaken by a better one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause of a patient writer after each note: 100 a second, a tenth of what an API server takes.
const PACE: Duration = Duration::from_millis(20);
/// Pause after somebody else wrote the status first.
const CONFLICT: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
#[error("cannot explain the eviction of {key}: {}", client::brief(error))]
struct Error {
    key: Key,
    error: Box<kube::Error>,
}

/// Takes notes. Cheap to clone.
#[derive(Clone)]
pub struct Teller {
    latest: Arc<Mutex<HashMap<Key, Note>>>,
    urgent: Queue<Key>,
    patient: Queue<Key>,
}

impl Teller {
    /// Starts the writers.
    pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) -> Self {
        let teller = Self {
            latest: Arc::default(),
            urgent: Queue::new("eviction notes"),
            patient: Queue::new("eviction notes that can wait"),
        };
        for (name, queue, writers, pace) in [
            ("eviction notes", &teller.urgent, URGENT, Duration::ZERO),
            ("patient eviction notes", &teller.patient, PATIENT, PACE),
        ] {
            let teller = teller.clone();
            fleet.work(
                tasks,
                name,
                queue.clone(),
                writers,
                move |fleet, key: Key| {
                    let teller = teller.clone();
                    async move {
                        let next = if key.namespace.is_some() {
                            teller.write::<ResourceBinding>(&fleet, key).await
                        } else {
                            teller.write::<ClusterResourceBinding>(&fleet, key).await
                        };
                        tokio::time::sleep(pace).await;
                        next
                    }
                },
            );
        }
        teller
    }

    /// Takes a note; it replaces an earlier one about the same binding that was not written yet.
    pub fn tell(&self, key: Key, note: Note) {
        let urgent = note.is_urgent();
        self.lock().insert(key.clone(), note);
        if urgent {
            self.urgent.add(key);
        } else {
            self.patient.add_after(key, PATIENCE);
        }
    }

    async fn write<B: Kept>(&self, fleet: &Fleet, key: Key) -> Result<Next, Error> {
        // The next workload leaves before the last is told of.
        fleet.traffic.lull(client::Rank::Report).await;
        let Some(note) = self.lock().get(&key).cloned() else {
            return Ok(Next::Done);
        };
        let Some(binding) = B::cache(fleet).get(key.namespace.as_deref(), &key.name) else {
            self.lock().remove(&key);
            return Ok(Next::Done);
        };
        let observation = note.condition(Timestamp::now());
        let before = &binding.status().conditions;
        // That nothing has to be done needs no condition where none was ever pending.
        let is_news =
            conditions::get(before, CONDITION).is_some() || !matches!(note.turn, Turn::Recovered);
        if let Some(list) = conditions::merge(before, [observation]).filter(|_| is_news) {
            let patch = json!({
                "metadata": {"resourceVersion": binding.meta().resource_version},
                "status": {"conditions": list},
            });
            let api = B::api(&fleet.report_client, &key);
            match api
                .patch_status(&key.name, &patch_params(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => publish(fleet, binding.as_ref(), &note),
                Err(error) if client::is_conflict(&error) => return Ok(Next::After(CONFLICT)),
                Err(error) if client::is_not_found(&error) => {}
                Err(error) => {
                    return Err(Error {
                        key,
                        error: Box::new(error),
                    });
                }
            }
        }
        let mut latest = self.lock();
        if latest.get(&key) == Some(&note) {
            latest.remove(&key);
        }
        Ok(Next::Done)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Note>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
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
        let resource = reference(&binding.spec().resource);
        fleet
            .events
            .publish_about(resource, note.severity(), note.reason(), note.message());
    }
}
