//! Answers the evictor when an application is to leave a cluster.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use serde_json::json;

use super::super::action::Action;
use super::super::evict::{failure, leaves_state, producer, purge_mode_of};
use super::super::history::{self, History, Move};
use super::{Case, count};
use crate::fleet::binding::BindingKey;
use crate::movement::eviction::applications::{Applications, Failure};

impl Applications for super::Applications {
    fn judge(
        &self,
        binding: &AnyBinding,
        spec: &ResourceBindingSpec,
        cluster: &str,
        now: Timestamp,
    ) -> Option<Failure> {
        let behavior = spec.application_failover()?;
        let Action::Follow(_) = self.action(binding) else {
            return None;
        };
        let key = BindingKey::of(binding);
        let written = History::of(binding);
        let case = Case {
            key: &key,
            binding,
            written,
            now,
        };
        let (history, verdict) = self.learn(&case, behavior);
        let (ready, _) = self.ready((spec, behavior), &history, &verdict.leave, now);
        ready.filter(|ready| ready == cluster)?;
        let since = history.since.get(cluster).copied().unwrap_or(now);
        let purge_mode = purge_mode_of(spec, behavior);
        let moved = Move {
            from: cluster.to_owned(),
            since,
            to: String::new(),
            mode: purge_mode.to_string(),
            without_state: leaves_state(behavior, &self.fleet.settings),
        };
        let then = history.after_move(cluster, now);
        Some(Failure {
            reason: failure(behavior, since, producer(key.scope())),
            purge_mode,
            annotation: Box::new(move |to| {
                let last = Move {
                    to,
                    ..moved.clone()
                };
                let then = History {
                    last: Some(last),
                    ..then.clone()
                };
                (history::ANNOTATION, json!(then.write()))
            }),
        })
    }

    fn moved(&self, binding: &AnyBinding) {
        let (key, history) = (BindingKey::of(binding), History::of(binding));
        count("moved");
        let Some(moved) = history.last.clone() else {
            return;
        };
        let Move {
            from,
            since,
            to,
            mode,
            ..
        } = &moved;
        tracing::info!(binding = %key, cluster = from, to, mode, %since, "moved an application that stayed unhealthy");
        if let Some(known) = self.known.lock().get_mut(&key) {
            known.history = history;
            known.moved = Some(moved);
        }
    }

    fn changed(&self, key: &BindingKey) {
        self.queue.add(key.clone());
    }
}
