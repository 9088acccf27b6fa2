//! Decides which notice of a failover is due next, by its record and by what a receiver was
//! sent.

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::failover_record::{
    CauseType, FailoverSpec, FailoverStatus, State, Subject, Workloads,
};
use muster_shared::k8s::Time;
use serde::{Deserialize, Serialize};

use crate::settings::notice_receivers::{Phase, Severity};

/// Age of the end of a failover beyond which a receiver that was not notified of it is not notified
/// any more: it is a new receiver, and the record is history.
const HISTORY: SignedDuration = SignedDuration::from_hours(1);
/// Time without a move after which those that moved count as all, although more workloads were in
/// the cluster: the others tolerate the cause. At the slowest sensible rate a move takes less.
const LAST_MOVE: SignedDuration = SignedDuration::from_mins(5);

/// Notices of a failover that a receiver was sent, each by the greatest of its numbers. Stored
/// in an annotation of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sent {
    /// Runs of the cause: the first, and one for each time it came back.
    pub began: u32,
    /// Times at which workloads stayed.
    pub held: u32,
    /// Times at which none stayed any more.
    pub resumed: u32,
    /// Last run in which all that moved were healthy.
    pub healed: u32,
    /// Last run that was over.
    pub recovered: u32,
    /// Times at which it ended: more may turn out to belong to it.
    pub ended: u32,
    /// Second of the last end.
    pub over: i64,
    /// Notices that could not be delivered.
    pub undelivered: u32,
}

/// A notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Moment of the failover.
    pub phase: Phase,
    /// Number of the notice among those of its phase, from 1.
    pub number: u32,
    /// Time of the moment, where the record knows it.
    pub time: Option<Timestamp>,
}

/// Next notice of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A notice is due.
    Now(Notice),
    /// One is due later, if nothing changes until then.
    At(Timestamp),
    /// Nothing is due before the record changes.
    Nothing,
}

impl Sent {
    /// Notes that a notice was sent, or that the receiver does not want it.
    pub fn note(&mut self, notice: &Notice) {
        let number = match notice.phase {
            Phase::Began => &mut self.began,
            Phase::Held => &mut self.held,
            Phase::Resumed => &mut self.resumed,
            Phase::Healed => &mut self.healed,
            Phase::Recovered => &mut self.recovered,
            Phase::Ended => &mut self.ended,
        };
        *number = notice.number;
        if notice.phase == Phase::Ended {
            self.over = notice.time.map_or(0, Timestamp::as_second);
            // The end says that nothing stays.
            self.resumed = self.held;
        }
    }

    /// Notes all that is due.
    pub fn note_all(&mut self, spec: &FailoverSpec, status: &FailoverStatus, now: Timestamp) {
        while let Next::Now(notice) = next(self, spec, status, now) {
            self.note(&notice);
        }
    }
}

/// Returns the next notice. What came and went between two checks is not sent: the end of a hold
/// that nobody was notified of, a recovery after which everything was in order at once.
pub fn next(sent: &Sent, spec: &FailoverSpec, status: &FailoverStatus, now: Timestamp) -> Next {
    let seconds = |time: &Option<Time>| time.as_ref().map(|it| it.0);
    let times = &status.times;
    let is_ended = status.state == State::Ended;
    let ended = seconds(&times.ended).filter(|_| is_ended);
    let is_history = ended.is_some_and(|it| now.duration_since(it) > HISTORY);
    if status.cause.kind.as_str().is_empty() || *sent == Sent::default() && is_history {
        return Next::Nothing;
    }
    let notice = |phase, number, time| {
        Next::Now(Notice {
            phase,
            number,
            time,
        })
    };
    let run = status.relapses.saturating_add(1);
    let is_known = sent.began > 0 && is_ended;
    if sent.began < run && !is_known && !has_to_leave(spec, status) {
        return Next::Nothing;
    }
    if sent.began < run && has_to_leave(spec, status) {
        let returned = status.returns.last().and_then(|it| seconds(&it.returned));
        let returned = returned.filter(|_| run > 1);
        let began = returned.or_else(|| seconds(&spec.start_time));
        return notice(Phase::Began, run, began);
    }
    if is_ended {
        let is_update = sent.ended == 0 || ended.is_some_and(|it| it.as_second() > sent.over);
        return if is_update {
            notice(Phase::Ended, sent.ended.saturating_add(1), ended)
        } else {
            Next::Nothing
        };
    }
    let is_held = staying(&status.workloads) > 0;
    if is_held && sent.held == sent.resumed {
        return notice(Phase::Held, sent.held.saturating_add(1), None);
    }
    if !is_held && sent.held > sent.resumed {
        return notice(Phase::Resumed, sent.held, None);
    }
    if sent.recovered < run && times.recovered.is_some() {
        return notice(Phase::Recovered, run, seconds(&times.recovered));
    }
    let Workloads {
        affected,
        moved,
        healthy,
        ..
    } = status.workloads;
    let are_well = moved > 0 && healthy >= moved && !is_held;
    match (seconds(&times.healthy), seconds(&times.last_move)) {
        (Some(well), Some(last)) if are_well && sent.healed < run => {
            let rest = last.saturating_add(LAST_MOVE).unwrap_or(now);
            if moved >= affected || rest <= now {
                notice(Phase::Healed, run, Some(well))
            } else {
                Next::At(rest)
            }
        }
        _ => Next::Nothing,
    }
}

/// Returns whether workloads have to leave the cluster, or had to. A cluster that is not ready has
/// a record, too, and nobody is woken up before something follows from that.
fn has_to_leave(spec: &FailoverSpec, status: &FailoverStatus) -> bool {
    let counts = &status.workloads;
    let is_tainted = status.times.tainted.is_some();
    is_tainted
        || spec.subject == Subject::Applications
        || counts.moved > 0
        || counts.held > 0
        || counts.stranded > 0
}

/// Returns how many workloads stay now that would have to leave.
pub const fn staying(workloads: &Workloads) -> u32 {
    workloads.held_now.saturating_add(workloads.stranded_now)
}

/// Returns the weight of a failover. It never sinks, so that whoever was notified of the beginning
/// is notified of the end.
pub fn severity(status: &FailoverStatus) -> Severity {
    let counts = &status.workloads;
    if counts.stranded > 0 || counts.held > 0 {
        return Severity::Critical;
    }
    let is_empty = counts.affected == 0 && counts.moved == 0;
    if is_empty || status.cause.kind == CauseType::Drain {
        return Severity::Info;
    }
    Severity::Warning
}

#[cfg(test)]
mod tests;
