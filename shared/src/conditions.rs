//! Lists of conditions, changed by the rules of `meta.SetStatusCondition`: one condition of each
//! type, and its time moves only when its status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// It holds.
pub const TRUE: &str = "True";
/// It does not hold.
pub const FALSE: &str = "False";
/// Nobody knows whether it holds.
pub const UNKNOWN: &str = "Unknown";

/// Characters that the message of a condition may have: those of Kubernetes' definition. A longer
/// one would be refused, and the whole status with it.
const LONGEST_MESSAGE: usize = 32_768;

/// A condition that was observed at `now`. What of the message is too long is cut off.
pub fn new(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    let end = message.floor_char_boundary(LONGEST_MESSAGE);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message[..end].to_owned(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

/// The condition of a type.
pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The status of the condition of a type.
pub fn status<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a str> {
    get(conditions, kind).map(|condition| condition.status.as_str())
}

/// Whether the condition of a type is there and holds.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    status(conditions, kind) == Some(TRUE)
}

/// Puts an observation into the list; tells whether that changed anything. While the status stays
/// the same the old time stays, too; `observation.last_transition_time` is the time of a change.
pub fn set(conditions: &mut Vec<Condition>, observation: Condition) -> bool {
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == observation.type_)
    else {
        conditions.push(observation);
        return true;
    };
    let last_transition_time = if known.status == observation.status {
        known.last_transition_time.clone()
    } else {
        observation.last_transition_time.clone()
    };
    let updated = Condition {
        last_transition_time,
        ..observation
    };
    let changed = *known != updated;
    *known = updated;
    changed
}

/// The list with all observations in it, or nothing when they are all known: what to write, if
/// anything.
pub fn merge(
    conditions: &[Condition],
    observations: impl IntoIterator<Item = Condition>,
) -> Option<Vec<Condition>> {
    let mut merged = conditions.to_vec();
    let mut changed = false;
    for observation in observations {
        changed |= set(&mut merged, observation);
    }
    changed.then_some(merged)
}

/// Takes the condition of a type out of the list; tells whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: &str, reason: &str, second: i64) -> Condition {
        new("Ready", status, reason, "", at(second))
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let mut conditions = vec![ready(TRUE, "ClusterReady", 1)];
        assert!(
            !set(&mut conditions, ready(TRUE, "ClusterReady", 2)),
            "nothing new"
        );
        assert!(
            set(&mut conditions, ready(TRUE, "Other", 3)),
            "another reason is news"
        );
        assert_eq!(conditions[0].last_transition_time.0, at(1));
        assert!(set(&mut conditions, ready(FALSE, "Other", 4)));
        assert_eq!(conditions[0].last_transition_time.0, at(4));
    }

    #[test]
    fn a_message_that_would_be_refused_is_cut_off() {
        let long = "é".repeat(LONGEST_MESSAGE);
        let condition = new("Ready", TRUE, "Long", &long, at(1));
        assert_eq!(condition.message.len(), LONGEST_MESSAGE);
        assert!(long.starts_with(&condition.message));
    }

    #[test]
    fn conditions_of_others_stay_where_they_are() {
        let other = new("Other", TRUE, "R", "", at(0));
        let merged = merge(
            std::slice::from_ref(&other),
            [ready(TRUE, "ClusterReady", 1)],
        )
        .unwrap();
        assert_eq!(merged, [other, ready(TRUE, "ClusterReady", 1)]);
        assert_eq!(merge(&merged, [ready(TRUE, "ClusterReady", 9)]), None);
    }

    #[test]
    fn what_was_removed_is_gone() {
        let mut conditions = vec![ready(TRUE, "ClusterReady", 1)];
        assert!(is_true(&conditions, "Ready"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
        assert_eq!(status(&conditions, "Ready"), None);
    }
}
