//! Leader election with a Lease: of several processes, one may act.
//!
//! The rule is client-go's. A lease counts as expired if this process has seen no change of it for
//! its duration, by its own monotonic clock; the times in the lease come from other clocks and do
//! not count. The leader stops acting before another candidate takes over: `renew_deadline` after
//! its last successful renewal, time included for which its machine was suspended.
//!
//! ```
//! use muster_shared::lease::{Annotations, Candidate, Leadership, Outcome, Timing, campaign};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # use std::sync::{Arc, Mutex};
//! # use serde_json::{Value, json};
//! # // An API that stores what is applied or patched.
//! # let stored = Arc::new(Mutex::new(None::<Value>));
//! # let api = tower::service_fn({
//! #     let stored = Arc::clone(&stored);
//! #     move |request: http::Request<kube::client::Body>| {
//! #         let stored = Arc::clone(&stored);
//! #         async move {
//! #             let is_read = request.method() == "GET";
//! #             let body = request.into_body().collect_bytes().await.unwrap();
//! #             let mut lease = stored.lock().unwrap();
//! #             if !is_read {
//! #                 let patch: Value = serde_json::from_slice(&body).unwrap();
//! #                 let lease = lease.get_or_insert_with(|| json!({}));
//! #                 muster_shared::merge::apply(lease, &patch);
//! #                 lease["metadata"]["resourceVersion"] = json!("1");
//! #             }
//! #             let (code, answer) = match &*lease {
//! #                 Some(lease) => (200, lease.clone()),
//! #                 None => (404, json!({
//! #                     "kind": "Status", "code": 404, "reason": "NotFound",
//! #                     "details": { "name": "example" },
//! #                 })),
//! #             };
//! #             let body = kube::client::Body::from(answer.to_string().into_bytes());
//! #             let answer = http::Response::builder().status(code).body(body).unwrap();
//! #             Ok::<_, std::convert::Infallible>(answer)
//! #         }
//! #     }
//! # });
//! # let client = kube::Client::new(api, "default");
//! let candidate = Candidate {
//!     namespace: "karmada-system".to_owned(),
//!     name: "example".to_owned(),
//!     identity: "host-1".to_owned(),
//!     timing: Timing::default(),
//!     annotations: Annotations::default(),
//! };
//! let leadership = Leadership::elected();
//! assert!(!leadership.is_current());
//!
//! let retire = CancellationToken::new();
//! let election = tokio::spawn(campaign(client, candidate, leadership.clone(), retire.clone()));
//! leadership.acquired().await;
//! assert!(leadership.is_current()); // Asked before each act.
//!
//! retire.cancel(); // Releases the lease: a successor need not wait until it expires.
//! assert_eq!(election.await.unwrap(), Outcome::Stopped);
//! assert!(!leadership.is_current());
//! # assert_eq!(stored.lock().unwrap().take().unwrap()["spec"]["holderIdentity"], Value::Null);
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::Api;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{self, Gateway};
use crate::clock::{calendar, uptime};
use crate::remind::Reminder;
use crate::write::{self, Verbs};

/// Durations of an election. Defaults are those of client-go and Karmada.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time after the leader's last renewal before another candidate takes over.
    pub lease_duration: Duration,
    /// Time after its last successful renewal during which the leader may act. Shorter than
    /// `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between attempts to acquire or renew the lease.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Candidate of an election.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process; unique.
    pub identity: String,
    /// Durations of the election.
    pub timing: Timing,
    /// Annotations of the lease while this process holds it.
    pub annotations: Annotations,
}

/// Annotations that a leader writes with each renewal of its lease. Another leader may leave them
/// as they are, so they have to say whose they are.
#[derive(Clone, Default)]
pub struct Annotations(Option<Arc<Make>>);

type Make = dyn Fn() -> BTreeMap<String, String> + Send + Sync;

impl Annotations {
    /// Annotations that are made anew for each renewal.
    pub fn new(make: impl Fn() -> BTreeMap<String, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(make)))
    }

    fn now(&self) -> Option<BTreeMap<String, String>> {
        self.0.as_ref().map(|make| make())
    }
}

