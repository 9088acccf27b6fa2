//! Publishes Kubernetes Events about objects, which `kubectl describe` shows.
//!
//! Publishing neither blocks nor fails: events go through a bounded channel to one task, which
//! writes several at a time. If the API server cannot keep up, the newest events are dropped and
//! counted; the log line that accompanies each event is not.

mod earlier;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::earlier::{Earlier, Memory};
use crate::client;
use crate::clock::{calendar, inherited};
use crate::text;

/// How many events may wait: what ten thousand workloads that move at once leave over, at two
/// events each. About 4 MB when full.
const WAITING: usize = 8192;
/// Writes under way at a time while few wait: what matters more needs the API server.
const IN_FLIGHT: usize = 2;
/// Writes under way at a time while so many wait that some may be lost: with the longest time that
/// each gives way to what matters more
/// ([`Pool::background_client`](crate::client::Pool::background_client)), 200 a second are written
/// even while decisions never pause.
const MOST_IN_FLIGHT: usize = 16;
/// So many that wait are few.
const FEW: usize = WAITING / 4;
/// Time after which it is asked again whether few wait, while no write ends.
const CHECK_AGAIN: Duration = Duration::from_millis(200);
/// Deadline of one write.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time in which the events that wait when the process ends are written. It is less than the last
/// tasks of a process have.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Characters of an object's name in the event's: a dot and the time make it at most 253.
const LONGEST_NAME: usize = 220;
/// Kubernetes refuses longer messages.
const LONGEST_NOTE: usize = 1024;

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem that may need attention.
    Warning,
}

/// Publisher of events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    outbox: mpsc::Sender<Letter>,
}

#[derive(Debug)]
struct Letter {
    regarding: ObjectReference,
    kind: EventType,
    reason: String,
    note: String,
}

impl Events {
    /// Makes a publisher, and the task that writes its events on behalf of a component. After
    /// shutdown the task writes, for a short time, what waits then: what is published later is
    /// lost.
    pub fn new(
        client: Client,
        component: impl Into<Arc<str>>,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (outbox, inbox) = mpsc::channel(WAITING);
        (
            Self { outbox },
            deliver(client, component.into(), inbox, shutdown),
        )
    }

    /// Makes a publisher that writes no events, for tests of decisions.
    pub fn nowhere() -> Self {
        Self {
            outbox: mpsc::channel(1).0,
        }
    }

    /// Publishes an event about a problem with an object.
    pub fn warn<K>(&self, about: &K, reason: &str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(about, EventType::Warning, reason, note);
    }

    /// Publishes an event about what went well with an object.
    pub fn inform<K>(&self, about: &K, reason: &str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(about, EventType::Normal, reason, note);
    }

    /// Publishes an event about an object.
    pub fn publish<K>(&self, about: &K, kind: EventType, reason: &str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish_about(about.object_ref(&()), kind, reason, note);
    }

    /// Publishes an event about an object of which only a reference is known.
    pub fn publish_about(
        &self,
        regarding: ObjectReference,
        kind: EventType,
        reason: &str,
        note: impl Into<String>,
    ) {
        let note: String = note.into();
        let letter = Letter {
            regarding,
            kind,
            reason: reason.to_owned(),
            note: text::cut(&note, LONGEST_NOTE, "..."),
        };
        if self.outbox.try_send(letter).is_err() {
            metrics::counter!("muster_events_dropped_total").increment(1);
        }
    }
}

impl Letter {
    /// Returns a number that two events share when one repeats the other. Remembering their texts
    /// would take megabytes when everything fails at once and says why.
    fn sameness(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // References to the objects of others may have no uid.
        let ObjectReference {
            uid,
            kind,
            namespace,
            name,
            ..
        } = &self.regarding;
        let about = (uid, kind, namespace, name);
        (self.kind, about, &self.reason, &self.note).hash(&mut hasher);
        hasher.finish()
    }
}

/// The end of a write: what it was about, and the event, if it was written.
type Sent = (u64, Option<Earlier>);

/// Events that were written, and those that are being written.
struct Delivery {
    client: Client,
    component: Arc<str>,
    earlier: Memory,
    /// Events that are being written, each with its last repetition since and how many there were.
    under_way: HashMap<u64, Option<(Letter, i32)>>,
    writes: JoinSet<Sent>,
}

