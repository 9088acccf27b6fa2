//! Writes the history, the condition and the events of an application.

use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::{self, is_gone};
use muster_shared::clock::later;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::queue::{Next, until};
use serde_json::json;

use super::{ATTEMPTS, Applications, Case, Progress, SETTLING, count};
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::merge_status;
use crate::movement::application_failover::decide::Since;
use crate::movement::application_failover::explain::{
    CONDITION, FailoverState, STALE, Unfollowed, is_not_followed,
};
use crate::movement::application_failover::history::{self, History, Move};

impl Applications {
    /// Records and reports the result of a reconciliation.
    pub(super) async fn conclude(
        &self,
        case: &Case<'_>,
        history: &History,
        progress: Progress,
    ) -> Result<Next, ApiError> {
        let Progress {
            mut state,
            mut wait,
            held,
            is_said,
        } = progress;
        for (cluster, why, pause) in held {
            count("held");
            wait = wait.into_iter().chain(pause).min();
            let since = history.since.get(&cluster).copied();
            state = Some(FailoverState::Held {
                since: since.unwrap_or(case.now),
                cluster,
                why,
            });
        }
        let settled = self.settle(case, history).await?;
        let was_reported = conditions::get(&case.binding.status().conditions, CONDITION);
        let moved = self
            .known
            .lock()
            .get(case.key)
            .and_then(|known| known.moved.clone());
        let moved = moved.map(FailoverState::Left);
        let state = moved.or(state).or_else(|| match was_reported {
            _ if is_said => None,
            reported if history.to_publish(reported).is_some() => history
                .to_publish(reported)
                .cloned()
                .map(FailoverState::Left),
            Some(reported) if is_not_followed(reported) => Some(FailoverState::Followed),
            Some(reported) if reported.status == "True" => Some(FailoverState::Recovered),
            _ => None,
        });
        if let Some(state) = state {
            let again = self.report_change(case, &state, was_reported).await?;
            wait = wait.into_iter().chain(again).min();
            // A report that fails leaves the move to be reported.
            let is_reported = |moved: &mut Move| matches!(&state, FailoverState::Left(reported) if reported == moved);
            if let Some(known) = self.known.lock().get_mut(case.key) {
                known.moved.take_if(is_reported);
            }
        }
        Ok(settled.sooner(wait.map_or(Next::Done, Next::After)))
    }

    /// Reports a state, unless it is known that there is no place and only the numbers are others.
    /// Returns when to reconcile again to report these.
    async fn report_change(
        &self,
        case: &Case<'_>,
        state: &FailoverState,
        was_reported: Option<&Condition>,
    ) -> Result<Option<Duration>, ApiError> {
        let reported_at = self
            .known
            .lock()
            .get(case.key)
            .and_then(|known| known.reported_at);
        if let Some(at) = reported_at
            && state.repeats(was_reported, at, case.now)
        {
            let is_same = was_reported.is_some_and(|it| it.message == state.message());
            return Ok((!is_same).then(|| until(later(at, STALE), case.now)));
        }
        self.report(case.key, case.binding, state, case.now).await?;
        if let Some(known) = self.known.lock().get_mut(case.key) {
            known.reported_at = Some(case.now);
        }
        Ok(None)
    }

    /// Ends what is known of the health of an application that is not followed, and says why it is
    /// not.
    pub(super) async fn forget(
        &self,
        case: &Case<'_>,
        why: Option<Unfollowed>,
    ) -> Result<Next, ApiError> {
        let history = case.written.clone().with_health(Since::new(), case.now);
        let settled = self.settle(case, &history).await?;
        let reported = conditions::get(&case.binding.status().conditions, CONDITION);
        let state = match why {
            Some(why) => Some(FailoverState::NotFollowed(why)),
            None => reported
                .filter(|reported| is_not_followed(reported) || reported.status == "True")
                .map(|_| FailoverState::Withdrawn),
        };
        if let Some(state) = state {
            self.report(case.key, case.binding, &state, case.now)
                .await?;
        }
        Ok(settled)
    }

    /// Records what a restart must not lose; when to reconcile again where that is not worth it
    /// yet.
    async fn settle(&self, case: &Case<'_>, history: &History) -> Result<Next, ApiError> {
        let Case {
            key,
            binding,
            ref written,
            now,
        } = *case;
        // That a move is long ago is nothing new: it would be written for each application at the
        // first start an hour later.
        let is_known = written.with_health(written.since.clone(), now) == *history;
        if is_known && !written.is_ahead(now) {
            return Ok(Next::Done);
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
            return Ok(Next::After(until(then, now)));
        }
        let client = self.fleet.status_writer.when_idle().await;
        let patch = json!({"metadata": {
            "resourceVersion": binding.metadata.resource_version,
            "annotations": {history::ANNOTATION: history.write()},
        }});
        let written = key.merge(&client, "note the health of", &patch).await?;
        Ok(written.next())
    }

    /// Writes the condition about the failover, and publishes events where that changed.
    pub(super) async fn report(
        &self,
        key: &BindingKey,
        binding: &AnyBinding,
        state: &FailoverState,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let failed = |error| ApiError::of("explain the failover of", key)(error);
        let api = key.api(&self.fleet.status_writer.when_idle().await);
        let (mut fresh, mut attempts) = (None, 0);
        loop {
            let held = fresh.as_ref().unwrap_or(binding);
            let Some(all) = conditions::merge(&held.status().conditions, [state.condition(now)])
            else {
                return Ok(());
            };
            // Conditions are a list that others write, too.
            let patch = conditions::patch(&held.metadata, &all);
            match merge_status(&api, &key.name, &patch).await {
                Ok(_) => break,
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) if client::is_conflict(&error) && attempts < ATTEMPTS => {
                    attempts += 1;
                    fresh = Some(api.get(&key.name).await.map_err(failed)?);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let (severity, reason) = (state.severity(), state.reason());
        self.fleet
            .publish(binding, severity, reason, state.message());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
