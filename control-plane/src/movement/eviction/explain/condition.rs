//! The condition on a binding that reports its evictions, and when it is written anew.

use jiff::{SignedDuration, Timestamp};
use muster_shared::check::few;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Time};

use super::{CONDITION, EvictionState, LEFT, Note};

/// Clusters that a condition speaks of at most.
const LONGEST_LIST: usize = 5;

/// Returns the condition on a binding, from what is known of each cluster that its workload has to
/// leave, and of each that it left or need not leave any more. While there is one to leave, the
/// condition is about those only.
pub fn condition(notes: &[Note], now: Timestamp) -> Option<Condition> {
    // Of several clusters the one that says most about what somebody has to do.
    let lead = notes
        .iter()
        .max_by_key(|note| note.state.reporting().weight)?;
    let is_pending = lead.is_pending();
    let status = if is_pending {
        conditions::TRUE
    } else {
        conditions::FALSE
    };
    // An eviction is reported only where nothing is pending: its story names the clusters that the
    // workload went to, and a process that starts does not report it again.
    let done = notes
        .iter()
        .filter(|note| !is_pending && note.is_eviction());
    let others = done
        .chain(notes.iter().filter(|note| note.is_pending()))
        .filter(|note| note.cluster != lead.cluster);
    let all: Vec<String> = [lead]
        .into_iter()
        .chain(others)
        .map(Note::message)
        .collect();
    let more = |more| format!("; and {more} more clusters");
    let message = few(&all, LONGEST_LIST, "; ", more);
    // A taint in spite of which the workload stays may be newer than the eviction. The condition
    // has the later time, so that the next process does not take the taint for a new one.
    let stays = notes.iter().filter_map(|note| match note.state {
        EvictionState::Stays { since, .. } => since.filter(|since| *since <= now),
        _ => None,
    });
    let at = evicted_at(notes).map_or(now, |at| match stays.max() {
        _ if is_pending => later(at),
        Some(stays) => at.max(stays),
        None => at,
    });
    Some(conditions::new(
        CONDITION,
        status,
        lead.reason(),
        &message,
        at,
    ))
}

/// Returns the conditions of a binding with the one that follows from these notes, or `None` when
/// nothing changes. Each eviction is a change, although the status may be the same before and after
/// it: the condition gets the time of the eviction. What is said after an eviction is a change as
/// well: by its later time the next process knows that the eviction was reported.
///
/// `is_start`: the process has just begun to act, and finds at once what the one before it found
/// one after the other.
pub fn merge(
    before: &[Condition],
    notes: &[Note],
    is_start: bool,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let observation = condition(notes, now)?;
    let known = conditions::get(before, CONDITION);
    if is_start && known.is_some_and(|known| is_older(known, notes)) {
        return None;
    }
    // That nothing has to be done needs no condition where nothing was ever pending.
    let is_over = |note: &Note| {
        matches!(
            note.state,
            EvictionState::Recovered
                | EvictionState::Moved
                | EvictionState::ClusterGone
                | EvictionState::ClusterUnseen
        )
    };
    if known.is_none() && notes.iter().all(is_over) {
        return None;
    }
    let replaced = |observation: Condition| {
        let others = before.iter().filter(|known| known.type_ != CONDITION);
        Some(others.cloned().chain([observation]).collect())
    };
    let date = evicted_at(notes).map(|_| observation.last_transition_time.0);
    let is_older = |known: &Condition| date.is_some_and(|at| known.last_transition_time.0 < at);
    if known.is_some_and(is_older) {
        return replaced(observation);
    }
    if let Some(known) = known.filter(|known| reports_eviction(known))
        && !reports_eviction(&observation)
    {
        let at = now.max(later(known.last_transition_time.0));
        return replaced(Condition {
            last_transition_time: Time(at),
            ..observation
        });
    }
    conditions::merge(before, [observation])
}

/// Returns whether the notes say only what was so before the workload left a cluster, while the
/// condition reports that it left: the notes then say that it stays elsewhere in spite of taints. A
/// taint without a time is taken to be older.
pub(super) fn is_older(known: &Condition, notes: &[Note]) -> bool {
    let reported = known.last_transition_time.0;
    let is_older = |note: &Note| match note.state {
        EvictionState::Stays { since, .. } => since.is_none_or(|since| since <= reported),
        _ => false,
    };
    known.status == conditions::FALSE && reports_eviction(known) && notes.iter().all(is_older)
}

/// Returns whether a condition reports that the workload left a cluster, beside what else it says.
fn reports_eviction(condition: &Condition) -> bool {
    let mut stories = condition.message.split("; ");
    stories.any(|story| story.starts_with(LEFT))
}

/// Returns the time one second later: conditions have whole seconds.
fn later(time: Timestamp) -> Timestamp {
    let later = time.saturating_add(SignedDuration::from_secs(1));
    later.unwrap_or(time)
}

fn evicted_at(notes: &[Note]) -> Option<Timestamp> {
    notes
        .iter()
        .filter_map(|note| match note.state {
            EvictionState::Evicted { at, .. } => Some(at),
            _ => None,
        })
        .max()
}
