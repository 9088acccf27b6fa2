//! Keeps the record of the fleet in the member, from which the next process of the agent knows what
//! this one obeys.

use muster_shared::events::EventType;

use super::Choice;
use crate::fleet_server::decide::Remembered;

/// Name of the record in `/readyz`.
const RECORD: &str = "record of the fleet";

/// The record in the member, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The record was not read yet.
    Unread,
    /// The member has no record.
    Absent,
    /// The record as it was read or written last.
    Known(Remembered),
}

impl Choice {
    /// Returns whether the next process would obey no older store than this one.
    pub(super) fn is_recorded(&self) -> bool {
        match &self.recorded {
            Recorded::Unread => false,
            Recorded::Absent => self.remembered.epoch == 0,
            Recorded::Known(recorded) => recorded.epoch >= self.remembered.epoch,
        }
    }

    /// Writes the record, where one is needed and says something else.
    pub(super) async fn record(&mut self) {
        let is_needed = self.remembered.is_needed(&self.setup.configured);
        match &self.recorded {
            Recorded::Unread => return,
            Recorded::Absent if !is_needed => return,
            Recorded::Known(recorded) if *recorded == self.remembered => return,
            Recorded::Absent | Recorded::Known(_) => {}
        }
        match self.records.write(&self.remembered).await {
            Ok(()) => {
                self.recorded = Recorded::Known(self.remembered.clone());
                self.report_end("FleetRecordWritten");
            }
            Err(error) if self.is_recorded() => {
                tracing::warn!(
                    error,
                    "cannot record the servers of the fleet in the member; trying on"
                );
            }
            Err(error) => {
                let words = format!(
                    "cannot be written ({error}); nothing of the promoted store is applied before, because the next process would obey the store before it"
                );
                self.report_trouble("FleetRecordUnwritten", &words);
            }
        }
    }

    /// Reads the record in the member. What this process has seen itself may be newer.
    pub(super) async fn recall(&mut self) {
        let seen = self.setup.restart.seen.lock().clone();
        let read = self.records.read().await;
        let found = match read {
            Ok(found) => {
                let known = found.clone();
                let known = known.map_or(Recorded::Absent, Recorded::Known);
                if std::mem::replace(&mut self.recorded, known) == Recorded::Unread {
                    self.report_end("FleetRecordRead");
                }
                found
            }
            Err(error) => {
                tracing::debug!(error, "cannot read the record of the fleet in the member");
                if self.recorded == Recorded::Unread {
                    let words = format!(
                        "cannot be read ({error}); nothing is applied before, because it may name a newer store"
                    );
                    self.report_trouble("FleetRecordUnread", &words);
                }
                None
            }
        };
        let own = self.has_learned.then(|| self.remembered.clone());
        let all = found.into_iter().chain(seen).chain(own);
        if let Some(newest) = all.max_by_key(|it| it.epoch) {
            self.remembered = newest;
        }
    }

    /// Reports that nothing may be applied because of the record, when that has changed.
    fn report_trouble(&mut self, reason: &str, words: &str) {
        let namespace = &self.setup.namespace;
        let words = format!(
            "the record of the fleet in the member {words}. The agent's account there needs the rights to get, create and patch \
             ConfigMap {} in namespace {namespace}; a record that is damaged has to be corrected",
            record_name(&self.setup.cluster)
        );
        if self.trouble.as_ref() != Some(&words) {
            tracing::warn!("{words}");
            self.setup.health.ready(RECORD, Err(words.clone()));
            self.publish_in_member(EventType::Warning, reason, &words);
            self.setup.obeyed.send_if_modified(|it| {
                let is_kept_out = it.is_err();
                if is_kept_out {
                    *it = Err(words.clone());
                }
                is_kept_out
            });
            self.trouble = Some(words);
        }
    }

    /// Reports that the record keeps the agent from nothing any more.
    fn report_end(&mut self, reason: &str) {
        self.setup.health.ready(RECORD, Ok(()));
        if self.trouble.take().is_some() {
            let note = "The record of the fleet in the member is up to date.";
            self.publish_in_member(EventType::Normal, reason, note);
        }
    }
}

pub(super) fn record_name(cluster: &str) -> String {
    format!("muster-fleet-{cluster}")
}