impl fmt::Debug for Annotations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Annotations").field(&self.now()).finish()
    }
}

/// Makes a unique identity: host name (that of the gateway's network, or else the pod's name in a
/// pod, or else the component) and a random number.
pub fn identity(component: &str, gateway: &Gateway) -> String {
    let host = gateway.host().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.unwrap_or_else(|| component.to_owned());
    // Keyed by the operating system's random numbers.
    let random = RandomState::new().hash_one(calendar().as_millisecond());
    format!("{host}_{random:016x}")
}

/// Last renewal of the leader that a follower has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRenewal {
    /// Identity of the leader.
    pub holder: String,
    /// Time at or before which the leader made the annotations of its last renewal.
    pub since: Instant,
    /// Annotations of the lease. The leader may have left those of another one as they were.
    pub annotations: BTreeMap<String, String>,
}

/// A moment by the monotonic clock, which stands still while the machine is suspended, and by the
/// machine's uptime, which does not.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    tick: Instant,
    /// `None` where it is not known.
    uptime: Option<Duration>,
}

impl Moment {
    fn now() -> Self {
        Self {
            tick: Instant::now(),
            uptime: uptime(),
        }
    }

    fn later(self, by: Duration) -> Self {
        Self {
            tick: self.tick + by,
            uptime: self.uptime.map(|it| it + by),
        }
    }

    /// Returns whether the moment has come `now`, by one clock or the other.
    fn has_come(self, now: Self) -> bool {
        let uptimes = self.uptime.zip(now.uptime);
        now.tick >= self.tick || uptimes.is_some_and(|(then, now)| now >= then)
    }
}

/// Permission of this process to act. Ask before each act; do not store the answer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Until when we may act; `None` before the first success and after a loss.
    until: Arc<watch::Sender<Option<Moment>>>,
    /// Identity of the leader while this process is a follower; `None` if no leader is known, or if
    /// this process leads.
    holder: Arc<watch::Sender<Option<String>>>,
    /// Last renewal of the leader that this process, as a follower, has seen.
    last_renewal: Arc<watch::Sender<Option<LastRenewal>>>,
    /// Why the lease could be neither taken nor read at the last attempt.
    trouble: Arc<watch::Sender<Option<String>>>,
    always: bool,
}

impl Leadership {
    /// Makes a leadership without an election, for a process that runs alone.
    pub fn always() -> Self {
        Self {
            always: true,
            ..Self::elected()
        }
    }

    /// Makes a leadership that an election grants; see [`campaign`].
    pub fn elected() -> Self {
        Self {
            until: Arc::new(watch::Sender::new(None)),
            holder: Arc::new(watch::Sender::new(None)),
            last_renewal: Arc::new(watch::Sender::new(None)),
            trouble: Arc::new(watch::Sender::new(None)),
            always: false,
        }
    }

    /// Returns whether this process may act now.
    pub fn is_current(&self) -> bool {
        let until = *self.until.borrow();
        self.always || until.is_some_and(|until| !until.has_come(Moment::now()))
    }

    /// Waits until this process may act.
    pub async fn acquired(&self) {
        if !self.always {
            // The sender lives in `self`: waiting cannot fail.
            let _ = self.until.subscribe().wait_for(Option::is_some).await;
        }
    }

    /// Returns the identity of the process that leads while this one is a standby; `None` while
    /// nobody is seen to lead, and while we do.
    pub fn holder(&self) -> watch::Receiver<Option<String>> {
        self.holder.subscribe()
    }

    /// Returns why the lease could be neither taken nor read at the last attempt.
    pub(crate) fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// Returns until when this process may act; `None` before the first success and after a loss.
    pub fn leads(&self) -> watch::Receiver<Option<Moment>> {
        self.until.subscribe()
    }

    /// Returns whether this process runs alone.
    pub(crate) const fn is_without_election(&self) -> bool {
        self.always
    }

    /// Returns what this process, as a follower, last saw of the leader. `None` if it has not
    /// seen the lease change often enough to know when that was.
    pub fn last_renewal(&self) -> Option<LastRenewal> {
        self.last_renewal.borrow().clone()
    }

