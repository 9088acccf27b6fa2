//! Follows the records of failovers, and sends each receiver what is due.
//!
//! A record remembers what each receiver was sent of it, in an annotation that is written after the
//! receiver has taken a notice: whoever leads next goes on from there, and repeats at most the one
//! whose annotation could not be written, under the same identity.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::Api;
use muster_shared::api::failover_record::Failover;
use muster_shared::controller::{Controller, Watched as _};
use muster_shared::names::annotation::NOTICES;
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::due::{self, Notice, Sent, severity};
use super::event::{self, Event};
use super::pacing::{Decision, Pacing};
use super::sending::{self, Fault};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::{Written, merge};
use crate::settings::notice_receivers::Receiver;

const NAME: &str = "failover notices";
const NOTICES_TOTAL: &str = "muster_notices_total";
/// Key of the queue by which all is reported that was left out. No record has an empty name.
const LEFT_OUT: &str = "";

/// A receiver, and what it was sent.
struct Outlet {
    fleet: Arc<Fleet>,
    records: Informer<Failover>,
    queue: Queue<String>,
    receiver: Receiver,
    pacing: Mutex<Pacing>,
    /// What was sent of each record, by name, with its uid: caches are behind.
    sent: Mutex<HashMap<String, (String, Sent)>>,
}

/// Starts a queue for each receiver, so that one that fails delays no other. Call it before the
/// cache of the records is filled.
pub fn start(fleet: &Arc<Fleet>, records: &Informer<Failover>, tasks: &mut Tasks) {
    for receiver in &fleet.settings.notice_receivers.0 {
        let outlet = Arc::new(Outlet::new(fleet, records, receiver.clone()));
        records.informs(&outlet, |outlet, change| {
            if let Change::Deleted { old } = change {
                outlet.forget(&old.name_any());
            } else {
                outlet.queue.add(change.object().name_any());
            }
        });
        Controller::with(fleet, NAME, &outlet.queue).run(
            tasks,
            1,
            Arc::clone(&outlet),
            |_, outlet, name: String| async move { outlet.reconcile(&name).await },
        );
    }
}

