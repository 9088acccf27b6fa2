//! The way out of a cluster: what holds an application back, and the write that moves it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::policy::{ApplicationFailoverBehavior, PurgeMode};
use muster_shared::client;
use muster_shared::names::condition;
use serde_json::json;
use tokio::time::Instant;

use super::explain::Obstacle;
use super::history::{self, History};
use crate::binding::kept::{BindingKey, Kept};
use crate::cluster::controller::until;
use crate::eviction::carry::carry_out;
use crate::eviction::motive::Motive;
use crate::eviction::plan::{Departure, plan};
use crate::eviction::rate::Budget;
use crate::fleet::Fleet;
use crate::scheduler::{LiveSnapshot, Options};
use crate::settings::{GRACEFUL_EVICTION, STATEFUL_FAILOVER_INJECTION};

/// How long an old copy waits for the new one when the policy does not say, in seconds (Karmada's admission writes this number).
const GRACE_SECONDS: i32 = 600;
/// How often an application that cannot leave is tried again.
const OBSTRUCTED: Duration = Duration::from_secs(10);

/// An application that is to leave.
pub struct Leaver<'a, B> {
    /// What names its binding.
    pub key: &'a BindingKey,
    /// Its binding.
    pub binding: &'a B,
    /// What its policy says.
    pub behavior: &'a ApplicationFailoverBehavior,
    /// What is known of it.
    pub history: &'a History,
}

/// What came of it.
pub enum Outcome<B> {
    /// It left.
    Left {
        /// The binding as it is now.
        binding: Box<B>,
        /// Where it is placed.
        to: String,
    },
    /// It stays for now.
    Held {
        /// Why.
        why: Obstacle,
        /// When to try again.
        pause: Duration,
    },
    /// Somebody else wrote the binding first.
    Overtaken,
}

/// The way out, the same for all applications.
pub struct Exit {
    fleet: Arc<Fleet>,
    snapshot: LiveSnapshot,
    options: Options,
    budget: Mutex<Budget>,
}

impl Exit {
    /// Follows the clusters.
    pub fn new(fleet: &Arc<Fleet>) -> Self {
        let settings = &fleet.settings;
        Self {
            fleet: Arc::clone(fleet),
            snapshot: LiveSnapshot::follow(&fleet.clusters),
            options: Options::of(settings).for_departure(),
            budget: Mutex::new(Budget::new(settings.resource_eviction_rate, Instant::now())),
        }
    }

    /// Moves an application out of a cluster, if nothing holds it back: eviction and new placement are one write.
    pub async fn leave<B: Kept>(
        &self,
        leaver: &Leaver<'_, B>,
        cluster: &str,
        now: Timestamp,
    ) -> Outcome<B> {
        let Leaver {
            key,
            binding,
            behavior,
            history,
        } = *leaver;
        let (fleet, mode) = (&self.fleet, purge_mode(behavior));
        if let Some((why, pause)) = self.obstacle(&mode, history, cluster, now) {
            return Outcome::Held { why, pause };
        }
        let spec = binding.spec();
        let departure = Departure {
            spec,
            status: binding.status(),
            cluster,
            motive: Motive::Failure {
                since: history.since.get(cluster).copied().unwrap_or(now),
                producer: producer::<B>(),
                grace_seconds: behavior.grace_period_seconds.or(Some(GRACE_SECONDS)),
            },
            purge_mode: &mode,
            preserves_state: fleet.settings.gate(&STATEFUL_FAILOVER_INJECTION),
            ours: fleet.settings.schedules(spec.scheduler_name.as_deref()),
        };
        let mut plan = match plan(&departure, &self.snapshot.get(), &self.options, now) {
            Ok(plan) => plan,
            Err(nowhere) => {
                return Outcome::Held {
                    why: nowhere.into(),
                    pause: OBSTRUCTED,
                };
            }
        };
        if let Err(pause) = self.pay() {
            return Outcome::Held {
                why: Obstacle::Rate,
                pause,
            };
        }
        let then = history.clone().after_move(cluster, now);
        plan.patch["metadata"]["annotations"][history::ANNOTATION] = json!(then.write());
        let to = plan.destination();
        match carry_out::<B>(fleet, key, binding.meta().resource_version.as_deref(), plan).await {
            Ok(binding) => Outcome::Left {
                binding: Box::new(binding),
                to,
            },
            Err(error) => {
                self.budget().refund();
                if client::is_conflict(&error) || client::is_not_found(&error) {
                    return Outcome::Overtaken;
                }
                Outcome::Held {
                    why: Obstacle::Failed(client::brief(&error)),
                    pause: OBSTRUCTED,
                }
            }
        }
    }

    fn obstacle(
        &self,
        mode: &PurgeMode,
        history: &History,
        cluster: &str,
        now: Timestamp,
    ) -> Option<(Obstacle, Duration)> {
        let is_heard = self
            .fleet
            .clusters
            .get(None, cluster)
            .is_some_and(|cluster| {
                let ready = cluster.condition(condition::READY);
                ready.is_some_and(|ready| ready.status == "True")
            });
        if !is_heard {
            return Some((Obstacle::Unheard(cluster.to_owned()), OBSTRUCTED));
        }
        if let Some(rested) = history.rested_at().filter(|rested| now < *rested) {
            let why = Obstacle::Rests {
                moves: history.moves,
                until: rested,
            };
            return Some((why, until(rested, now)));
        }
        let off = *mode == PurgeMode::Gracefully && !self.fleet.settings.gate(&GRACEFUL_EVICTION);
        off.then_some((Obstacle::GateOff, OBSTRUCTED))
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a turn by the eviction rate, or says how long to wait for one.
    fn pay(&self) -> Result<(), Duration> {
        let now = Instant::now();
        self.budget()
            .pay(now)
            .map_err(|next| next.map_or(OBSTRUCTED, |next| next.saturating_duration_since(now)))
    }
}

/// What becomes of the old copy.
pub fn purge_mode(behavior: &ApplicationFailoverBehavior) -> PurgeMode {
    let mode = behavior.purge_mode.as_ref().map(PurgeMode::canonical);
    mode.cloned().unwrap_or(PurgeMode::Gracefully)
}

fn producer<B: Kept>() -> &'static str {
    if B::NAMESPACED {
        "resource-binding-application-failover-controller"
    } else {
        "cluster-resource-binding-application-failover-controller"
    }
}