    /// Notes who leads instead of us, and says so in the log when it is somebody else than before.
    fn stand_by(&self, lease: &str, holder: Option<String>) {
        self.holder.send_if_modified(|known| {
            let changed = *known != holder;
            if let (true, Some(holder)) = (changed, &holder) {
                tracing::info!(lease, holder, "{}", stands_by(holder));
            }
            *known = holder;
            changed
        });
    }
}

/// Returns what `/readyz` and the log say of a process that is a standby.
pub(crate) fn stands_by(holder: &str) -> String {
    format!("{holder:?} leads: standing by to take over, and doing nothing until then")
}

/// Result of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The campaign was stopped; the lease was released if this process held it.
    Stopped,
    /// The process has lost leadership: it should end and start again as a follower.
    Lost,
}

/// Runs a campaign in a process that ends in two steps: once `shutdown` is requested it acquires no
/// leadership, but keeps the leadership that it has until it retires. See [`campaign`].
pub async fn campaign_until_retired(
    client: Client,
    candidate: Candidate,
    leadership: Leadership,
    shutdown: CancellationToken,
    retire: CancellationToken,
) -> Outcome {
    let (held, retires) = (leadership.clone(), retire.clone());
    let leaves = async {
        shutdown.cancelled().await;
        // A campaign that has to retire ends by itself, after it gave the lease up.
        if held.is_current() || retires.is_cancelled() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        outcome = campaign(client, candidate, leadership, retire) => outcome,
        () = leaves => Outcome::Stopped,
    }
}

/// Runs an election until this process retires or loses leadership. Leadership is renewed until
/// then: a process that finishes its work during a shutdown retires afterwards, so that no
/// successor begins while that work still writes.
pub async fn campaign(
    client: Client,
    candidate: Candidate,
    leadership: Leadership,
    retire: CancellationToken,
) -> Outcome {
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    let mut observed = Observed::default();
    let mut reminder = Reminder::at_once();
    let leads = metrics::gauge!("muster_leader", "lease" => candidate.name.clone());
    leads.set(0.0);
    let outcome = loop {
        let begun = Moment::now();
        let asked = begun.tick;
        let timing = candidate.timing;
        let until = *leadership.until.borrow();
        // A leader has the rest of its time for a renewal, and no more.
        let patience = until.map_or(timing.renew_deadline, |until| {
            until.tick.saturating_duration_since(asked)
        });
        let claim = timeout(patience, attempt(&api, &candidate, &mut observed, asked)).await;
        let ours = match client::in_time(claim) {
            Ok(Claim::Ours) => {
                leadership.stand_by(&candidate.name, None);
                Ok(true)
            }
            Ok(Claim::Held(holder)) => {
                leadership
                    .last_renewal
                    .send_replace(observed.last_renewal.clone());
                leadership.stand_by(&candidate.name, Some(holder));
                Ok(false)
            }
            Err(error) => Err(error),
        };
        leadership.trouble.send_if_modified(|known| {
            let new = ours.as_ref().err();
            let changed = known.as_ref() != new;
            if changed {
                *known = new.cloned();
            }
            changed
        });
        let ever = until.is_some() || leadership.holder.borrow().is_some();
        match &ours {
            Ok(_) => {
                if let Some(lasted) = reminder.over(Instant::now()) {
                    tracing::info!(
                        lease = candidate.name,
                        ?lasted,
                        "the lease is answered for again"
                    );
                }
            }
            Err(error) => {
                if let Some(lasts) = reminder.trouble(Instant::now())
                    && (ever || lasts >= Reminder::PERIOD)
                {
                    tracing::warn!(
                        lease = candidate.name,
                        namespace = candidate.namespace,
                        error,
                        ?lasts,
                        "could not take or renew the lease of the election; trying on"
                    );
                }
            }
        }
        let ours = ours.ok();
        match judge(until, ours, Moment::now()) {
            AttemptResult::Leader => {
                leads.set(1.0);
                // Counted from before the request: whoever saw the renewal saw it later.
                leadership
                    .until
                    .send_replace(Some(begun.later(timing.renew_deadline)));
                if until.is_none() {
                    tracing::info!(
                        lease = candidate.name,
                        identity = candidate.identity,
                        "became the leader"
                    );
                }
            }
            AttemptResult::Unchanged => {}
            AttemptResult::Lost => break Outcome::Lost,
        }
        tokio::select! {
            () = retire.cancelled() => break Outcome::Stopped,
            () = tokio::time::sleep(crate::queue::jittered(timing.retry_period)) => {}
        }
    };
    leads.set(0.0);
    let held = leadership.is_current();
    leadership.until.send_replace(None);
    if outcome == Outcome::Lost {
        tracing::error!(lease = candidate.name, "no longer the leader");
    } else if held {
        release(&api, &candidate, &observed.verbs).await;
    }
    outcome
}