impl Outlet {
    fn new(fleet: &Arc<Fleet>, records: &Informer<Failover>, receiver: Receiver) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            records: records.clone(),
            queue: Queue::new(NAME),
            receiver,
            pacing: Mutex::default(),
            sent: Mutex::default(),
        }
    }

    /// Says what is due of one record.
    async fn reconcile(&self, name: &str) -> Result<Next, ApiError> {
        if name == LEFT_OUT {
            return self.report_left_out().await;
        }
        let Some(record) = self.records.get(None, name) else {
            return Ok(Next::Done);
        };
        let Some(status) = &record.status else {
            return Ok(Next::Done);
        };
        if severity(status) < self.receiver.minimum_severity {
            return Ok(Next::Done);
        }
        let mut written = self.written(&record);
        let mut sent = self.known(&record);
        let next = loop {
            let now = self.fleet.clock.now();
            let notice = match due::next(&sent, &record.spec, status, now) {
                due::Next::Now(notice) => notice,
                due::Next::At(time) => break Next::After(until(time, now)),
                due::Next::Nothing => break Next::Done,
            };
            let is_wanted = self.receiver.wants(notice.phase);
            if is_wanted && let Err(next) = self.offer(&record, &notice, &mut sent).await {
                break next;
            }
            sent.note(&notice);
            self.remember(&record, sent);
            if is_wanted {
                self.write(&record, sent).await?;
                written = sent;
            }
        };
        if sent != written {
            self.write(&record, sent).await?;
        }
        Ok(next)
    }

    /// Sends a notice if it may be sent now. Otherwise the result is an error with what comes next.
    async fn offer(&self, record: &Failover, notice: &Notice, sent: &mut Sent) -> Result<(), Next> {
        if !self.fleet.leadership.is_current() {
            return Err(Next::Done);
        }
        let (name, now, tick) = (record.name_any(), self.fleet.clock.now(), Instant::now());
        let mut event = event::event(&self.fleet.settings, record, notice, now);
        let decision = {
            let mut pacing = self.pacing.lock();
            let due = pacing.due(&name, &event.id, tick, now);
            event.time = notice.time.unwrap_or(due);
            pacing.decide(&name, self.receiver.per_minute, tick)
        };
        match decision {
            Decision::Send => self.send(record, &event).await?,
            Decision::Wait(wait) => return Err(Next::After(wait)),
            Decision::Stop => return Err(Next::Done),
            Decision::LeaveOut(wait) => {
                self.count("left-out");
                self.queue.add_after(LEFT_OUT.to_owned(), wait);
                return Err(Next::Done);
            }
            Decision::GiveUp => {
                sent.undelivered = sent.undelivered.saturating_add(1);
                self.give_up(record, &event);
            }
        }
        self.pacing.lock().done(&name);
        Ok(())
    }

    /// Sends an event, and notes how that went.
    async fn send(&self, record: &Failover, event: &Event) -> Result<(), Next> {
        let receiver = self.receiver.name.as_str();
        let sent = sending::send(&self.receiver, event, self.fleet.clock.now());
        match sent.await {
            Ok(()) => {
                let had_failed = self.pacing.lock().taken();
                self.count("sent");
                tracing::info!(receiver, id = event.id, had_failed, "sent a notice");
                Ok(())
            }
            Err(Fault::Gone) => {
                self.pacing.lock().stop();
                self.count("failed");
                let text = format!(
                    "Receiver {receiver} answered 410 (gone): it gets no notices until the control plane starts anew. Remove it from the settings."
                );
                tracing::warn!(receiver, "the receiver of notices is gone: it gets no more");
                let events = &self.fleet.events;
                events.warn(record, "NoticesStopped", text);
                Err(Next::Done)
            }
            Err(Fault::Failed(why, wish)) => {
                let (pause, is_first) = self.pacing.lock().failed(wish, Instant::now());
                self.count("failed");
                if is_first {
                    tracing::warn!(
                        receiver,
                        why,
                        id = event.id,
                        "a notice is not delivered yet"
                    );
                } else {
                    tracing::debug!(
                        receiver,
                        why,
                        id = event.id,
                        "a notice is not delivered yet"
                    );
                }
                Err(Next::After(pause))
            }
        }
    }

    fn give_up(&self, record: &Failover, event: &Event) {
        let receiver = self.receiver.name.as_str();
        self.count("given-up");
        tracing::warn!(receiver, id = event.id, "a notice is not tried any more");
        let hours = super::pacing::GIVE_UP.as_secs() / 3600;
        let text = format!(
            "No attempt to notify receiver {receiver} succeeded in {hours} hours. The notice is not tried any more; it says: {}",
            event.text("sentence")
        );
        let events = &self.fleet.events;
        events.warn(record, "NoticeNotDelivered", text);
    }

    /// Reports in one notice all records of which something was left out.
    async fn report_left_out(&self) -> Result<Next, ApiError> {
        let names = self.pacing.lock().left_out();
        let found = names.iter().map(|name| self.records.get(None, name));
        let records: Vec<Arc<Failover>> = found.flatten().collect();
        let Some(first) = records.first() else {
            let mut pacing = self.pacing.lock();
            for name in &names {
                pacing.reported(name);
            }
            return Ok(Next::Done);
        };
        if !self.fleet.leadership.is_current() {
            return Ok(Next::Done);
        }
        let (now, tick) = (self.fleet.clock.now(), Instant::now());
        let (decision, at) = {
            let mut pacing = self.pacing.lock();
            let at = pacing.due(LEFT_OUT, LEFT_OUT, tick, now);
            (pacing.decide(LEFT_OUT, u32::MAX, tick), at)
        };
        let uid = first.uid().unwrap_or_default();
        let id = format!("{uid}-left-out-{}", at.as_second());
        let event = event::left_out(&self.fleet.settings, &records, id, at);
        match decision {
            Decision::Send => {
                if let Err(next) = self.send(first, &event).await {
                    return Ok(next);
                }
            }
            Decision::GiveUp => self.give_up(first, &event),
            Decision::Wait(wait) => return Ok(Next::After(wait)),
            Decision::LeaveOut(_) | Decision::Stop => return Ok(Next::Done),
        }
        {
            let mut pacing = self.pacing.lock();
            pacing.done(LEFT_OUT);
            for name in &names {
                pacing.reported(name);
            }
        }
        // All is remembered before anything is written, which may fail.
        let sent = records.into_iter().filter_map(|record| {
            let mut sent = self.known(&record);
            sent.note_all(&record.spec, record.status.as_ref()?, now);
            self.remember(&record, sent);
            // What happened since is due again, and what cannot be written now is written then.
            self.queue.add(record.name_any());
            Some((record, sent))
        });
        let mut written = Ok(());
        for (record, sent) in sent.collect::<Vec<_>>() {
            written = written.and(self.write(&record, sent).await);
        }
        written?;
        Ok(Next::Done)
    }

    fn count(&self, result: &'static str) {
        let receiver = self.receiver.name.clone();
        metrics::counter!(NOTICES_TOTAL, "receiver" => receiver, "result" => result).increment(1);
    }

    fn key(&self) -> String {
        format!("{NOTICES}{}", self.receiver.name)
    }

    /// Returns what a record says that the receiver was sent. An annotation that cannot be read
    /// counts as empty, and is written over.
    fn written(&self, record: &Failover) -> Sent {
        let text = record.annotations().get(&self.key());
        let sent = text.and_then(|text| serde_json::from_str(text).ok());
        sent.unwrap_or_default()
    }

    fn known(&self, record: &Failover) -> Sent {
        let uid = record.uid().unwrap_or_default();
        let sent = self.sent.lock();
        let known = sent.get(&record.name_any()).filter(|it| it.0 == uid);
        known.map_or_else(|| self.written(record), |it| it.1)
    }

    fn remember(&self, record: &Failover, sent: Sent) {
        let (name, uid) = (record.name_any(), record.uid().unwrap_or_default());
        // It may have been deleted while the notice was sent.
        if self.records.get(None, &name).is_some() {
            self.sent.lock().insert(name, (uid, sent));
        }
    }

    fn forget(&self, name: &str) {
        self.sent.lock().remove(name);
        self.pacing.lock().reported(name);
    }

    async fn write(&self, record: &Failover, sent: Sent) -> Result<(), ApiError> {
        let name = record.name_any();
        let patch = json!({ "metadata": {
            // Nothing was sent of another record of the same name.
            "uid": record.uid(),
            "annotations": { self.key(): json!(sent).to_string() },
        } });
        let client = self.fleet.status_writer.when_idle().await;
        let api: Api<Failover> = Api::all(client.clone());
        let written = Written::of(merge(&api, &name, &patch).await);
        let title = format!("Failover {name}");
        written.map_err(ApiError::of("record the notices that were sent in", &title))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
