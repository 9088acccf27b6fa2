//! Writes the conditions and events of evictions, in the background.
//!
//! Of several notes about one binding and one cluster only the latest is written, and the condition
//! covers all clusters that the workload has to leave. Very many bindings may wait for the rate at
//! once, so such notes are written slowly and do not delay others.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::k8s::Condition;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Expectations;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::evictor::Key;
use super::explain::{self, EvictionState, Note};
use super::fleet_view::{effective_taints, evicts};
use super::pending_notes::{LONGEST_START, PendingNotes, Revision, WriteAt};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::Written;

/// Writers of notes that should be read at once, and of those that can wait.
const URGENT: usize = 8;
const PATIENT: usize = 2;
/// How long a note that can wait does so: many are overtaken by a better one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause of a patient writer after each note: 100 a second, a tenth of what an API server takes.
const PACE: Duration = Duration::from_millis(20);

/// Step that is named when a condition cannot be written.
const STEP: &str = "explain the eviction of";

/// Takes notes. Cheap to clone.
#[derive(Clone)]
pub struct ConditionWriter {
    pending: Arc<Mutex<HashMap<Key, PendingNotes>>>,
    urgent: Queue<Key>,
    patient: Queue<Key>,
    /// Time at which this process began to act.
    began: Arc<OnceLock<Instant>>,
    /// Bindings that were written and that the cache does not show yet: what they seem to say
    /// already they may not.
    written: Arc<Expectations<Key>>,
}

impl ConditionWriter {
    /// Starts the writers.
    pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) -> Self {
        let writer = Self {
            pending: Arc::default(),
            urgent: Queue::new("eviction notes"),
            patient: Queue::new("eviction notes that can wait"),
            began: Arc::default(),
            written: Arc::default(),
        };
        for (name, queue, writers, pace) in [
            ("eviction notes", &writer.urgent, URGENT, Duration::ZERO),
            ("patient eviction notes", &writer.patient, PATIENT, PACE),
        ] {
            Controller::with(fleet, name, queue).run(
                tasks,
                writers,
                writer.clone(),
                move |fleet, writer, key: Key| async move {
                    let next = writer.write(&fleet, key).await;
                    tokio::time::sleep(pace).await;
                    next
                },
            );
        }
        writer
    }

    /// Evictions begin.
    pub fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Takes notes, all before any is written; each replaces an earlier one about the same binding
    /// and cluster.
    pub fn report(&self, notes: Vec<(Key, Note)>) {
        let (now, mut due) = (Instant::now(), Vec::new());
        let mut pending = self.pending.lock();
        for (key, note) in notes {
            let urgent = note.is_urgent();
            match pending.entry(key.clone()).or_default().take(note, now) {
                WriteAt::None => {}
                WriteAt::Now if urgent => due.push((key, None)),
                WriteAt::Now => due.push((key, Some(PATIENCE))),
                WriteAt::In(wait) => due.push((key, Some(wait))),
            }
        }
        drop(pending);
        for (key, wait) in due {
            match wait {
                None => self.urgent.add(key),
                Some(wait) => self.patient.add_after(key, wait),
            }
        }
    }

    /// Forgets what was to be reported of bindings that are gone: others of their names have
    /// nothing to do with it.
    pub fn forget(&self, gone: &[Key]) {
        for key in gone {
            self.pending.lock().remove(key);
            self.written.forget(key);
        }
    }

    async fn write(&self, fleet: &Fleet, key: Key) -> Result<Next, ApiError> {
        // The next workload leaves before the last is reported.
        let client = fleet.status_writer.when_idle().await;
        let binding = fleet.bindings.get(&key);
        let Some(binding) = binding.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            self.pending.lock().remove(&key);
            return Ok(Next::Done);
        };
        // A condition of before our own last write would decide what there is to report.
        self.written.observe(&key, &binding.metadata);
        if let Some(pause) = self.written.pause(&key, &binding.metadata) {
            return Ok(Next::After(pause));
        }
        let Some(unwritten) = self.unwritten(fleet, &key, binding.as_ref()) else {
            return Ok(Next::Done);
        };
        if unwritten.to_publish().next().is_none() {
            return Ok(next(unwritten.ripens(Instant::now())));
        }
        let notes = unwritten.notes();
        let before = &binding.status().conditions;
        let known = conditions::get(before, explain::CONDITION);
        if let Some(wait) = unwritten.wait(known, Instant::now()) {
            return Ok(Next::After(wait));
        }
        let began = self.began.get();
        let is_start = began.is_none_or(|began| began.elapsed() < LONGEST_START);
        if let Some(list) = explain::merge(before, &notes, is_start, fleet.clock.now()) {
            let patch = conditions::patch(&binding.metadata, &list);
            match key.merge_status(&client, STEP, &patch).await? {
                Written::Done(after) => {
                    let (before, after) = (&binding.metadata, &after.metadata);
                    self.written.written(key.clone(), before, after, ());
                    unwritten
                        .to_publish()
                        .for_each(|note| publish(fleet, binding.as_ref(), note));
                }
                Written::Overtaken => {
                    self.written.conflicted(key.clone(), &binding.metadata);
                    return Ok(Next::Again);
                }
                Written::Gone => {}
            }
        } else {
            // The condition says the same of what is pending; that a cluster was left is an event.
            unwritten
                .to_publish()
                .filter(|note| note.is_eviction())
                .for_each(|note| publish(fleet, binding.as_ref(), note));
        }
        let (mut pending, now) = (self.pending.lock(), Instant::now());
        let mut ripens = None;
        if let Some(unwritten) = pending.get_mut(&key) {
            unwritten.reported(&notes, now);
            ripens = unwritten.ripens(now);
            if unwritten.is_empty() {
                pending.remove(&key);
            }
        }
        Ok(next(ripens))
    }

    /// Returns the notes about a binding, revised by the present state of the clusters; `None`
    /// where no note is left.
    fn unwritten(&self, fleet: &Fleet, key: &Key, binding: &AnyBinding) -> Option<PendingNotes> {
        let known = conditions::get(&binding.status().conditions, explain::CONDITION);
        let mut pending = self.pending.lock();
        let unwritten = pending.get_mut(key)?;
        unwritten.ripen(Instant::now());
        unwritten.revise(|note| {
            let clusters = &fleet.clusters;
            let cluster = clusters.get(None, &note.cluster);
            let has_left = || clusters.presence(None, &note.cluster).is_gone();
            revision(note, cluster.as_deref(), has_left, known)
        });
        if unwritten.is_empty() {
            pending.remove(key);
            return None;
        }
        Some(unwritten.clone())
    }
}