async fn deliver(
    client: Client,
    component: Arc<str>,
    mut inbox: mpsc::Receiver<Letter>,
    shutdown: CancellationToken,
) {
    let mut delivery = Delivery {
        client,
        component,
        earlier: Memory::default(),
        under_way: HashMap::new(),
        writes: JoinSet::new(),
    };
    loop {
        let room = if inbox.len() < FEW {
            IN_FLIGHT
        } else {
            MOST_IN_FLIGHT
        };
        let has_room = delivery.writes.len() < room;
        tokio::select! {
            () = shutdown.cancelled() => return delivery.finish(inbox).await,
            // More may be under way as soon as many wait, also while none of these is answered.
            () = tokio::time::sleep(CHECK_AGAIN), if !has_room && !inbox.is_empty() => {}
            Some(sent) = delivery.writes.join_next() => {
                if let Ok((sameness, event)) = sent {
                    delivery.take_end(sameness, event);
                }
            }
            letter = inbox.recv(), if has_room => {
                let Some(letter) = letter else {
                    // All publishers are gone; the process is ending, or uses no events.
                    shutdown.cancelled().await;
                    return delivery.finish(inbox).await;
                };
                delivery.take(letter, 1);
            }
        }
    }
}

impl Delivery {
    /// Writes what waits, for a short time, and counts what is lost.
    async fn finish(mut self, mut inbox: mpsc::Receiver<Letter>) {
        let writes = async {
            loop {
                while self.writes.len() < MOST_IN_FLIGHT
                    && let Ok(letter) = inbox.try_recv()
                {
                    self.take(letter, 1);
                }
                match self.writes.join_next().await {
                    Some(Ok((sameness, event))) => self.take_end(sameness, event),
                    Some(Err(_)) => {}
                    None => return,
                }
            }
        };
        if timeout(LAST_WRITES, writes).await.is_err() {
            let lost = inbox.len() + self.writes.len();
            let lost = lost.try_into().unwrap_or(u64::MAX);
            metrics::counter!("muster_events_dropped_total").increment(lost);
        }
    }

    /// Writes a letter, or counts it with the one that says the same and is being written.
    fn take(&mut self, letter: Letter, times: i32) {
        let sameness = letter.sameness();
        if let Some(repeated) = self.under_way.get_mut(&sameness) {
            let before = repeated.take().map_or(0, |(_, times)| times);
            *repeated = Some((letter, before.saturating_add(times)));
            return;
        }
        if self.earlier.keeps_back(sameness, letter.kind, times) {
            return;
        }
        let known = self.earlier.take(sameness);
        self.under_way.insert(sameness, None);
        let (client, component) = (self.client.clone(), Arc::clone(&self.component));
        self.writes.spawn(inherited(async move {
            let reason = letter.reason.clone();
            let write = write(&client, &component, known, letter, times);
            let error = match client::in_time(timeout(DEADLINE, write).await) {
                Ok(event) => return (sameness, Some(event)),
                Err(error) => error,
            };
            metrics::counter!("muster_events_dropped_total").increment(1);
            tracing::debug!(reason, error, "could not write an event");
            (sameness, None)
        }));
    }

    /// Notes that a write came to its end: keeps the event that it made, and takes the repetitions
    /// that waited for it.
    fn take_end(&mut self, sameness: u64, event: Option<Earlier>) {
        if let Some(event) = event {
            self.earlier.keep(sameness, event);
        }
        if let Some((letter, times)) = self.under_way.remove(&sameness).flatten() {
            self.take(letter, times);
        }
    }
}

/// Counts an event up that is known, or makes one.
async fn write(
    client: &Client,
    component: &str,
    known: Option<Earlier>,
    letter: Letter,
    times: i32,
) -> Result<Earlier, kube::Error> {
    let now = Time(calendar());
    if let Some(known) = known {
        let api: Api<Event> = Api::namespaced(client.clone(), &known.namespace);
        let count = known.count.saturating_add(known.unwritten);
        let count = count.saturating_add(times);
        let patch = json!({ "count": count, "lastTimestamp": now });
        match api
            .patch(&known.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Err(error) if client::is_gone(&error) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Ok(Earlier {
                    count,
                    unwritten: 0,
                    at: Instant::now(),
                    ..known
                });
            }
        }
    }
    let event = Event {
        count: Some(times),
        ..compose(component, letter, now)
    };
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let created = api.create(&PostParams::default(), &event).await?;
    Ok(Earlier {
        namespace,
        name: created.name_any(),
        count: times,
        unwritten: 0,
        at: Instant::now(),
    })
}