/// Result of an attempt for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// We lead, from now on or still.
    Leader,
    /// As before: a follower, or a leader with time left.
    Unchanged,
    /// We led and no longer may.
    Lost,
}

/// Judges the answer (`None`: there was none) of an attempt that ended at `now`, for somebody who
/// may act `until` then.
///
/// A renewal that comes too late is a loss although the lease is ours: in between
/// [`Leadership::is_current`] has said no, and work was put down in the belief that somebody else
/// would take it up. Once it says no it never says yes again in a campaign.
fn judge(until: Option<Moment>, ours: Option<bool>, now: Moment) -> AttemptResult {
    match (until, ours) {
        (Some(until), _) if until.has_come(now) => AttemptResult::Lost,
        (Some(_), Some(false)) => AttemptResult::Lost,
        (_, Some(true)) => AttemptResult::Leader,
        (None, Some(false)) | (_, None) => AttemptResult::Unchanged,
    }
}

/// What we know of the lease: what we last saw, and when it last changed before our eyes.
#[derive(Default)]
struct Observed {
    version: Option<String>,
    changed: Option<Instant>,
    /// The last read before this one, and the last one before the version was there that is known.
    read: Option<Instant>,
    before: Option<Instant>,
    /// Time of the renewal that was seen last, which distinguishes a renewal from another change.
    renewed: Option<MicroTime>,
    /// Renewal of the leader that was seen.
    last_renewal: Option<LastRenewal>,
    /// Verbs with which this process may write the lease.
    verbs: Verbs,
}

/// Holder of the lease after an attempt.
enum Claim {
    Ours,
    /// Held by the process of this identity, which may be empty: somebody was quicker, and we did
    /// not see who.
    Held(String),
}