/// Compares a note with the cluster before the note is written. A note that the workload stays in
/// spite of taints is dropped when these are gone, or count no more. Where the condition `known` is
/// True, the end of the eviction takes the note's place.
fn revision(
    note: &Note,
    cluster: Option<&Cluster>,
    has_left: impl Fn() -> bool,
    known: Option<&Condition>,
) -> Revision {
    let is_tainted = |cluster: &Cluster| effective_taints(cluster).iter().any(evicts);
    if !matches!(note.state, EvictionState::Stays { .. }) || cluster.is_some_and(is_tainted) {
        return Revision::Kept;
    }
    let has_to_leave = known.is_some_and(|known| {
        known.status == conditions::TRUE && explain::names_cluster(&known.message, &note.cluster)
    });
    match (has_to_leave, cluster) {
        (false, _) => Revision::Forgotten,
        (true, Some(_)) => Revision::Over(EvictionState::Recovered),
        (true, None) if has_left() => Revision::Over(EvictionState::ClusterGone),
        (true, None) => Revision::Over(EvictionState::ClusterUnseen),
    }
}

fn next(wait: Option<Duration>) -> Next {
    wait.map_or(Next::Done, Next::After)
}

fn publish(fleet: &Fleet, binding: &AnyBinding, note: &Note) {
    let (key, cluster, reason) = (BindingKey::of(binding), &note.cluster, note.reason());
    if !note.is_eviction() {
        // Evictions were logged as they happened.
        tracing::info!(binding = %key, cluster, reason, "{}", note.message());
    }
    let (kind, message) = (note.severity(), note.message());
    if matches!(
        note.state,
        EvictionState::Evicted { .. }
            | EvictionState::Nowhere { .. }
            | EvictionState::Unpreserved { .. }
            | EvictionState::Failed { .. }
    ) {
        fleet.publish(binding, kind, reason, message);
    } else {
        let events = &fleet.events;
        events.publish_about(binding.reference(), kind, reason, message);
    }
}