/// Nanoseconds by which the name of an event may differ from its time.
const A_MICROSECOND: u64 = 1_000;

fn compose(component: &str, letter: Letter, now: Time) -> Event {
    // Events about cluster-scoped objects live in `default`, as client-go's recorder puts them.
    let namespace = letter
        .regarding
        .namespace
        .clone()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| "default".to_owned());
    let name = letter.regarding.name.clone().unwrap_or_default();
    // Events about one object that are published at once differ by what they say.
    let moment = now.0.as_nanosecond() + i128::from(letter.sameness() % A_MICROSECOND);
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(&name, moment)),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: letter.regarding,
        type_: Some(match letter.kind {
            EventType::Normal => "Normal".to_owned(),
            EventType::Warning => "Warning".to_owned(),
        }),
        reason: Some(letter.reason),
        message: Some(letter.note),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        reporting_component: Some(component.to_owned()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        ..Event::default()
    }
}

/// Returns the name of an event about an object. Names of roles and the like may have characters
/// that no event has (`system:node`) and up to 253 of them; the event is found by its reference to
/// the object, not by its name.
fn event_name(about: &str, nanoseconds: i128) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let plain: String = about
        .to_ascii_lowercase()
        .chars()
        .take(LONGEST_NAME)
        .collect();
    let plain = plain.replace(|c| !allowed(c), "-");
    // Each part between two dots begins and ends with a letter or a digit.
    let parts = plain.split('.').map(|part| part.trim_matches('-'));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    match parts.join(".").as_str() {
        "" => format!("event.{nanoseconds:x}"),
        plain => format!("{plain}.{nanoseconds:x}"),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_events_are_under_way_at_a_time_until_some_might_be_lost() {
        let started = watch::Sender::new(0);
        let (counts, mut seen) = (started.clone(), started.subscribe());
        let hangs = tower::service_fn(move |_: Request<Body>| {
            counts.send_modify(|count| *count += 1);
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let shutdown = CancellationToken::new();
        let client = Client::new(hangs, "default");
        let (events, deliver) = Events::new(client, "c", shutdown.clone());
        let publish = |count: usize| {
            for number in 0..count {
                let about = ObjectReference {
                    name: Some(format!("web-{number}")),
                    ..ObjectReference::default()
                };
                events.publish_about(about, EventType::Normal, "Why", "note");
            }
        };
        let delivery = tokio::spawn(deliver);
        publish(FEW - 1);
        seen.wait_for(|count| *count == IN_FLIGHT).await.unwrap();
        for _ in 0..FEW {
            tokio::task::yield_now().await;
        }
        assert_eq!(*started.borrow(), IN_FLIGHT);
        let begun = Instant::now();
        publish(FEW);
        let all = MOST_IN_FLIGHT;
        seen.wait_for(|count| *count == all).await.unwrap();
        assert!(begun.elapsed() < DEADLINE, "those that hang keep none back");
        shutdown.cancel();
        delivery.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_when_the_process_ends_is_written_for_a_short_time() {
        for (hangs, expected) in [(false, 100), (true, MOST_IN_FLIGHT)] {
            let started = watch::Sender::new(0);
            let counts = started.clone();
            let api = tower::service_fn(move |_: Request<Body>| {
                counts.send_modify(|count| *count += 1);
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    let event = br#"{"metadata":{"name":"e"},"involvedObject":{}}"#;
                    let answer = Response::builder().status(201);
                    let answer = answer.body(Body::from(event.to_vec()));
                    Ok::<_, Infallible>(answer.unwrap())
                }
            });
            let shutdown = CancellationToken::new();
            let client = Client::new(api, "default");
            let (events, deliver) = Events::new(client, "c", shutdown.clone());
            for number in 0..100 {
                let about = ObjectReference {
                    name: Some(format!("web-{number}")),
                    ..ObjectReference::default()
                };
                events.publish_about(about, EventType::Normal, "Evicted", "left m1 for m2");
            }
            shutdown.cancel();
            let begun = Instant::now();
            deliver.await;
            assert_eq!(*started.borrow(), expected, "{hangs}");
            assert!(begun.elapsed() < DEADLINE, "{hangs}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_written_when_the_last_publisher_goes_is_written_to_its_end() {
        let started = watch::Sender::new(0);
        let answered = watch::Sender::new(0);
        let shutdown = CancellationToken::new();
        let (counts, answers, ends) = (started.clone(), answered.clone(), shutdown.clone());
        let api = tower::service_fn(move |_: Request<Body>| {
            counts.send_modify(|count| *count += 1);
            let (answers, ends) = (answers.clone(), ends.clone());
            async move {
                ends.cancelled().await;
                // What waits for the same moment goes on first.
                for _ in 0..FEW {
                    tokio::task::yield_now().await;
                }
                answers.send_modify(|count| *count += 1);
                let event = br#"{"metadata":{"name":"e"},"involvedObject":{}}"#;
                let answer = Response::builder().status(201);
                let answer = answer.body(Body::from(event.to_vec()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let client = Client::new(api, "default");
        let (events, deliver) = Events::new(client, "c", shutdown.clone());
        let about = ObjectReference {
            name: Some("web".to_owned()),
            ..ObjectReference::default()
        };
        events.publish_about(about, EventType::Normal, "Evicted", "left m1 for m2");
        drop(events);
        let delivery = tokio::spawn(deliver);
        let mut seen = started.subscribe();
        seen.wait_for(|count| *count == 1).await.unwrap();
        shutdown.cancel();
        delivery.await.unwrap();
        assert_eq!(*answered.borrow(), 1);
    }

    #[test]
    fn two_events_about_one_object_have_two_names_although_they_are_published_at_once() {
        let letter = |note: &str| Letter {
            regarding: ObjectReference {
                name: Some("web".to_owned()),
                ..ObjectReference::default()
            },
            kind: EventType::Warning,
            reason: "Why".to_owned(),
            note: note.to_owned(),
        };
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let name = |note: &str| {
            compose("c", letter(note), now.clone())
                .metadata
                .name
                .unwrap()
        };
        assert_ne!(name("a"), name("b"));
        assert_eq!(name("a"), name("a"));
    }

    #[test]
    fn an_event_has_a_name_that_kubernetes_takes_whatever_its_object_is_called() {
        for (about, expected) in [
            ("web", "web.1f"),
            ("system:node", "system-node.1f"),
            (":", "event.1f"),
            ("", "event.1f"),
            ("a..b", "a.b.1f"),
            ("Ab_c-.d", "ab-c.d.1f"),
            ("muster:agent:m1", "muster-agent-m1.1f"),
            ("é", "event.1f"),
        ] {
            assert_eq!(event_name(about, 31), expected, "{about:?}");
        }
        assert!(event_name(&"x".repeat(253), i128::from(i64::MAX)).len() <= 253);
    }

    #[test]
    fn only_an_event_that_says_the_same_of_the_same_object_is_a_repetition() {
        let letter = |kind, uid: &str, reason: &str, note: &str| Letter {
            regarding: ObjectReference {
                name: Some("web".into()),
                uid: Some(uid.into()),
                ..ObjectReference::default()
            },
            kind,
            reason: reason.into(),
            note: note.into(),
        };
        let said = || letter(EventType::Warning, "1", "SyncFailed", "refused");
        let about = |change: fn(&mut ObjectReference)| {
            let mut letter = said();
            change(&mut letter.regarding);
            letter
        };
        let first = said().sameness();
        let warning = |uid, reason, note| letter(EventType::Warning, uid, reason, note);
        let normal = letter(EventType::Normal, "1", "SyncFailed", "refused");
        let in_shop = about(|it| it.namespace = Some("shop".to_owned()));
        let of_kind = about(|it| it.kind = Some("Deployment".to_owned()));
        let of_other = warning("2", "SyncFailed", "refused");
        for (what, other, same) in [
            ("said again", said(), true),
            ("another namespace", in_shop, false),
            ("another kind", of_kind, false),
            ("another type", normal, false),
            ("another object of that name", of_other, false),
            ("a reason", warning("1", "SyncSucceed", "refused"), false),
            ("a text", warning("1", "SyncFailed", "not there"), false),
        ] {
            assert_eq!(other.sameness() == first, same, "{what}");
        }
    }
}
