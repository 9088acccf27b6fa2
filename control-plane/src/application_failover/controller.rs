//! Gathers the reports of applications whose policy wants them moved, moves one at a time, and says why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::api::policy::ApplicationFailoverBehavior;
use muster_shared::client::{self, Rank};
use muster_shared::conditions;
use muster_shared::interpreter::{Operation, hook_enabled};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use serde_json::json;

use super::decide::{decide, toleration};
use super::exit::{Exit, Leaver, Outcome, purge_mode};
use super::explain::{CONDITION, Turn};
use super::history::{self, History};
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::cluster::controller::until;
use crate::eviction::motive::application;
use crate::fleet::Fleet;
use crate::graceful_eviction::controller::reference;

/// After somebody else wrote the binding first: our watch tells us within this time as a rule.
const CONFLICT: Duration = Duration::from_millis(50);
/// How long an application is unhealthy before that is written down: most recover at once, as during every rollout.
const SETTLING: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {key}: {}", client::brief(error))]
struct Failure {
    step: &'static str,
    key: BindingKey,
    error: Box<kube::Error>,
}

struct Ward {
    fleet: Arc<Fleet>,
    exit: Exit,
    /// What is known beyond the annotations: what is not worth writing yet, and what the cache does not show yet. May be lost.
    known: Mutex<HashMap<BindingKey, History>>,
}

/// Starts the controller. It does not depend on the gate `Failover`, which is about clusters: each policy asks for it by itself.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    metrics::describe_counter!(
        METRIC,
        "Applications that were to leave a cluster where they stayed unhealthy, by result"
    );
    let ward = Arc::new(Ward {
        fleet: Arc::clone(fleet),
        exit: Exit::new(fleet),
        known: Mutex::default(),
    });
    let queue = Queue::<BindingKey>::new("application failover");
    follow(&ward, &fleet.bindings, &queue);
    follow(&ward, &fleet.cluster_bindings, &queue);
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    fleet.work(
        tasks,
        "application failover",
        queue,
        workers,
        move |_, key: BindingKey| {
            let ward = Arc::clone(&ward);
            async move {
                if key.namespace.is_some() {
                    ward.reconcile::<ResourceBinding>(key).await
                } else {
                    ward.reconcile::<ClusterResourceBinding>(key).await
                }
            }
        },
    );
}

const METRIC: &str = "muster_application_failovers_total";

fn count(result: &'static str) {
    metrics::counter!(METRIC, "result" => result).increment(1);
}

fn follow<B: Kept>(ward: &Arc<Ward>, bindings: &Informer<B>, queue: &Queue<BindingKey>) {
    let (ward, queue) = (Arc::clone(ward), queue.clone());
    bindings.on_change(move |change| match change {
        Change::Applied { old, new } => {
            let asks = |binding: &B| application(binding.spec()).is_some();
            if asks(new) || old.as_ref().is_some_and(|old| asks(old)) {
                queue.add(BindingKey::of(new.as_ref()));
            }
        }
        Change::Deleted { old } => {
            ward.known().remove(&BindingKey::of(old.as_ref()));
        }
    });
}

/// What the policy says, where it can be followed: the health of the kind is known, and what the application needs goes with it
/// (the rules of Karmada; it does not ask the latter of resources without a namespace, K55).
fn behavior<B: Binding>(binding: &B) -> Option<&ApplicationFailoverBehavior> {
    let spec = binding.spec();
    let health_is_known = hook_enabled(
        &spec.resource.api_version,
        &spec.resource.kind,
        Operation::InterpretHealth,
    );
    application(spec).filter(|_| {
        binding.meta().deletion_timestamp.is_none()
            && spec.propagate_deps
            && health_is_known
            && !binding.status().aggregated_status.is_empty()
    })
}

impl Ward {
    fn known(&self) -> MutexGuard<'_, HashMap<BindingKey, History>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reconcile<B: Kept>(&self, key: BindingKey) -> Result<Next, Failure> {
        let Some(binding) = B::cache(&self.fleet).get(key.namespace.as_deref(), &key.name) else {
            return Ok(Next::Done);
        };
        let Some(behavior) = behavior(binding.as_ref()) else {
            self.known().remove(&key);
            return Ok(Next::Done);
        };
        let now = Timestamp::now();
        let written = History::read(
            binding
                .annotations()
                .get(history::ANNOTATION)
                .map(String::as_str),
        );
        let known = self
            .known()
            .get(&key)
            .cloned()
            .unwrap_or_else(|| written.clone());
        let reports = &binding.status().aggregated_status;
        let tolerated = toleration(behavior);
        let verdict = decide(tolerated, binding.spec(), reports, &known.since, now);
        let history = known.with_health(verdict.since, now);
        self.known().insert(key.clone(), history.clone());