#[cfg(test)]
mod written_tests;

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_shared::clock::calendar;
    use serde_json::json;

    use super::super::judge::Stay;
    use super::super::pending_notes::tests::nowhere;
    use super::*;

    #[test]
    fn that_a_workload_stays_is_reported_while_the_cluster_has_the_taint() {
        let cluster = |taints: serde_json::Value| -> Cluster {
            let (metadata, spec) = (json!({"name": "m1"}), json!({"taints": taints}));
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let tainted = cluster(json!([{"key": "x", "effect": "NoExecute"}]));
        let closed = cluster(json!([{"key": "x", "effect": "NoSchedule"}]));
        let mut back = tainted.clone();
        let window = json!({"generation": 1, "matched": false, "since": Timestamp::UNIX_EPOCH});
        let record = json!({
            "taints": [{"key": "x", "effect": "NoExecute", "heldBy": ["p"]}],
            "windows": {"p": window},
        });
        let annotation = ("taints.muster.io/record".to_owned(), record.to_string());
        back.metadata.annotations = Some([annotation].into());
        let ready = conditions::new("Ready", "True", "R", "", Timestamp::UNIX_EPOCH);
        back.status.get_or_insert_default().conditions = vec![ready];
        let stays = Note {
            cluster: "m1".to_owned(),
            state: EvictionState::Stays {
                rule: Stay::SwitchedOff,
                taints: "x".to_owned(),
                since: None,
            },
        };
        let said = |note: &Note| explain::condition(std::slice::from_ref(note), calendar());
        let (leaves, stayed) = (said(&nowhere("m1", "full")), said(&stays));
        let over = |state| Revision::Over(state);
        for (note, cluster, known, expected) in [
            (&stays, Some(&tainted), &leaves, Revision::Kept),
            (
                &stays,
                Some(&closed),
                &leaves,
                over(EvictionState::Recovered),
            ),
            (&stays, None, &leaves, over(EvictionState::ClusterUnseen)),
            (&stays, Some(&closed), &stayed, Revision::Forgotten),
            (&stays, Some(&back), &stayed, Revision::Forgotten),
            (&stays, None, &None, Revision::Forgotten),
            (&nowhere("m1", "full"), None, &leaves, Revision::Kept),
        ] {
            let revision = revision(note, cluster, || false, known.as_ref());
            assert_eq!(revision, expected, "{note:?} {cluster:?} {known:?}");
        }
        let left = revision(&stays, None, || true, leaves.as_ref());
        assert_eq!(left, over(EvictionState::ClusterGone));
    }

    fn writer() -> ConditionWriter {
        ConditionWriter {
            pending: Arc::default(),
            urgent: Queue::new("urgent"),
            patient: Queue::new("patient"),
            began: Arc::default(),
            written: Arc::default(),
        }
    }

    fn key(name: &str) -> Key {
        Key::new(BindingKey {
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_needs_somebody_does_not_wait_behind_what_may_concern_many() {
        let writer = writer();
        let queued = Note {
            cluster: "m1".to_owned(),
            state: EvictionState::Queued { cause: "x".into() },
        };
        writer.report(vec![
            (key("many"), queued),
            (key("one"), nowhere("m1", "full")),
        ]);
        assert_eq!((writer.urgent.len(), writer.patient.len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_to_be_reported_of_a_binding_that_is_gone_is_forgotten() {
        let writer = writer();
        writer.report(vec![
            (key("a"), nowhere("m1", "full")),
            (key("b"), nowhere("m1", "full")),
        ]);
        writer.forget(&[]);
        assert_eq!(writer.pending.lock().len(), 2);
        writer.forget(&[key("a"), key("unknown")]);
        let pending = writer.pending.lock();
        assert_eq!(pending.keys().collect::<Vec<_>>(), [&key("b")]);
    }
}