/// Tries once to take or renew the lease.
async fn attempt(
    api: &Api<Lease>,
    candidate: &Candidate,
    observed: &mut Observed,
    now: Instant,
) -> Result<Claim, kube::Error> {
    let Some(lease) = client::get_opt(api, &candidate.name).await? else {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(candidate.name.clone()),
                annotations: candidate.annotations.now(),
                ..ObjectMeta::default()
            },
            spec: Some(claim(candidate, None)),
        };
        // Every candidate creates in a name of its own: of two that do it at once the second
        // conflicts with what the first said.
        let manager = manager(&candidate.identity);
        return match write::create(api, &candidate.name, &lease, &manager).await {
            Ok(_) => Ok(Claim::Ours),
            Err(error) if client::is_conflict(&error) => Ok(Claim::Held(String::new())),
            Err(error) => Err(error),
        };
    };
    let spec = lease.spec.as_ref();
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    if observed.version != lease.metadata.resource_version {
        let renewed = spec.and_then(|spec| spec.renew_time.clone());
        if observed.renewed != renewed {
            // The leader makes its annotations after it has read the version before, which was not
            // there yet at the last read that did not show it.
            observed.last_renewal = observed.before.map(|since| LastRenewal {
                holder: holder.to_owned(),
                since,
                annotations: lease.metadata.annotations.clone().unwrap_or_default(),
            });
            observed.before = observed.read;
            observed.renewed = renewed;
        }
        observed
            .version
            .clone_from(&lease.metadata.resource_version);
        observed.changed = Some(now);
    }
    observed.read = Some(now);
    let duration = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(candidate.timing.lease_duration, Duration::from_secs);
    let expired = observed
        .changed
        .is_none_or(|changed| now.duration_since(changed) >= duration);
    if !holder.is_empty() && holder != candidate.identity && !expired {
        return Ok(Claim::Held(holder.to_owned()));
    }
    // The precondition makes two takers at once impossible.
    let mut patch = json!({
        "metadata": { "resourceVersion": lease.metadata.resource_version },
        "spec": claim(candidate, spec),
    });
    if let Some(annotations) = candidate.annotations.now() {
        patch["metadata"]["annotations"] = json!(annotations);
    }
    let renewed = observed
        .verbs
        .merge(api, &candidate.name, None, &patch, None)
        .await;
    match renewed {
        Ok(renewed) => {
            observed.version = renewed.metadata.resource_version;
            observed.changed = Some(now);
            (observed.before, observed.last_renewal) = (None, None);
            Ok(Claim::Ours)
        }
        // A leader whose lease somebody touched is the leader still.
        Err(error) if client::is_conflict(&error) && holder == candidate.identity && !expired => {
            Ok(Claim::Ours)
        }
        Err(error) if client::is_conflict(&error) => Ok(Claim::Held(String::new())),
        Err(error) => Err(error),
    }
}

/// Returns the identity as the name of a field manager, which may have 128 characters.
fn manager(identity: &str) -> String {
    let skipped = identity.chars().count().saturating_sub(128);
    identity.chars().skip(skipped).collect()
}

fn claim(candidate: &Candidate, current: Option<&LeaseSpec>) -> LeaseSpec {
    let now = MicroTime(calendar());
    let ours =
        current.is_some_and(|spec| spec.holder_identity.as_ref() == Some(&candidate.identity));
    let transitions = current.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(candidate.identity.clone()),
        lease_duration_seconds: Some(
            i32::try_from(candidate.timing.lease_duration.as_secs()).unwrap_or(i32::MAX),
        ),
        renew_time: Some(now.clone()),
        acquire_time: match current {
            Some(spec) if ours => spec.acquire_time.clone(),
            _ => Some(now),
        },
        lease_transitions: Some(if ours {
            transitions
        } else {
            // The number is another process's, or a person's: at its end it stays there.
            transitions.saturating_add(i32::from(current.is_some()))
        }),
        ..LeaseSpec::default()
    }
}

/// Attempts to give the lease up. The renewal that was under way when it had to retire may
/// still be written after the lease was read, which makes the first attempt a conflict.
const RELEASES: usize = 3;

/// Gives the lease up, so that a successor need not wait for it to expire.
async fn release(api: &Api<Lease>, candidate: &Candidate, verbs: &Verbs) {
    let given_up = async {
        for attempt in 1..=RELEASES {
            let lease = api.get(&candidate.name).await?;
            let holder = lease
                .spec
                .as_ref()
                .and_then(|spec| spec.holder_identity.as_ref());
            if holder != Some(&candidate.identity) {
                return Ok(());
            }
            let patch = json!({
                "metadata": { "resourceVersion": lease.metadata.resource_version },
                // Absent rather than empty, as client-go does it.
                "spec": { "holderIdentity": null, "leaseDurationSeconds": 1 },
            });
            match verbs.merge(api, &candidate.name, None, &patch, None).await {
                Err(error) if client::is_conflict(&error) && attempt < RELEASES => {}
                done => return done.map(drop),
            }
        }
        Ok::<_, kube::Error>(())
    };
    match timeout(Duration::from_secs(3), given_up).await {
        Ok(Ok(())) => tracing::info!(lease = candidate.name, "gave the lease up"),
        Ok(Err(error)) => {
            tracing::debug!(error = client::brief(&error), "could not release the lease");
        }
        Err(_) => tracing::debug!("no answer when releasing the lease"),
    }
}

#[cfg(test)]
mod tests;