        let mut turn = verdict
            .next
            .and_then(|until| tolerated_turn(&history, until, now));
        let mut wait = verdict.next.map(|next| after(next, now));
        for cluster in &verdict.leave {
            let since = history.since.get(cluster).copied().unwrap_or(now);
            let leaver = Leaver {
                key: &key,
                binding: binding.as_ref(),
                behavior,
                history: &history,
            };
            let (cluster, mode) = (cluster.clone(), purge_mode(behavior).to_string());
            match self.exit.leave(&leaver, &cluster, now).await {
                Outcome::Left { binding, to } => {
                    count("moved");
                    tracing::info!(binding = %key, cluster, to, mode, %since, "moved an application that stayed unhealthy");
                    self.known()
                        .insert(key.clone(), history.after_move(&cluster, now));
                    self.tell(
                        &key,
                        binding.as_ref(),
                        &Turn::Left {
                            cluster,
                            since,
                            to,
                            mode,
                        },
                        now,
                    )
                    .await?;
                    // What else there is to leave is looked at with the binding as it is now.
                    return Ok(Next::After(CONFLICT));
                }
                Outcome::Overtaken => return Ok(Next::After(CONFLICT)),
                Outcome::Held { why, pause } => {
                    count("held");
                    wait = Some(wait.map_or(pause, |wait| wait.min(pause)));
                    turn = Some(Turn::Held {
                        cluster,
                        since,
                        why,
                    });
                }
            }
        }
        let settled = self
            .settle(&key, binding.as_ref(), &written, &history, now)
            .await?;
        wait = wait.into_iter().chain(settled).min();
        let turn = turn.unwrap_or(Turn::Recovered);
        let was_told = conditions::get(&binding.status().conditions, CONDITION);
        let is_news = match turn {
            Turn::Recovered => was_told.is_some_and(|condition| condition.status == "True"),
            _ => true,
        };
        if is_news {
            self.tell(&key, binding.as_ref(), &turn, now).await?;
        }
        Ok(wait.map_or(Next::Done, Next::After))
    }

    /// Writes down what a restart must not lose; how long to wait before that is worth it.
    async fn settle<B: Kept>(
        &self,
        key: &BindingKey,
        binding: &B,
        written: &History,
        history: &History,
        now: Timestamp,
    ) -> Result<Option<Duration>, Failure> {
        if written == history {
            return Ok(None);
        }
        let newest = history
            .since
            .iter()
            .filter(|(cluster, _)| !written.since.contains_key(*cluster));
        let settles = newest
            .filter_map(|(_, since)| since.checked_add(SETTLING).ok())
            .filter(|then| *then > now)
            .min();
        if let Some(then) = settles {
            return Ok(Some(after(then, now)));
        }
        self.fleet.traffic.lull(Rank::Report).await;
        let patch = json!({"metadata": {
            "resourceVersion": binding.meta().resource_version,
            "annotations": {history::ANNOTATION: history.write()},
        }});
        let answer = B::api(&self.fleet.report_client, key)
            .patch(&key.name, &patch_params(), &Patch::Merge(patch))
            .await;
        match answer {
            Ok(_) => Ok(None),
            Err(error) if client::is_conflict(&error) => Ok(Some(CONFLICT)),
            Err(error) if client::is_not_found(&error) => Ok(None),
            Err(error) => Err(Failure {
                step: "note the health of",
                key: key.clone(),
                error: Box::new(error),
            }),
        }
    }

    /// Condition, and events where that changed.
    async fn tell<B: Kept>(
        &self,
        key: &BindingKey,
        binding: &B,
        turn: &Turn,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let failed = |error| Failure {
            step: "explain the failover of",
            key: key.clone(),
            error: Box::new(error),
        };
        let api = B::api(&self.fleet.report_client, key);
        let mut fresh = None;
        loop {
            let held = fresh.as_ref().unwrap_or(binding);
            let Some(all) = conditions::merge(&held.status().conditions, [turn.condition(now)])
            else {
                return Ok(());
            };
            // Conditions are a list that others write, too.
            let patch = json!({
                "metadata": {"resourceVersion": held.meta().resource_version},
                "status": {"conditions": all},
            });
            match api
                .patch_status(&key.name, &patch_params(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => break,
                Err(error) if client::is_not_found(&error) => return Ok(()),
                Err(error) if client::is_conflict(&error) => {
                    fresh = Some(api.get(&key.name).await.map_err(failed)?);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let events = &self.fleet.events;
        let (severity, reason, message) = (turn.severity(), turn.reason(), turn.message());
        events.publish(binding, severity, reason, message.clone());
        events.publish_about(
            reference(&binding.spec().resource),
            severity,
            reason,
            message,
        );
        Ok(())
    }
}

/// The first that is tolerated for no longer than until then.
fn tolerated_turn(history: &History, until: Timestamp, now: Timestamp) -> Option<Turn> {
    let settled = |since: &Timestamp| since.checked_add(SETTLING).is_ok_and(|then| then <= now);
    let (cluster, since) = history.since.iter().min_by_key(|(_, since)| **since)?;
    settled(since).then(|| Turn::Tolerated {
        cluster: cluster.clone(),
        since: *since,
        until,
    })
}

/// The time until just after a moment: what is tolerated until then is not any more.
fn after(moment: Timestamp, now: Timestamp) -> Duration {
    until(moment, now) + Duration::from_millis(1)
}
